"""What an example of pretraining is: segments of a corpus, in some order, with or without a label."""

from typing import Literal, get_args

import numpy as np
import tensorflow as tf

from keras_bert.data.corpus import find_chunks, pack_sentences
from keras_bert.hashing import below, uniform
from keras_bert.text.pairing import longest_first

ObjectiveName = Literal["next_sentence", "sentence_order", "full_sentences"]

# Streams of random numbers that share an example's key; 0 is left to the masks.
_SPLIT, _LABEL, _DOCUMENT, _SENTENCE, _SHORT, _LENGTH = range(1, 7)


class Objective:
    """The examples of a corpus for one objective.

    Their number is known from the start: each belongs to a chunk of text that is found without
    randomness. What else there is to an example is a pure function of a key, so that it can be drawn
    anew in each epoch and anywhere.

    Args:
        corpus: A Corpus.
        tokenizer: The tokenizer that made its ids.
        max_length: Tokens T in a row, special ones included.
        short_rate: Share of rows that are cut to a random shorter length; None for the objective's own.

    Attributes:
        tokens: (N,) int32 tensor that the segments lie in.
        special_tokens: How many stand around the segments of a row.
        documents_left_out: How many documents are too short for an example.
    """

    segments_in_row = 2
    default_short_rate = 0.1

    def __init__(self, corpus, tokenizer, max_length, short_rate=None):
        self.special_tokens = 2 if self.segments_in_row == 1 else 2 + tokenizer.pair_separators
        self.room = max_length - self.special_tokens
        if self.room < 2:
            raise ValueError(
                f"`max_length` must leave room for 2 tokens beside {self.special_tokens} special ones. "
                f"Received: {max_length}."
            )
        self.short_rate = self.default_short_rate if short_rate is None else short_rate
        if not 0 <= self.short_rate <= 1:
            raise ValueError(f"`short_rate` must lie in [0, 1]. Received: {short_rate}.")
        self.documents_left_out = 0
        arrays = self._arrays(corpus, tokenizer)
        with tf.device("CPU"):
            self.arrays = tuple(tf.constant(array) for array in arrays)
        self.tokens, *_, self._chunks = self.arrays

    def __len__(self):
        """How many chunks, hence examples in an epoch, there are."""
        return self._chunks.shape[0]

    def segments(self, keys, chunks):
        """Draws the examples of some chunks: a graph function.

        Shapes (B rows):
            keys     (B,)  uint32
            chunks   (B,)  int64
            returns  a, b     each two of (B,) int64: where the segments begin in `tokens`, and their
                              lengths, which fit into a row; b = None for single segments
                     labels   (B,) int32, 0: in order, 1: not; None where nobody asks
        """
        short = uniform(keys, _SHORT) < self.short_rate
        limit = tf.where(short, 2 + below(self.room - 1, keys, _LENGTH), self.room)
        return self._draw(keys, chunks, tf.cast(limit, tf.int64))

    def _arrays(self, corpus, tokenizer):
        """What examples are drawn from: tokens first, chunks, one row for each, last."""
        raise NotImplementedError

    def _draw(self, keys, chunks, limit):
        """`segments`, of at most `limit` (B,) int64 tokens together."""
        raise NotImplementedError


class NextSentence(Objective):
    """Pairs for next sentence prediction (Devlin et al. 2018, section 3.1).

    An example is a chunk of at least two sentences, split at a random sentence into `a` and `b`. For
    half of them `b` is replaced by sentences of another document, from a random one on until they are
    about as long as the true `b` (where that document is long enough): length hardly tells the label.
    """

    def _arrays(self, corpus, tokenizer):
        chunks = find_chunks(corpus, self.room, min_sentences=2)
        usable = np.unique(chunks[:, 0])
        self.documents_left_out = corpus.documents - len(usable)
        if len(usable) < 2:
            raise ValueError(
                "Next sentence prediction needs at least two documents of two sentences or more. "
                f"Received: {len(usable)} such of {corpus.documents} documents. "
                "Give more documents, or tell where the documents of a file end."
            )
        # Documents of one sentence are neither split nor drawn from, so number the others anew.
        bounds = np.stack([corpus.document_offsets[usable], corpus.document_offsets[usable + 1]], 1)
        chunks[:, 0] = np.searchsorted(usable, chunks[:, 0])
        return corpus.tokens, corpus.sentence_offsets, bounds, chunks

    def _draw(self, keys, chunks, limit):
        _, sentences, documents, _ = self.arrays
        document, first, last = tf.unstack(tf.gather(self._chunks, chunks), axis=1)
        a_starts, a_ends, b_ends = _split(sentences, first, last, keys)

        other = _below(documents.shape[0] - 1, keys, _DOCUMENT)
        other += tf.cast(other >= document, tf.int64)
        begin, end = tf.unstack(tf.gather(documents, other), axis=1)
        # of the sentences with enough text behind them, where the document has such
        wanted = b_ends - a_ends
        last_start = tf.gather(sentences, end) - wanted
        late = tf.searchsorted(sentences, last_start, side="right", out_type=tf.int64)
        sentence = begin + _below(tf.maximum(late - begin, 1), keys, _SENTENCE)
        r_starts = tf.gather(sentences, sentence)
        # to the sentence end that is nearest to the wanted length: always the next would be too long
        reach = r_starts + wanted
        behind = tf.searchsorted(sentences, reach, out_type=tf.int64)
        next_end = tf.gather(sentences, tf.minimum(behind, end))
        last_end = tf.gather(sentences, tf.maximum(behind - 1, sentence + 1))
        r_ends = tf.where(reach - last_end < next_end - reach, tf.minimum(last_end, next_end), next_end)

        is_random = uniform(keys, _LABEL) < 0.5
        b_starts = tf.where(is_random, r_starts, a_ends)
        b_ends = tf.where(is_random, r_ends, b_ends)
        a, b = _cut((a_starts, a_ends), (b_starts, b_ends), limit)
        return a, b, tf.cast(is_random, tf.int32)


