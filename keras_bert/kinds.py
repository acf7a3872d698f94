"""What to do with each kind of task: its model, its examples, its predictions, its scores."""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_bert.data.examples import Examples
from keras_bert.drawings import draw_confusion, draw_scatter, draw_thresholds
from keras_bert.entities import are_entity_tags, entities
from keras_bert.models.classifier import BertClassifier
from keras_bert.models.multiple_choice import BertMultipleChoice
from keras_bert.models.question_answering import BertQuestionAnswering, choose_answer
from keras_bert.models.token_classifier import BertTokenClassifier
from keras_bert.scoring import (
    best_answers,
    score_answers,
    score_label_sets,
    score_labels,
    score_numbers,
    score_tags,
)
from keras_bert.tasks import label_names_of, labels_of
from keras_bert.text.features import answer_rows, choice_rows, text_rows, word_rows


@dataclasses.dataclass(frozen=True)
class Reading:
    """How rows become tokens.

    Args:
        tokenizer: Of the model.
        max_length: Most tokens of a row or a window.
        stride: Tokens from one window to the next.
        type_vocab_size: Of the encoder.
        length: T of every batch; None for the longest row of each.
        seed: Of the order of examples.
    """

    tokenizer: object
    max_length: int
    stride: int
    type_vocab_size: int = 2
    length: int | None = None
    seed: int = 0

    def examples(self, rows, labels, count=None):
        """Examples of some Rows; `count` rows belong to each, if not one."""
        return Examples(rows.inputs, labels, self.tokenizer.pad_token_id, count, self.length, self.seed)


class Kind:
    """A kind of task.

    Args:
        task: A Task.
        label_names: Names of its labels; None where it has none.
    """

    model = None

    def __init__(self, task, label_names=None):
        self.task = task
        self.label_names = label_names

    @property
    def model_options(self):
        """Arguments of the model's constructor."""
        return {} if self.label_names is None else {"label_names": self.label_names}

    def examples(self, rows, reading):
        """Examples with labels, for training."""
        raise NotImplementedError

    def predict(self, model, rows, reading, batch_size):
        """A readable result for each row, in its order."""
        raise NotImplementedError

    def score(self, rows, predictions):
        """{name: score} of predictions."""
        raise NotImplementedError

    def calibrate(self, model, rows, predictions):
        """Sets what of a model is chosen on development data, and gives the predictions with it.

        Returns:
            `predictions` themselves where there is nothing to choose.

        Args:
            model: Its attributes may change; not its weights.
            rows: With labels.
            predictions: As `predict` gives them.
        """
        return predictions

    def draw(self, rows, predictions, path):
        """Draws what the predictions got right and wrong as a PNG; False with nothing to draw.

        Args:
            rows, predictions: As in `score`.
            path: The file.
        """
        return False

    def mistakes(self, rows, predictions):
        """What went wrong, the worst first: a list of {"text", "truth", "prediction"} of str.

        Args:
            rows: With labels.
            predictions: As `predict` gives them.
        """
        raise NotImplementedError

    def label_numbers(self, rows):
        """The number of each row's label, (N,) int32; of a word's, for tags."""
        numbers = {name: number for number, name in enumerate(self.label_names)}
        unknown = sorted({name for name in self.names(rows) if name not in numbers})
        if unknown:
            raise ValueError(
                f"Labels must be among {', '.join(self.label_names)}. Received: {', '.join(unknown)}."
            )
        return np.array([numbers[name] for name in self.names(rows)], "int32")

    def names(self, rows):
        """The label of each row, or word, by name."""
        return [labels_of(self.task, row)[0] for row in rows]

    def texts(self, rows):
        """The columns of texts: one, or two with pairs."""
        columns = [[row[self.task.text] for row in rows]]
        if self.task.text_pair is not None:
            columns.append([row[self.task.text_pair] for row in rows])
        return columns


