"""Tokenized examples in memory, several in each row: static shapes with little padding."""

import numpy as np
import tensorflow as tf

from keras_bert.data.batches import (
    describe_examples,
    evaluation_positions,
    in_background,
    permuted,
    training_positions,
)
from keras_bert.text.packing import pack, pack_labels, plan_packing


class PackedExamples:
    """Examples for a task model that reads packed rows: one label for each, or for each token.

    In training, an epoch meets each example once: a random permutation is packed into rows, and all
    rows are shuffled. A batch has as many rows as hold `batch_size` examples on average, so that a
    rate that suits batches of examples suits these. The order is a function of (seed, epoch).

    Shapes (N examples):
        inputs  a dict of (N, T) ragged int32: token_ids, and segment_ids where the encoder has them
        labels  (N, ...), or (N, T) ragged, as the model's labels

    Args:
        tokenizer: That made the ids.
        length: T of every row; at least the longest example.
        seed: Of the order.
        replicas: That share a batch: its rows are a multiple of these.
    """

    def __init__(self, inputs, labels, tokenizer, length, seed=0, replicas=1):
        self.lengths = inputs["token_ids"].row_lengths().numpy()
        if isinstance(labels, dict) or labels.shape[0] != len(self.lengths):
            raise ValueError(
                "Packed rows must be of a task with one label for each text, or for each word. "
                "Received: labels of several texts together, or of several outputs."
            )
        self.fields = dict(inputs)
        self.labels = labels
        self.by_token = isinstance(labels, tf.RaggedTensor)
        if self.by_token:
            self.fields["labels"] = labels + 1  # padding, 0, is to be ignored, -1
        self.tokenizer = tokenizer
        self.length = length
        self.seed = seed
        self.replicas = replicas
        # the same lengths in another order make as many rows, of as many places
        self.plan = plan_packing(self.lengths, length)

    def __len__(self):
        return len(self.lengths)

    def rows_per_batch(self, batch_size):
        """Rows R of a batch: those that hold `batch_size` examples on average."""
        share = batch_size * len(self.plan) / len(self) / self.replicas
        return self.replicas * max(1, round(share))

    def steps_per_epoch(self, batch_size):
        """Batches that meet each example once; the last may lack some rows."""
        return -(-len(self.plan) // self.rows_per_batch(batch_size))

    def order(self, epoch, batch_size):
        """The examples of each row of each batch of an epoch, (steps, R, E) int64; -1 for none."""
        count, rows = len(self), self.rows_per_batch(batch_size)
        shuffled = permuted(tf.range(count, dtype=tf.int64), count, self.seed, epoch, 0).numpy()
        plan = plan_packing(self.lengths[shuffled], self.length).examples
        packed = np.where(plan >= 0, shuffled[plan], -1)
        places = permuted(tf.range(len(plan), dtype=tf.int64), len(plan), self.seed, epoch, 1).numpy()
        steps = self.steps_per_epoch(batch_size)
        table = np.full((steps * rows, plan.shape[1]), -1, "int64")
        table[: len(plan)] = packed[places]
        return table.reshape(steps, rows, -1)

    def training_batches(self, batch_size, epochs, start_step=0, context=None):
        """Endless batches (x, y, sample_weight) from that of `start_step` on; see the class.

        Args:
            batch_size: Examples in the global batch, on average.
            epochs: After so many, the orders are those of the first again.
            start_step, context: As in `training_positions`.
        """
        orders = [self.order(epoch, batch_size) for epoch in range(epochs)]
        table = tf.constant(np.concatenate(orders).reshape(-1, orders[0].shape[-1]))
        count, rows = len(table), self.rows_per_batch(batch_size)

        def batch(places):
            return self.batch(tf.gather(table, places % count))

        return in_background(training_positions(rows, start_step, context), batch)

    def evaluation_batches(self, batch_size, context=None):
        """All examples once; rows that fill up the last batch weigh 0."""
        table, rows = tf.constant(self.plan.examples, tf.int64), self.rows_per_batch(batch_size)

        def batch(numbers, is_real):
            return self.batch(tf.where(is_real[:, None] > 0, tf.gather(table, numbers), -1))

        return in_background(evaluation_positions(rows, len(table), context), batch)

    def batch(self, examples):
        """(x, y, sample_weight) of rows of examples, -1 for none; in the graph.

        Shapes (R rows, E examples of each):
            examples  (R, E)  int64
        """
        x = pack(self.fields, examples, self.length, self.tokenizer)
        if self.by_token:
            y = x.pop("labels") - 1
            return x, y, tf.ones_like(y, tf.float32)
        return x, *pack_labels(self.labels, examples)

    def describe(self, step, batch_size):
        """Names the examples in the batch of a step."""
        steps = self.steps_per_epoch(batch_size)
        numbers = self.order(step // steps, batch_size)[step % steps]
        numbers = numbers[numbers >= 0]
        return describe_examples(np.full(len(numbers), step // steps), numbers)
