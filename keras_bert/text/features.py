"""From raw fields to the rows and labels of a task model: one function for each kind of task."""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_bert.text.offsets import row_ids
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
        labels = answer_positions(
            self.char_starts.to_tensor(),
            self.char_ends.to_tensor(),
            self.first_slots,
            self.sizes,
            *(np.asarray(each, "int32")[self.texts] for each in (starts, ends)),
        )
        return {name: positions.numpy() for name, positions in labels.items()}


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
    words = tf.RaggedTensor.from_row_lengths(
        tf.constant([word for words in sentences for word in words], tf.string),
        [len(words) for words in sentences],
    )
    first = first_pieces(words, pieces["char_starts"]).numpy()
    has_piece = first >= 0
    found = {"rows": np.full(len(first), -1), "slots": np.full(len(first), -1)}
    found["rows"][has_piece] = windows.numpy()[first[has_piece]]
    found["slots"][has_piece] = places.numpy()[first[has_piece]] + 1  # behind [CLS]
    return WordRows(_ragged(rows), **found)


def first_pieces(words, char_starts):
    """The piece that speaks for each word: the first that begins in it, in the graph.

    Shapes (B sentences, W words of all of them, N pieces of all of them):
        words        (B, words) ragged   string
        char_starts  (B, pieces) ragged  int32, of the words joined by single spaces
        returns      (W,)                int32, counted over all pieces; -1 for a word of which the
                                         tokenizer leaves nothing
    """
    count = tf.size(words.values)
    # the characters of all sentences one behind the other, each word with a space behind it
    word_ends = tf.cumsum(tf.strings.length(words.values, unit="UTF8_CHAR") + 1)
    begins = tf.gather(tf.concat([[0], word_ends], axis=0), words.row_starts())
    place = char_starts.values + tf.gather(begins, row_ids(char_starts))
    word = tf.searchsorted(word_ends, place, side="right")
    first = tf.math.unsorted_segment_min(tf.range(tf.size(word)), word, count)
    return tf.where(first < tf.size(word), first, -1)


def answer_positions(char_starts, char_ends, first_slots, sizes, starts, ends):
    """Positions of answers in rows of windows, in the graph; [CLS] where a window does not hold all.

    Shapes (R rows, T tokens):
        char_starts, char_ends  (R, T)  int32: where in the text each token lies
        first_slots, sizes      (R,)    int32: where the window begins, and its number of tokens
        starts, ends            (R,)    int32: the characters of the row's answer; -1 where it has none
        returns                 a dict of (R,) int32: start_positions, end_positions
    """
    width = tf.shape(char_starts)[1]
    slot, first, starts, ends = (
        tf.range(width)[None, :],
        *(x[:, None] for x in (first_slots, starts, ends)),
    )
    in_window = (slot >= first) & (slot < first + sizes[:, None])
    holding = in_window & (char_ends > starts) & (char_starts < ends)
    begin = tf.gather(char_starts, first, batch_dims=1)
    finish = tf.gather(char_ends, tf.maximum(first + sizes[:, None] - 1, 0), batch_dims=1)
    is_whole = (starts >= 0) & (begin <= starts) & (finish >= ends)
    is_found = tf.reduce_any(holding & is_whole, axis=1)
    bits = tf.cast(holding, tf.int32)
    last = width - 1 - tf.argmax(bits[:, ::-1], axis=1, output_type=tf.int32)
    return {
        "start_positions": tf.where(is_found, tf.argmax(bits, axis=1, output_type=tf.int32), 0),
        "end_positions": tf.where(is_found, last, 0),
    }


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