class Classification(Kind):
    """One label for each text or pair."""

    model = BertClassifier

    def examples(self, rows, reading):
        return reading.examples(self.rows(rows, reading), self.labels(rows))

    def rows(self, rows, reading):
        texts, *pairs = self.texts(rows)
        return text_rows(
            texts,
            pairs[0] if pairs else None,
            reading.tokenizer,
            reading.max_length,
            reading.type_vocab_size,
        )

    def labels(self, rows):
        return self.label_numbers(rows)

    def predict(self, model, rows, reading, batch_size):
        columns = self.texts(rows)
        return model.predict_text(*columns, batch_size=batch_size, max_length=reading.max_length)

    def score(self, rows, predictions):
        numbers = {name: number for number, name in enumerate(self.label_names)}
        predicted = [numbers[each["label"]] for each in predictions]
        return score_labels(self.label_numbers(rows), predicted, self.label_names)

    def draw(self, rows, predictions, path):
        draw_confusion(
            self.names(rows), [each["label"] for each in predictions], self.label_names, path
        )
        return True

    def mistakes(self, rows, predictions):
        """Those that the model was surest of."""
        texts = [" | ".join(row) for row in zip(*self.texts(rows), strict=True)]
        wrong = [
            (each["probabilities"][each["label"]], text, truth, each["label"])
            for text, truth, each in zip(texts, self.names(rows), predictions, strict=True)
            if each["label"] != truth
        ]
        return [_mistake(text, truth, got) for _, text, truth, got in sorted(wrong, reverse=True)]


class MultiLabel(Classification):
    """A yes or no for each label."""

    @property
    def model_options(self):
        return {**super().model_options, "problem_type": "multi_label"}

    def labels(self, rows):
        return self._sets([labels_of(self.task, row) for row in rows])

    def score(self, rows, predictions):
        return score_label_sets(self.labels(rows), self._sets([each["labels"] for each in predictions]))

    def draw(self, rows, predictions, path):
        """F1 of all answers over the probability from which on a label is taken."""
        truths = self.labels(rows).astype(bool)
        chances = np.array([list(each["probabilities"].values()) for each in predictions])
        thresholds = np.linspace(0, 1, 101)[1:-1]
        scores = [score_label_sets(truths, chances > threshold) for threshold in thresholds]
        curves = {name: [each[name] for each in scores] for name in ("f1_micro", "f1_macro")}
        draw_thresholds(thresholds, curves, 0.5, "probability from which on a label is taken", path)
        return True

    def mistakes(self, rows, predictions):
        """Those with most wrong labels."""
        texts = [" | ".join(row) for row in zip(*self.texts(rows), strict=True)]
        wrong = []
        for row, text, each in zip(rows, texts, predictions, strict=True):
            truth, got = set(labels_of(self.task, row)), set(each["labels"])
            if truth != got:
                wrong.append((len(truth ^ got), text, sorted(truth), sorted(got)))
        wrong.sort(key=lambda each: -each[0])
        return [_mistake(text, ", ".join(t), ", ".join(g)) for _, text, t, g in wrong]

    def _sets(self, names):
        numbers = {name: number for number, name in enumerate(self.label_names)}
        sets = np.zeros((len(names), len(numbers)), "int32")
        for row, of_row in enumerate(names):
            for name in of_row:
                if name not in numbers:
                    raise ValueError(
                        f"Labels must be among {', '.join(self.label_names)}. Received: {name}."
                    )
                sets[row, numbers[name]] = 1
        return sets


class Regression(Classification):
    """A number for each text or pair."""

    @property
    def model_options(self):
        return {"num_labels": 1, "problem_type": "regression"}

    def labels(self, rows):
        try:
            return np.array([float(labels_of(self.task, row)[0]) for row in rows], "float32")
        except ValueError as error:
            raise ValueError(f"Each label must be a number. Received: {error}.") from None

    def score(self, rows, predictions):
        return score_numbers(self.labels(rows), [each["score"] for each in predictions])

    def draw(self, rows, predictions, path):
        draw_scatter(self.labels(rows), [each["score"] for each in predictions], path)
        return True

    def mistakes(self, rows, predictions):
        """Those that are farthest off."""
        texts = [" | ".join(row) for row in zip(*self.texts(rows), strict=True)]
        pairs = zip(texts, self.labels(rows), predictions, strict=True)
        ordered = sorted(pairs, key=lambda each: -abs(each[1] - each[2]["score"]))
        return [_mistake(text, f"{t:.2f}", f"{each['score']:.2f}") for text, t, each in ordered]


