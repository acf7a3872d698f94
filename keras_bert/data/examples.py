"""Tokenized examples in memory, and their batches: rows of similar length, in an order drawn anew."""

import numpy as np
import tensorflow as tf

from keras_bert.data.batches import (
    describe_examples,
    evaluation_positions,
    in_background,
    permuted,
    training_positions,
)

_SORTED_BATCHES = 50  # how many batches are sorted by length together


class Examples:
    """Examples for a task model, each with one row of tokens or, for a choice, several.

    In training, an epoch meets each example once: a random permutation is cut into stretches of 50
    batches, each stretch sorted by length and cut into batches, and all batches are shuffled. So a
    batch has little padding, and yet another company for each example in each epoch. (Batches of one
    length in order of arrival cost accuracy.) The order is a function of (seed, epoch).

    Shapes (N examples, R rows of an example):
        inputs  a dict of (N * R, T) ragged int32: token_ids, and segment_ids where the encoder has them
        labels  (N, ...) or (N, T) ragged, as the model's labels, or a dict of such; None where there
                are none

    Args:
        pad_token_id: Of the tokenizer.
        rows: R; the batch's inputs are (B, T) where it is None, else (B, R, T).
        length: T of every batch; None for the longest row of each.
        seed: Of the order.
    """

    def __init__(self, inputs, labels, pad_token_id, rows=None, length=None, seed=0):
        self.inputs = inputs
        self.labels = labels
        self.pad_token_id = pad_token_id
        self.rows = rows
        self.length = length
        self.seed = seed
        lengths = inputs["token_ids"].row_lengths().numpy()
        self.lengths = lengths.reshape(-1, rows or 1).max(-1) if len(lengths) else lengths
        if not len(self.lengths):
            raise ValueError("There must be at least one example. Received: none.")

    def __len__(self):
        return len(self.lengths)

    def steps_per_epoch(self, batch_size):
        """Batches that meet each example once; the last may lack some rows."""
        return -(-len(self) // batch_size)

    def order(self, epoch, batch_size):
        """The examples of each batch of an epoch, (steps, B) int64; -1 where the last lacks one."""
        count, steps = len(self), self.steps_per_epoch(batch_size)
        shuffled = permuted(tf.range(count, dtype=tf.int64), count, self.seed, epoch, 0).numpy()
        stretch = _SORTED_BATCHES * batch_size
        parts = [shuffled[i : i + stretch] for i in range(0, count, stretch)]
        # stable: of equal length, the order drawn
        parts = [part[np.argsort(self.lengths[part], kind="stable")] for part in parts]
        flat = np.full(steps * batch_size, -1, "int64")
        flat[:count] = np.concatenate(parts)
        batches = permuted(tf.range(steps, dtype=tf.int64), steps, self.seed, epoch, 1).numpy()
        return flat.reshape(steps, batch_size)[batches]

    def training_batches(self, batch_size, epochs, start_step=0, context=None):
        """Endless batches (x, y, sample_weight) from that of `start_step` on; see the class.

        Args:
            batch_size: Examples in the global batch.
            epochs: After so many, the orders are those of the first again.
            start_step, context: As in `training_positions`.
        """
        table = np.concatenate([self.order(epoch, batch_size) for epoch in range(epochs)])
        table = tf.constant(table.reshape(-1))

        def batch(places):
            return self.batch(tf.gather(table, places % tf.size(table, tf.int64)))

        return in_background(training_positions(batch_size, start_step, context), batch)

    def evaluation_batches(self, batch_size, context=None):
        """All examples once, those of similar length together; rows that fill up weigh 0."""
        order = tf.constant(self.by_length())

        def batch(numbers, is_real):
            return self.batch(tf.where(is_real > 0, tf.gather(order, numbers), -1))

        return in_background(evaluation_positions(batch_size, len(self), context), batch)

    def by_length(self):
        """Numbers of the examples, the longest first, so that memory is known at once."""
        return np.argsort(-self.lengths, kind="stable")

    def batch(self, numbers):
        """(x, y, sample_weight) of some examples; -1 stands for none, and weighs 0; in the graph.

        Shapes (B examples):
            numbers  (B,)  int64
        """
        is_real = tf.cast(numbers >= 0, tf.float32)
        numbers = tf.maximum(numbers, 0)
        x = self.batch_inputs(numbers)
        if self.labels is None:
            return x, None, None
        y = tf.nest.map_structure(
            lambda values: self._labels(values, numbers), self.labels, expand_composites=False
        )
        return x, y, tf.nest.map_structure(lambda _: is_real, y)

    def batch_inputs(self, numbers):
        """token_ids, padding_mask and segment_ids of some examples, in the graph."""
        count = self.rows or 1
        rows = tf.reshape(numbers[:, None] * count + tf.range(count, dtype=tf.int64), [-1])
        x = {}
        for name, values in self.inputs.items():
            padding = self.pad_token_id if name == "token_ids" else 0
            x[name] = tf.gather(values, rows).to_tensor(padding, shape=[None, self.length])
        lengths = tf.gather(self.inputs["token_ids"].row_lengths(), rows)
        width = tf.shape(x["token_ids"])[1]
        x["padding_mask"] = tf.sequence_mask(lengths, width, tf.int32)
        if self.length is not None:
            x["padding_mask"] = tf.ensure_shape(x["padding_mask"], [None, self.length])
        if self.rows is None:
            return x
        return {name: tf.reshape(each, [-1, count, width]) for name, each in x.items()}

    def describe(self, step, batch_size):
        """Names the examples in the batch of a step."""
        steps = self.steps_per_epoch(batch_size)
        numbers = self.order(step // steps, batch_size)[step % steps]
        numbers = numbers[numbers >= 0]
        return describe_examples(np.full(len(numbers), step // steps), numbers)

    def _labels(self, values, numbers):
        chosen = tf.gather(values, numbers)
        if isinstance(chosen, tf.RaggedTensor):
            return chosen.to_tensor(-1, shape=[None, self.length])
        return chosen
