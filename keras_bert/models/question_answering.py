"""The span of a text that answers a question (Devlin et al. 2018, sections 4.2 and 4.3)."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bert.models.answering import find_answers
from keras_bert.models.columns import read_labels, refuse
from keras_bert.models.signatures import answer_signatures
from keras_bert.models.task_models import ROW_FIELDS, TaskModel, label_figures
from keras_bert.text.features import answer_positions
from keras_bert.text.windows import window_rows


@keras.saving.register_keras_serializable(package="keras_bert")
class BertQuestionAnswering(TaskModel):
    """Scores every token as the first and as the last of the answer (section 4.2).

    Shapes (B rows, T tokens):
        inputs   a dict, as BertEncoder takes it: the question, then the text
        returns  a dict of float32 logits, -1e9 at padding, so that they can be no answer
            start_positions  (B, T)
            end_positions    (B, T)
        labels   a dict of the same names: (B,) int, the tokens; -1 to ignore

    Of strings, `fit` takes the columns "question" and "context", and as labels "answers", a list of str
    for each question, empty where it has none, and "starts", where in the context each begins, in
    characters; or a list of dicts of the four. Training takes the first answer. A longer context is
    read in windows; one that does not hold all of the answer has none.

    Args:
        config: An EncoderConfig.
        no_answer_threshold: How much more than the best answer no answer must score to be taken, where
            `predict_text` is told nothing else; None for always an answer. Fine-tuning on questions of
            which some have no answer finds it (section 4.3), and checkpoints keep it.
        **kwargs: See TaskModel.
    """

    head = "question_answering"
    needs_pooler = False
    text_columns = row_columns = {"question": 1, "context": 1}  # noqa: RUF012
    label_columns = ("answers", "starts")
    predicts_rows = False
    head_options = ("classifier_dropout", "no_answer_threshold")
    text_signatures = answer_signatures

    # the paper has no dropout here
    def __init__(self, config, classifier_dropout=0.0, no_answer_threshold=None, **kwargs):
        super().__init__(config, classifier_dropout=classifier_dropout, **kwargs)
        self.no_answer_threshold = no_answer_threshold
        self.span = self.dense(2, "span")

    def call(self, inputs, training=None, seed=None):
        encoded, seed = self.encode(inputs, training, seed)
        scores = ops.cast(self.span(self.drop(encoded["sequence_output"], seed)), "float32")
        is_token = ops.cast(inputs["padding_mask"], "bool")[..., None]
        starts, ends = ops.unstack(ops.where(is_token, scores, -1e9), 2, axis=-1)
        return {"start_positions": starts, "end_positions": ends}

    def text_outputs(
        self,
        tokenizer,
        question,
        context,
        n_best=1,
        max_length=None,
        stride=None,
        max_answer_length=30,
        max_question_length=64,
    ):
        """Graph function behind `predict_text` and the export: see `find_answers`."""
        max_length, stride = self.window(max_length, stride)
        room = min(max_question_length, max_length // 2)
        return find_answers(
            self, tokenizer, question, context, n_best, max_length, stride, max_answer_length, room
        )

    def readable(self, row, **options):
        answers = [
            {"answer": text.decode(), "start": int(start), "end": int(end), "score": float(score)}
            for text, start, end, score in zip(
                row["answers"], row["starts"], row["ends"], row["probabilities"], strict=True
            )
            if end > start
        ]
        best = float(row["scores"][0]) if answers else -np.inf
        null = float(row["no_answer"])
        return {"answers": answers, "no_answer_margin": null - best if answers else np.inf}

    def predict_text(
        self, questions, contexts, n_best=1, no_answer_threshold=None, batch_size=8, **options
    ):
        """The answer to each question, a slice of its context.

        Args:
            questions, contexts: Lists of str.
            n_best: How many answers to give.
            no_answer_threshold: How much more than the best answer no answer must score to be taken;
                None for the model's, infinity for always an answer, if the context has any text.
            batch_size: Questions that are computed at once; it changes no result.
            **options: max_length and stride (tokens of a window, and from one to the next),
                max_answer_length, max_question_length (tokens).

        Returns:
            For each question a dict: "answer", "start" and "end" in characters, "score" (a
            probability among the `n_best` and no answer), "no_answer_margin" (what is compared with the
            threshold), "answers" (the `n_best`). No answer is "", at 0 to 0.
        """
        rows = self.predict_columns([questions, contexts], batch_size, n_best=n_best, **options)
        if no_answer_threshold is None:
            no_answer_threshold = self.no_answer_threshold
        return [choose_answer(row, no_answer_threshold) for row in rows]

    def read_y(self, y):
        if not isinstance(y, dict) or set(y) != set(self.label_columns):
            received = sorted(y) if isinstance(y, dict) else type(y).__name__
            raise ValueError(
                f"`y` must be a dict of {' and '.join(self.label_columns)}. Received: {received}."
            )
        return {name: read_labels(y[name], name, ragged=True) for name in self.label_columns}

    def numbered(self, labels, columns):
        """The characters of each question's first answer, {"starts", "ends"}: (N,), -1 for none."""
        answers, starts = labels["answers"], labels["starts"]
        counts = tf.stack([answers.row_lengths(), starts.row_lengths()], axis=1)
        refuse(counts[:, 0] != counts[:, 1], "Each answer must have a start.", counts)
        texts = (
            answers if answers.dtype == tf.string else tf.ragged.map_flat_values(tf.as_string, answers)
        )
        texts = texts[:, :1].to_tensor("", shape=[None, 1])[:, 0]
        begin = tf.cast(starts[:, :1].to_tensor(-1, shape=[None, 1])[:, 0], tf.int32)
        context = columns["context"]
        length = tf.strings.length(texts, unit="UTF8_CHAR")
        size = tf.strings.length(context, unit="UTF8_CHAR")
        place = tf.clip_by_value(begin, 0, size)
        found = tf.strings.substr(context, place, length, unit="UTF8_CHAR")
        has_answer = counts[:, 0] > 0
        is_there = (found == texts) & (place == begin) & (length > 0)
        must = "Each answer must stand in its context where its start says."
        refuse(has_answer & ~is_there, must, texts)
        return {"starts": begin, "ends": tf.where(has_answer, begin + length, -1)}

    def token_rows(self, columns, labels, most):
        max_length, stride = self.window(None, None)
        pieces = self.tokenizer.tokenize_with_offsets(columns["context"])
        asked = self.tokenizer.tokenize(columns["question"])[:, : min(64, max_length // 2)]
        rows = window_rows(
            {name: pieces[name] for name in ("token_ids", "char_starts", "char_ends")},
            {"token_ids": asked},
            tokenizer=self.tokenizer,
            max_length=max_length,
            stride=stride,
            type_vocab_size=self.config.type_vocab_size,
        )
        y = answer_positions(
            *(rows[name] for name in ("char_starts", "char_ends", "first_slots", "sizes")),
            *(tf.gather(labels[name], rows["texts"]) for name in ("starts", "ends")),
        )
        return {name: rows[name] for name in ROW_FIELDS}, y, rows["texts"]

    def element_figures(self, name, labels, outputs):
        return label_figures(labels, outputs)


def choose_answer(row, no_answer_threshold):
    """A row of `predict_text` with the answer that a threshold leaves.

    Args:
        row: A dict with "answers" and "no_answer_margin".
        no_answer_threshold: As in `predict_text`; None for always an answer.
    """
    answers, threshold = row["answers"], no_answer_threshold
    if not answers or (threshold is not None and row["no_answer_margin"] > threshold):
        nothing = 1 - sum(answer["score"] for answer in answers)
        return {**row, "answer": "", "start": 0, "end": 0, "score": nothing}
    return {**row, **answers[0]}