class Tagging(Kind):
    """A tag for each word of sentences that are cut into words."""

    model = BertTokenClassifier

    def examples(self, rows, reading):
        words = self.rows(rows, reading)
        return reading.examples(words, words.label(self.label_numbers(rows)))

    def rows(self, rows, reading):
        return word_rows(
            [row["words"] for row in rows],
            reading.tokenizer,
            reading.max_length,
            reading.stride,
            reading.type_vocab_size,
        )

    def predict(self, model, rows, reading, batch_size):
        """The tags of each sentence; a word of which the tokenizer leaves nothing is outside."""
        words = self.rows(rows, reading)
        best = predict_rows(model, reading.examples(words, None), batch_size, _best_label)
        outside = self.label_names.index("O") if "O" in self.label_names else 0
        numbers = iter(words.read(best, outside))
        return [[self.label_names[next(numbers)] for _ in row["words"]] for row in rows]

    def score(self, rows, predictions):
        return score_tags([row["tags"] for row in rows], predictions)

    def draw(self, rows, predictions, path):
        draw_confusion(
            self.names(rows), [tag for tags in predictions for tag in tags], self.label_names, path
        )
        return True

    def mistakes(self, rows, predictions):
        """Sentences with most wrong tags."""
        wrong = []
        for row, tags in zip(rows, predictions, strict=True):
            count = sum(a != b for a, b in zip(row["tags"], tags, strict=True))
            if count:
                truth, got = (_marked(row["words"], each) for each in (row["tags"], tags))
                wrong.append((count, " ".join(row["words"]), truth, got))
        wrong.sort(key=lambda each: -each[0])
        return [_mistake(*each[1:]) for each in wrong]

    def names(self, rows):
        return [tag for row in rows for tag in row["tags"]]


class Answers(Kind):
    """A span of a text for each question."""

    model = BertQuestionAnswering

    def examples(self, rows, reading):
        """Of several true answers, training takes the first."""
        answers = answer_rows(
            [row["question"] for row in rows],
            [row["context"] for row in rows],
            reading.tokenizer,
            reading.max_length,
            reading.stride,
            type_vocab_size=reading.type_vocab_size,
        )
        starts = [row["starts"][0] if row["starts"] else -1 for row in rows]
        ends = [
            start + len(row["answers"][0]) if row["starts"] else -1
            for start, row in zip(starts, rows, strict=True)
        ]
        return reading.examples(answers, answers.label(starts, ends))

    def predict(self, model, rows, reading, batch_size):
        return model.predict_text(
            [row["question"] for row in rows],
            [row["context"] for row in rows],
            batch_size=batch_size,
            max_length=reading.max_length,
            stride=reading.stride,
        )

    def score(self, rows, predictions):
        answers = {row["id"]: row["answers"] for row in rows}
        got = {row["id"]: each["answer"] for row, each in zip(rows, predictions, strict=True)}
        scores = score_answers(answers, got)
        if _some_without(rows):
            scores |= best_answers(answers, *_without_threshold(rows, predictions))
        return scores

    def calibrate(self, model, rows, predictions):
        """The threshold of no answer that gives the highest F1, where some question has none."""
        if not _some_without(rows):
            return predictions
        model.no_answer_threshold = self.score(rows, predictions)["best_f1_threshold"]
        return [choose_answer(each, model.no_answer_threshold) for each in predictions]

    def draw(self, rows, predictions, path):
        """Exact match and F1 over the threshold of no answer."""
        if not _some_without(rows):
            return False
        answers = {row["id"]: row["answers"] for row in rows}
        raw, margins = _without_threshold(rows, predictions)
        finite = [margin for margin in margins.values() if np.isfinite(margin)] or [0.0]
        thresholds = np.quantile(finite, np.linspace(0, 1, 101))
        scores = []
        for threshold in thresholds:
            got = {key: "" if margins[key] > threshold else answer for key, answer in raw.items()}
            scores.append(score_answers(answers, got))
        curves = {name: [each[name] for each in scores] for name in ("exact", "f1")}
        best = best_answers(answers, raw, margins)["best_f1_threshold"]
        label = "score of no answer less that of the best, above which no answer is taken"
        draw_thresholds(thresholds, curves, best, label, path)
        return True

    def mistakes(self, rows, predictions):
        """Questions whose answer shares least with the true one."""
        wrong = []
        for row, each in zip(rows, predictions, strict=True):
            scores = score_answers({0: row["answers"]}, {0: each["answer"]})
            if scores["exact"] < 100:
                truth = " / ".join(dict.fromkeys(row["answers"])) or "(none)"
                wrong.append((scores["f1"], row["question"], truth, each["answer"] or "(none)"))
        wrong.sort(key=lambda each: each[0])
        return [_mistake(*each[1:]) for each in wrong]


