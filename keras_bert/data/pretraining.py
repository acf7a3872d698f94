"""Pretraining batches as a pure function of (seed, step): masked LM + next sentence prediction."""

import math
import zlib

import numpy as np
import tensorflow as tf

from keras_bert.data.corpus import find_chunks
from keras_bert.hashing import below, fold, uniform
from keras_bert.text.masking import check_masking, mask_tokens, word_ids
from keras_bert.text.pairing import frame, longest_first

SPECIAL_TOKENS_OF_A_PAIR = 3  # [CLS] a [SEP] b [SEP]
WORD_ALLOWANCE = 3  # predictions beyond the goal, so that few words fall victim to `max_predictions`
# Streams of random numbers that share a chunk's key; masking has its own key.
_MASKING, _SPLIT, _LABEL, _DOCUMENT, _SENTENCE, _SHORT, _LENGTH = range(7)


class NextSentenceData:
    """Examples of a corpus for BERT's two objectives (Devlin et al. 2018, section 3.1).

    An example is a chunk of at least two sentences, split at a random sentence into `a` and `b`. For
    half of them `b` is replaced by sentences of another document, from a random one on until they are
    about as long as the true `b` (where that document is long enough): length hardly tells the label.
    Pairs longer than the row lose tokens from the longer segment, `a` at its front and `b` at its end,
    so that a true pair always meets.

    All of it is drawn anew in each epoch, by hashing (seed, epoch, chunk): the batch of a step needs no
    state, is the same on every machine, and can be computed without the batches before it.

    Args:
        corpus: A Corpus.
        tokenizer: The tokenizer that made its ids.
        max_length: Tokens T in a row, special tokens included.
        max_predictions: Most predictions P in a row; None for as many as `masking_rate` asks for in a
            full one, and 3 more where words stay whole, which may go beyond it. Fewer cap the rate,
            evenly over the row.
        masking_rate: Share of tokens to predict.
        masking: What is masked together, as in `mask_tokens`: "token", "whole_word", "span", "ngram".
        short_rate: Share of rows that are cut to a random shorter length, so that short inputs are no
            surprise later.
        seed: Any integer, of which the low 32 bits count; another one gives another order, other pairs
            and other masks.

    Raises:
        ValueError: When the settings contradict each other, or fewer than two documents have two
            sentences.
    """

    def __init__(
        self,
        corpus,
        tokenizer,
        max_length=128,
        max_predictions=None,
        masking_rate=0.15,
        masking="token",
        short_rate=0.1,
        seed=0,
    ):
        if max_length < SPECIAL_TOKENS_OF_A_PAIR + 2:
            raise ValueError(
                f"`max_length` must leave room for 2 tokens beside {SPECIAL_TOKENS_OF_A_PAIR} special "
                f"ones. Received: {max_length}."
            )
        for name, value in (("masking_rate", masking_rate), ("short_rate", short_rate)):
            if not 0 <= value <= 1:
                raise ValueError(f"`{name}` must lie in [0, 1]. Received: {value}.")
        check_masking(masking)
        room = max_length - SPECIAL_TOKENS_OF_A_PAIR
        if max_predictions is None:
            beyond = 0 if masking == "token" else WORD_ALLOWANCE
            max_predictions = min(max(1, math.ceil(masking_rate * room)) + beyond, room)
        if not 1 <= max_predictions <= max_length:
            raise ValueError(
                "`max_predictions` must be at least 1 and at most `max_length`. "
                f"Received: max_predictions={max_predictions}, max_length={max_length}."
            )
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.max_predictions = max_predictions
        self.masking_rate = masking_rate
        self.masking = masking
        self.short_rate = short_rate
        self.seed = seed
        chunks = find_chunks(corpus, room, min_sentences=2)
        usable = np.unique(chunks[:, 0])
        self.characters_per_token = corpus.characters / len(corpus.tokens)
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
        with tf.device("CPU"):
            self._tokens = tf.constant(corpus.tokens)
            self._sentences = tf.constant(corpus.sentence_offsets)
            self._documents = tf.constant(bounds)
            self._chunks = tf.constant(chunks)

    def __len__(self):
        """Examples in an epoch."""
        return self._chunks.shape[0]

    def training_batches(self, batch_size, start_step=0):
        """Endless shuffled batches, from that of `start_step` on: each epoch meets each chunk once."""
        positions = tf.data.Dataset.counter(start_step * batch_size).batch(batch_size)
        shaped = positions.map(lambda x: tf.ensure_shape(x, [batch_size]))
        return _in_background(shaped, self._shuffled)

    def evaluation_batches(self, batch_size, examples=None):
        """A fixed number of examples, always the same; the last batch may be smaller.

        Args:
            batch_size: Rows in a batch.
            examples: None for each chunk once. Fewer are spread evenly over the corpus; more go over it
                again, with other pairs and masks.
        """
        count = examples or len(self)
        order = np.arange(count, dtype="int64")
        epochs, chunks = np.divmod(
            order if count > len(self) else order * len(self) // count, len(self)
        )
        batches = tf.data.Dataset.from_tensor_slices((epochs, chunks)).batch(batch_size)
        return _in_background(batches, self.examples)

    def fingerprint(self):
        """A number that changes with the text, the vocabulary and the chunks."""
        crc = zlib.crc32(str(self.tokenizer.vocabulary).encode())
        for array in (self._tokens, self._sentences, self._documents, self._chunks):
            crc = zlib.crc32(array.numpy().tobytes(), crc)
        return crc

    def word_counts(self):
        """How often each entry of the vocabulary occurs in the corpus, (V,)."""
        return np.bincount(self._tokens.numpy(), minlength=self.tokenizer.vocabulary_size)

    def fill_rate(self, examples=512):
        """Share of slots that hold real tokens, over the first examples of the training order."""
        x, _, _ = self._shuffled(tf.range(examples, dtype=tf.int64))
        return float(tf.reduce_mean(tf.cast(x["padding_mask"], tf.float32)))

    def _shuffled(self, positions):
        epochs, places = positions // len(self), positions % len(self)
        # A keyed permutation computed place by place; the public wrapper takes one seed for all. Mixed
        # first: the op looks at the low bits of its keys alone.
        keys = tf.stack([fold(self.seed, epochs, part) for part in range(3)], axis=1)
        chunks = tf.raw_ops.RandomIndexShuffle(
            index=places,
            seed=tf.cast(keys, tf.int64),
            max_index=np.int64(len(self) - 1),
            rounds=8,
        )
        return self.examples(epochs, chunks)

    def examples(self, epochs, chunks):
        """The examples of some chunks in some epochs: a graph function.

        Shapes (B rows, T = max_length, P = max_predictions):
            epochs, chunks  (B,)  int64
            returns         (x, y, sample_weight) for a BertPretrainer
        """
        keys = fold(self.seed, epochs, chunks)  # (B,)
        a_starts, a_ends, b_starts, b_ends, labels = self._pairs(keys, chunks)
        room = self.max_length - SPECIAL_TOKENS_OF_A_PAIR
        short = uniform(keys, _SHORT) < self.short_rate
        limit = tf.where(short, 2 + below(room - 1, keys, _LENGTH), room)
        a_lengths, b_lengths = longest_first(
            a_ends - a_starts, b_ends - b_starts, tf.cast(limit, tf.int64)
        )
        x = frame(
            {"token_ids": self._tokens},
            (a_ends - a_lengths, a_lengths),
            (b_starts, b_lengths),
            self.max_length,
            self.tokenizer,
        )
        is_special = tf.gather(tf.constant(self.tokenizer.is_special), x["token_ids"])
        is_candidate = ~is_special & (x["padding_mask"] > 0)
        masked = mask_tokens(
            x["token_ids"],
            word_ids(x["token_ids"], is_candidate, self.tokenizer),
            fold(keys, _MASKING),
            self.tokenizer,
            self.max_predictions,
            self.masking_rate,
            self.masking,
        )
        y = {"masked_lm": masked.pop("mask_ids"), "sentence": labels}
        weights = {
            "masked_lm": masked.pop("mask_weights"),
            "sentence": tf.ones_like(labels, tf.float32),
        }
        return {**x, **masked}, y, weights

    def _pairs(self, keys, chunks):
        """Token ranges of `a` and `b`, before they are cut to fit, and the labels."""
        document, first, last = tf.unstack(tf.gather(self._chunks, chunks), axis=1)
        middle = first + 1 + _below(last - first - 1, keys, _SPLIT)
        a_starts, a_ends, b_ends = (tf.gather(self._sentences, s) for s in (first, middle, last))

        other = _below(self._documents.shape[0] - 1, keys, _DOCUMENT)
        other += tf.cast(other >= document, tf.int64)
        begin, end = tf.unstack(tf.gather(self._documents, other), axis=1)
        # of the sentences with enough text behind them, where the document has such
        wanted = b_ends - a_ends
        last_start = tf.gather(self._sentences, end) - wanted
        late = tf.searchsorted(self._sentences, last_start, side="right", out_type=tf.int64)
        sentence = begin + _below(tf.maximum(late - begin, 1), keys, _SENTENCE)
        r_starts = tf.gather(self._sentences, sentence)
        # to the sentence end that is nearest to the wanted length: always the next would be too long
        reach = r_starts + wanted
        behind = tf.searchsorted(self._sentences, reach, out_type=tf.int64)
        next_end = tf.gather(self._sentences, tf.minimum(behind, end))
        last_end = tf.gather(self._sentences, tf.maximum(behind - 1, sentence + 1))
        r_ends = tf.where(reach - last_end < next_end - reach, tf.minimum(last_end, next_end), next_end)

        is_random = uniform(keys, _LABEL) < 0.5
        b_starts = tf.where(is_random, r_starts, a_ends)
        b_ends = tf.where(is_random, r_ends, b_ends)
        return a_starts, a_ends, b_starts, b_ends, tf.cast(is_random, tf.int32)


def _in_background(dataset, function):
    """Maps in other threads, some batches ahead.

    Without tf.data's autotuning: its thread sleeps twice as long each time, and whoever closes the
    iterator waits until it wakes, which holds up the end of `fit` by as much as half of its time.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.map(function, tf.data.AUTOTUNE).prefetch(4).with_options(options)


def _below(limit, *keys):
    return tf.cast(below(limit, *keys), tf.int64)
