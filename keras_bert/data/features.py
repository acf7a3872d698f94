"""From raw fields to the rows and labels of a task model: one function for each kind of task."""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_bert.text.pairing import combine
from keras_bert.text.windows import best_slots, window_rows

_STRETCH = 20_000  # texts that are tokenized at once


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows for the encoder: `inputs`, a dict of (R, T) ragged int32 token_ids and segment_ids.

    Where texts are cut into windows, `words` (of a WordRows) or `windows` (of an AnswerRows) tell the
    way back.
    """

    inputs: dict


@dataclasses.dataclass(frozen=True)
class WordRows(Rows):
    """Rows of windows over sentences of words.

    Shapes (W words of all sentences):
        rows, slots  (W,)  int64: the row, and the token in it, that speaks for each word: its first
                           piece, in the window where that has most context; -1 for a word of which the
                           tokenizer leaves nothing
    """

    rows: np.ndarray
    slots: np.ndarray

    def label(self, numbers):
        """Labels (R, T) ragged int32 for the rows: a word's number at its first piece, else -1.

        In training a word counts in one window alone, as it does in prediction.

        Shapes:
            numbers  (W,)  int
        """
        lengths = self.inputs["token_ids"].row_splits.numpy()
        labels = np.full(lengths[-1], -1, "int32")
        has_piece = self.rows >= 0
        labels[lengths[self.rows[has_piece]] + self.slots[has_piece]] = np.asarray(numbers)[has_piece]
        return tf.RaggedTensor.from_row_splits(labels, lengths)

    def read(self, outputs, missing):
        """What a word gets of outputs for each row, (T, ...) each; `missing` where it has no piece."""
        return [
            outputs[row][slot] if row >= 0 else missing
            for row, slot in zip(self.rows, self.slots, strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class AnswerRows(Rows):
    """Rows of a question and a window of its text.

    Shapes (R rows):
        texts, first_slots, sizes  (R,)  which question a row is of; where its window begins in the row,
                                   and how many tokens it has
        char_starts, char_ends     (R, T) ragged: where in the text each token lies
    """

    texts: np.ndarray
    first_slots: np.ndarray
    sizes: np.ndarray
    char_starts: tf.RaggedTensor
    char_ends: tf.RaggedTensor

    def label(self, starts, ends):
        """Positions of answers in each row, {"start_positions", "end_positions"}: (R,) int32.

        A row whose window does not hold all of the answer points at [CLS], as in google-research/bert.

        Args:
            starts, ends: For each question the characters of its answer; -1 where it has none.
        """
        labels = {name: np.zeros(len(self.texts), "int32") for name in ("start", "end")}
        splits, begins = self.char_starts.row_splits.numpy(), self.char_starts.values.numpy()
        finishes = self.char_ends.values.numpy()
        for row, (text, first, size) in enumerate(
            zip(self.texts, self.first_slots, self.sizes, strict=True)
        ):
            if starts[text] < 0 or not size:
                continue
            window = slice(splits[row] + first, splits[row] + first + size)
            holding = np.flatnonzero((finishes[window] > starts[text]) & (begins[window] < ends[text]))
            is_whole = begins[window][0] <= starts[text] and finishes[window][-1] >= ends[text]
            if len(holding) and is_whole:
                labels["start"][row], labels["end"][row] = first + holding[[0, -1]]
        return {f"{name}_positions": values for name, values in labels.items()}


def text_rows(texts, pairs, tokenizer, max_length, type_vocab_size=2):
    """A row for each text, or for each pair; what is too long loses the end of its longer text.

    Args:
        texts: List of str.
        pairs: List of str, or None.
    """
    pieces = [
        None if each is None else tokenize(each, tokenizer)["token_ids"] for each in (texts, pairs)
    ]
    rows = combine(
        *pieces,
        tokenizer=tokenizer,
        max_length=max_length,
        padding="do_not_pad",
        type_vocab_size=type_vocab_size,
    )
    return Rows({name: rows[name] for name in ("token_ids", "segment_ids")})


def word_rows(sentences, tokenizer, max_length, stride, type_vocab_size=2):
    """Windows over sentences of words, each word read as it stands among others with spaces between.

    Args:
        sentences: List of lists of str.
        stride: Tokens from the beginning of a window to that of the next.
    """
    pieces = tokenize([" ".join(words) for words in sentences], tokenizer, offsets=True)
    rows = window_rows(
        {"token_ids": pieces["token_ids"]},
        tokenizer=tokenizer,
        max_length=max_length,
        stride=stride,
        type_vocab_size=type_vocab_size,
    )
    lengths = pieces["token_ids"].row_lengths()
    windows, places = best_slots(rows["texts"], rows["starts"], rows["sizes"], lengths)
    # the word, counted over all sentences, that each piece begins in
    char_starts, splits = pieces["char_starts"].values.numpy(), pieces["char_starts"].row_splits.numpy()
    word_of, count = [], 0
    for index, words in enumerate(sentences):
        word_ends = np.cumsum([len(word) + 1 for word in words])  # and the space behind it
        of_pieces = char_starts[splits[index] : splits[index + 1]]
        word_of.append(count + np.searchsorted(word_ends, of_pieces, side="right"))
        count += len(words)
    words, first = np.unique(np.concatenate(word_of), return_index=True)
    found = {"rows": np.full(count, -1), "slots": np.full(count, -1)}
    found["rows"][words] = windows.numpy()[first]
    found["slots"][words] = places.numpy()[first] + 1  # behind [CLS]
    return WordRows(_ragged(rows), **found)


def answer_rows(
    questions, contexts, tokenizer, max_length, stride, max_question_length=64, type_vocab_size=2
):
    """A row for each window over the context of each question.

    Args:
        questions, contexts: Lists of str.
        max_question_length: Tokens that a question may have; longer ones lose their end.
        stride: Tokens from the beginning of a window to that of the next.
    """
    question = {"token_ids": tokenize(questions, tokenizer)["token_ids"][:, :max_question_length]}
    context = tokenize(contexts, tokenizer, offsets=True)
    rows = window_rows(
        {name: context[name] for name in ("token_ids", "char_starts", "char_ends")},
        question,
        tokenizer=tokenizer,
        max_length=max_length,
        stride=stride,
        type_vocab_size=type_vocab_size,
    )
    lengths = tf.reduce_sum(rows["padding_mask"], axis=1)
    return AnswerRows(
        _ragged(rows),
        *(rows[name].numpy() for name in ("texts", "first_slots", "sizes")),
        *(tf.RaggedTensor.from_tensor(rows[name], lengths) for name in ("char_starts", "char_ends")),
    )


def choice_rows(contexts, choices, tokenizer, max_length, type_vocab_size=2):
    """A row for each choice of each context, those of a context one after the other.

    Args:
        contexts: List of str.
        choices: List of lists of str, all of one length.
    """
    repeated = [context for context, each in zip(contexts, choices, strict=True) for _ in each]
    flat = [choice for each in choices for choice in each]
    return text_rows(repeated, flat, tokenizer, max_length, type_vocab_size)


def tokenize(texts, tokenizer, offsets=False):
    """The pieces of many texts: a dict of (N, pieces) ragged int32, with offsets where asked for."""
    parts = []
    for begin in range(0, max(len(texts), 1), _STRETCH):
        stretch = tf.constant(list(texts[begin : begin + _STRETCH]), tf.string)
        part = (
            tokenizer.tokenize_with_offsets(stretch)
            if offsets
            else {"token_ids": tokenizer.tokenize(stretch)}
        )
        parts.append(part)
    return {name: tf.concat([part[name] for part in parts], axis=0) for name in parts[0]}


def _ragged(rows):
    lengths = tf.reduce_sum(rows["padding_mask"], axis=1)
    names = ("token_ids", "segment_ids")
    return {name: tf.RaggedTensor.from_tensor(rows[name], lengths) for name in names}
