"""Pretraining batches of a corpus in memory, as a pure function of (seed, step)."""

import zlib

import numpy as np
import tensorflow as tf

from keras_bert.data.batches import (
    describe_examples,
    evaluation_positions,
    in_background,
    masked_batch,
    permuted,
    resolve_predictions,
    training_positions,
    weigh_rows,
)
from keras_bert.data.objectives import make_objective
from keras_bert.hashing import fold

_MASKING = 0  # the stream of an example's key that masks are drawn from; objectives have the others


class PretrainingData:
    """Examples of a corpus for a masked LM and, with pairs, for a sentence objective beside it.

    What an example is depends on `objective`:

        next_sentence   BERT (Devlin et al. 2018): `[CLS] a [SEP] b [SEP]`; b follows a, or comes from
                        another document
        sentence_order  ALBERT (Lan et al. 2019): a and b follow each other, or are swapped
        full_sentences  RoBERTa (Liu et al. 2019): `<s> sentences </s>`, across documents; no label

    All else is drawn anew in each epoch, by hashing (seed, epoch, example): the batch of a step needs
    no state, is the same on every machine, and can be computed without the batches before it. Replicas
    share it: together they have the same rows, however many they are.

    Args:
        corpus: A Corpus.
        tokenizer: The tokenizer that made its ids; a row has its form.
        objective: "next_sentence", "sentence_order" or "full_sentences".
        max_length: Tokens T in a row, special tokens included.
        max_predictions: Most predictions P in a row; None for as many as `masking_rate` asks for in a
            full one, and 3 more where words stay whole, which may go beyond it. Fewer cap the rate,
            evenly over the row.
        masking_rate: Share of tokens to predict.
        masking: What is masked together, as in `mask_tokens`: "token", "whole_word", "span", "ngram".
        short_rate: Share of rows that are cut to a random shorter length, so that short inputs are no
            surprise later. None for 0.1 with pairs, as BERT and ALBERT, and 0 with full sentences, as
            RoBERTa.
        seed: Any integer, of which the low 32 bits count; another one gives another order, other pairs
            and other masks.
        type_vocab_size: Of the encoder. Where it has 1 type, or none, segment ids are all 0.

    Raises:
        ValueError: When the settings contradict each other, or the corpus is too small for the
            objective.
    """

    def __init__(
        self,
        corpus,
        tokenizer,
        objective="next_sentence",
        max_length=128,
        max_predictions=None,
        masking_rate=0.15,
        masking="token",
        short_rate=None,
        seed=0,
        type_vocab_size=2,
    ):
        self.objective = make_objective(objective, corpus, tokenizer, max_length, short_rate)
        self.max_predictions = resolve_predictions(
            max_predictions, masking_rate, masking, max_length, self.objective.special_tokens
        )
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.masking_rate = masking_rate
        self.masking = masking
        self.seed = seed
        self.type_vocab_size = type_vocab_size
        self.characters_per_token = corpus.characters / len(corpus.tokens)
        self._word_counts = np.bincount(corpus.tokens, minlength=tokenizer.vocabulary_size)

    def __len__(self):
        """Examples in an epoch."""
        return len(self.objective)

    @property
    def documents_left_out(self):
        """How many documents are too short for an example."""
        return self.objective.documents_left_out

    def training_batches(self, batch_size, start_step=0, context=None):
        """Endless shuffled batches, from that of `start_step` on: each epoch meets each example once.

        Args:
            batch_size: Rows in the global batch.
            start_step: Step of the first batch.
            context: The tf.distribute.InputContext of the input pipeline, which then yields batches for
                its replicas, one after the other; None for a single replica.
        """
        return in_background(
            training_positions(batch_size, start_step, context),
            lambda positions: self.examples(*self._shuffled(positions)),
        )

    def evaluation_batches(self, batch_size, examples=None, context=None):
        """A fixed number of examples, always the same; rows that fill up the last batch weigh 0.

        Args:
            batch_size: Rows in the global batch.
            examples: None for each one once. Fewer are spread evenly over the corpus; more go over it
                again, with other pairs and masks.
            context: As in `training_batches`; each input pipeline has the same number of batches.
        """
        count = len(self) if examples is None else examples

        def numbered(numbers, is_real):
            if count <= len(self):
                numbers = numbers * len(self) // count
            return weigh_rows(self.examples(numbers // len(self), numbers % len(self)), is_real)

        return in_background(evaluation_positions(batch_size, count, context), numbered)

    def describe(self, step, batch_size):
        """Names the examples in the global batch of a step, as `examples` takes them."""
        positions = tf.range(step * batch_size, (step + 1) * batch_size, dtype=tf.int64)
        return describe_examples(*(x.numpy() for x in self._shuffled(positions)))

    def fingerprint(self):
        """A number that changes with the text, the vocabulary and the chunks."""
        crc = zlib.crc32(str(self.tokenizer.vocabulary).encode())
        for array in self.objective.arrays:
            crc = zlib.crc32(array.numpy().tobytes(), crc)
        return crc

    def word_counts(self):
        """How often each entry of the vocabulary occurs in the corpus, (V,)."""
        return self._word_counts

    def fill_rate(self, examples=512):
        """Share of slots that hold real tokens, over the first examples of the training order."""
        x, _, _ = self.examples(*self._shuffled(tf.range(examples, dtype=tf.int64)))
        return float(tf.reduce_mean(tf.cast(x["padding_mask"], tf.float32)))

    def _shuffled(self, positions):
        """The epoch and the example number at each place of the endless stream."""
        epochs, places = positions // len(self), positions % len(self)
        return epochs, permuted(places, len(self), self.seed, epochs)

    def examples(self, epochs, numbers):
        """Some examples as they are in some epochs: a graph function.

        Shapes (B rows, T = max_length, P = max_predictions):
            epochs, numbers  (B,)  int64
            returns          (x, y, sample_weight) for a BertPretrainer
        """
        keys = fold(self.seed, epochs, numbers)  # (B,)
        a, b, labels = self.objective.segments(keys, numbers)
        return masked_batch(
            self.objective.tokens,
            a,
            b,
            labels,
            fold(keys, _MASKING),
            tokenizer=self.tokenizer,
            max_length=self.max_length,
            max_predictions=self.max_predictions,
            masking_rate=self.masking_rate,
            masking=self.masking,
            type_vocab_size=self.type_vocab_size,
        )