class SentenceOrder(Objective):
    """Pairs for sentence order prediction (Lan et al. 2019, section 3.1).

    An example is a chunk of at least two sentences, split at a random sentence into two segments of one
    document; half of the pairs are swapped. Pairs that are too long are cut after that, as all pairs
    are, so that where a segment is cut does not tell the label. Its length does so a little, as in
    ALBERT: the last sentence of a chunk, the one that fills it, is longer than others. (On the built-in
    corpus the best threshold on lengths is right for 53 to 55 % of the rows.)
    """

    def _arrays(self, corpus, tokenizer):
        chunks = find_chunks(corpus, self.room, min_sentences=2)
        self.documents_left_out = corpus.documents - len(np.unique(chunks[:, 0]))
        if not len(chunks):
            raise ValueError(
                "Sentence order prediction needs a document of two sentences or more. "
                f"Received: {corpus.documents} documents of one sentence."
            )
        return corpus.tokens, corpus.sentence_offsets, chunks[:, 1:]

    def _draw(self, keys, chunks, limit):
        _, sentences, _ = self.arrays
        first, last = tf.unstack(tf.gather(self._chunks, chunks), axis=1)
        start, middle, end = _split(sentences, first, last, keys)
        swapped = uniform(keys, _LABEL) < 0.5
        a = tf.where(swapped, middle, start), tf.where(swapped, end, middle)
        b = tf.where(swapped, start, middle), tf.where(swapped, middle, end)
        return *_cut(a, b, limit), tf.cast(swapped, tf.int32)


class FullSentences(Objective):
    """Rows of whole sentences for the masked LM alone (Liu et al. 2019, section 4.2).

    Sentences are packed into rows in their order, as many as fit, across the borders of documents; a
    separator more stands where a row goes on with another document. No row begins or ends with one, and
    a sentence longer than a row is cut into several rows, so that an epoch has each token once.

    RoBERTa's own code, fairseq, comes to the same by way of the lines of its text files, the empty ones
    between documents included: each ends in `</s>`, and blocks of lines are rows. So there one stands
    behind each line and two between documents; rows may begin with one; too long a line is a row of its
    own, which is left out or truncated.
    """

    segments_in_row = 1
    default_short_rate = 0.0

    def _arrays(self, corpus, tokenizer):
        borders = corpus.sentence_offsets[corpus.document_offsets[1:-1]]
        tokens = np.insert(corpus.tokens, borders, tokenizer.sep_token_id)
        documents = np.repeat(np.arange(corpus.documents), np.diff(corpus.document_offsets))
        # one separator for each document before
        starts, ends = corpus.sentence_offsets[:-1] + documents, corpus.sentence_offsets[1:] + documents
        return tokens, pack_sentences(starts, ends, self.room)

    def _draw(self, keys, chunks, limit):
        starts, ends = tf.unstack(tf.gather(self._chunks, chunks), axis=1)
        return (starts, tf.minimum(ends - starts, limit)), None, None


OBJECTIVES = dict(
    zip(get_args(ObjectiveName), (NextSentence, SentenceOrder, FullSentences), strict=True)
)


def make_objective(name, corpus, tokenizer, max_length, short_rate=None):
    """The Objective of that name, over a corpus."""
    if name not in OBJECTIVES:
        raise ValueError(
            f"`objective` must be {' or '.join(map(repr, OBJECTIVES))}. Received: {name!r}."
        )
    return OBJECTIVES[name](corpus, tokenizer, max_length, short_rate)


def _split(sentences, first, last, keys):
    """Token offsets of the chunk's start, of a random sentence inside it, and of its end."""
    middle = first + 1 + _below(last - first - 1, keys, _SPLIT)
    return [tf.gather(sentences, sentence) for sentence in (first, middle, last)]


def _cut(a, b, limit):
    """(start, end) of two segments -> (start, length), `limit` tokens together at most.

    The longer one gives way, `a` at its front and `b` at its end: where they meet, they meet.
    """
    (a_starts, a_ends), (b_starts, b_ends) = a, b
    a_lengths, b_lengths = longest_first(a_ends - a_starts, b_ends - b_starts, limit)
    return (a_ends - a_lengths, a_lengths), (b_starts, b_lengths)


def _below(limit, *keys):
    return tf.cast(below(limit, *keys), tf.int64)
