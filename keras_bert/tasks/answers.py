"""A span of a text for each question."""

import numpy as np

from keras_bert.data.labelled import read_questions
from keras_bert.models.question_answering import BertQuestionAnswering, choose_answer
from keras_bert.tasks.kind import Kind, mistake
from keras_bert.tasks.pictures import Thresholds
from keras_bert.tasks.scoring import best_answers, score_answers
from keras_bert.tasks.task import Task
from keras_bert.text.features import answer_rows


class Answers(Kind):
    """A span of a text for each question."""

    own_data = Task("answers", metric="f1")
    model = BertQuestionAnswering

    @classmethod
    def read(cls, task, path, split):
        return read_questions(path, task.tfds_split(split))

    def have_labels(self, rows):
        return True

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

    def picture(self, rows, predictions):
        """Exact match and F1 over the threshold of no answer."""
        if not _some_without(rows):
            return None
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
        return Thresholds(thresholds, curves, best, label)

    def mistakes(self, rows, predictions):
        """Questions whose answer shares least with the true one."""
        wrong = []
        for row, each in zip(rows, predictions, strict=True):
            scores = score_answers({0: row["answers"]}, {0: each["answer"]})
            if scores["exact"] < 100:
                truth = " / ".join(dict.fromkeys(row["answers"])) or "(none)"
                wrong.append((scores["f1"], row["question"], truth, each["answer"] or "(none)"))
        wrong.sort(key=lambda each: each[0])
        return [mistake(*each[1:]) for each in wrong]


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