class Choice(Kind):
    """One of several texts that goes on with another."""

    model = BertMultipleChoice

    def examples(self, rows, reading):
        contexts, choices = self.texts(rows)
        flat = choice_rows(
            contexts, choices, reading.tokenizer, reading.max_length, reading.type_vocab_size
        )
        return reading.examples(flat, self.labels(rows), len(choices[0]))

    def texts(self, rows):
        task, first = self.task, self.task.choices[0]
        choices = [
            list(row[first]) if len(task.choices) == 1 else [row[name] for name in task.choices]
            for row in rows
        ]
        if task.text_pair is not None:  # what each choice begins with
            choices = [
                [f"{row[task.text_pair]} {choice}".strip() for choice in each]
                for row, each in zip(rows, choices, strict=True)
            ]
        counts = {len(each) for each in choices}
        if len(counts) != 1:
            raise ValueError(
                f"Each row must have the same number of choices. Received: {sorted(counts)}."
            )
        return [row[task.text] for row in rows], choices

    def labels(self, rows):
        """Numbers from 0; letters from A."""
        count = len(self.texts(rows[:1])[1][0])
        values = [row[self.task.label] for row in rows]
        numbers = [int(v) if v.isdecimal() else ord(v.upper()) - ord("A") for v in values]
        wrong = [v for v, number in zip(values, numbers, strict=True) if not 0 <= number < count]
        if wrong:
            raise ValueError(
                f"The label of a choice must be 0 to {count - 1}, or a letter. Received: {wrong[:3]}."
            )
        return np.array(numbers, "int32")

    def predict(self, model, rows, reading, batch_size):
        contexts, choices = self.texts(rows)
        return model.predict_text(
            contexts, choices, batch_size=batch_size, max_length=reading.max_length
        )

    def score(self, rows, predictions):
        right = self.labels(rows) == [each["choice"] for each in predictions]
        return {"accuracy": float(np.mean(right))}

    def mistakes(self, rows, predictions):
        """Those that the model was surest of."""
        wrong = []
        contexts, choices = self.texts(rows)
        for context, each, truth, got in zip(
            contexts, choices, self.labels(rows), predictions, strict=True
        ):
            if got["choice"] != truth:
                sureness = got["probabilities"][got["choice"]]
                wrong.append((sureness, context, each[truth], each[got["choice"]]))
        wrong.sort(key=lambda each: -each[0])
        return [_mistake(*each[1:]) for each in wrong]


_KINDS = {
    "classification": Classification,
    "regression": Regression,
    "multi_label": MultiLabel,
    "tagging": Tagging,
    "answers": Answers,
    "choice": Choice,
}


def kind_of(task, training_rows):
    """The Kind of a task, with the labels that its training data has."""
    has_labels = task.kind in ("classification", "multi_label", "tagging")
    names = label_names_of(task, training_rows) if has_labels else None
    return _KINDS[task.kind](task, names)


def predict_rows(model, examples, batch_size, reduce):
    """What a model gives for each row, in the rows' order: list of arrays (T, ...).

    Args:
        model: A task model.
        examples: Examples without labels.
        batch_size: Rows that are computed at once.
        reduce: Graph function of the outputs, to keep less of them.
    """

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.int64)],
        autograph=False,
    )
    def compute(numbers):
        return reduce(model(examples.batch_inputs(numbers), training=False))

    order, results = examples.by_length(), [None] * len(examples)
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        for number, row in zip(chosen, compute(tf.constant(chosen)).numpy(), strict=True):
            results[number] = row[: examples.lengths[number]]
    return results


def _some_without(rows):
    """Whether some question has no answer, as in version 2.0 of SQuAD."""
    return not all(row["answers"] for row in rows)


def _without_threshold(rows, predictions):
    """Two of {question id: ...}: the likeliest answer, and how much more likely none is."""
    raw, margins = {}, {}
    for row, each in zip(rows, predictions, strict=True):
        raw[row["id"]] = each["answers"][0]["answer"] if each["answers"] else ""
        margins[row["id"]] = each["no_answer_margin"]
    return raw, margins


def _best_label(logits):
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


def _mistake(text, truth, prediction):
    return {"text": text, "truth": truth, "prediction": prediction}


def _marked(words, tags):
    """The entities of a sentence in words; of other tags, each word with its tag."""
    found = entities(tags) if are_entity_tags(tags) else []
    if found or set(tags) == {"O"}:
        return ", ".join(f"{' '.join(words[a:b])} ({kind})" for kind, a, b in found) or "(none)"
    return " ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True))
