"""Several short examples in a row, so that little is computed on padding.

Packing has two halves. `plan_packing` decides once, from the lengths alone, which examples share a row.
`pack` builds rows from the tokens, in the graph, a batch of rows at a time. For training:

    fields = combine(ids, tokenizer=tokenizer, max_length=128, padding="do_not_pad")
    plan = plan_packing(fields["token_ids"].row_lengths(), max_length=128, max_examples=16)
    rows = tf.data.Dataset.from_tensor_slices(plan.examples).shuffle(len(plan)).batch(32)
    batches = rows.map(lambda e: (pack(fields, e, 128, tokenizer), *pack_labels(labels, e)))

and what a model says about rows goes back to the order of the examples with `plan.unpack` and
`plan.unpack_tokens`. The encoder keeps examples apart by `example_ids`, so company changes no result.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_bert.text.pairing import OUTSIDE


@dataclasses.dataclass(frozen=True, eq=False)
class PackingPlan:
    """Which examples share a row.

    Shapes (N examples, R rows, E most examples in a row):
        examples  (R, E)  int32  numbers of the examples in a row, from left to right; then -1
        lengths   (N,)    int32  tokens of each example
    """

    examples: np.ndarray
    lengths: np.ndarray
    max_length: int

    def __len__(self):
        """Rows R."""
        return len(self.examples)

    @property
    def fill_rate(self):
        """Share of slots that hold tokens."""
        return float(self.lengths.sum() / (len(self) * self.max_length))

    def unpack(self, values):
        """Puts one value for each example back into the order of the examples.

        Shapes:
            values   (R, E, ...)  as a head computes them, from all rows in their order
            returns  (N, ...)
        """
        values, present = np.asarray(values), self.examples >= 0
        self._check_shape(values, present.shape)
        in_order = np.empty((len(self.lengths), *values.shape[2:]), values.dtype)
        in_order[self.examples[present]] = values[present]
        return in_order

    def unpack_tokens(self, values):
        """Puts one value for each token back to its example.

        Shapes:
            values   (R, T, ...)  for all rows in their order
            returns  (N, tokens, ...) ragged
        """
        values, present = np.asarray(values), self.examples >= 0
        self._check_shape(values, (len(self), self.max_length))
        totals = np.where(present, self.lengths[self.examples], 0).sum(1, keepdims=True)
        tokens = values[np.arange(self.max_length) < totals]
        packed = self.examples[present]  # the examples, in the order of their tokens
        ragged = tf.RaggedTensor.from_row_lengths(tokens, self.lengths[packed])
        return tf.gather(ragged, np.argsort(packed))

    def _check_shape(self, values, expected):
        if values.shape[:2] != expected:
            raise ValueError(
                f"`values` must begin with the shape {expected}: one for every place in every row. "
                f"Received: {values.shape}."
            )


def plan_packing(lengths, max_length, max_examples=None):
    """Decides which examples share a row, with nearly as few rows as there can be.

    Best fit decreasing: from the longest example to the shortest, each goes into the row that it fills
    best, an empty one if it must. Examples of equal length are placed together, and so are rows with
    equal room: the work depends on `max_length`, hardly on the number of examples. This is the
    longest-pack-first histogram packing of Krell et al., "Efficient Sequence Packing without
    Cross-contamination" (2021), with which example goes where on top.

    Where many examples are short, the rows are rarely 1 % more than the tokens need. A `max_examples`
    that is near the average costs more (1 to 5 % at twice the average): long examples fill their rows
    with few, and the short ones that remain run out of places before they run out of room.

    The same lengths give the same plan. Examples of one length are placed in their order, so permute
    the examples for other company.

    >>> plan = plan_packing([5, 3, 4, 2], max_length=8)
    >>> plan.examples.tolist()
    [[0, 1], [2, 3]]
    >>> plan.fill_rate
    0.875

    Args:
        lengths: Tokens of each example, special ones included: (N,) int.
        max_length: Tokens T in a row.
        max_examples: Most examples in a row, and the width E of the plan; None for as many as fit.

    Returns:
        A PackingPlan.

    Raises:
        ValueError: When an example is empty or longer than a row, or there is none.
    """
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or not lengths.size or lengths.dtype.kind not in "iu":
        raise ValueError(
            "`lengths` must be a vector of at least one integer. "
            f"Received: {lengths.dtype} of shape {lengths.shape}."
        )
    if lengths.min() < 1 or lengths.max() > max_length:
        raise ValueError(
            f"Every length must lie between 1 and `max_length` = {max_length}. "
            f"Received: lengths from {lengths.min()} to {lengths.max()}."
        )
    if max_examples is not None and max_examples < 1:
        raise ValueError(f"`max_examples` must be at least 1. Received: {max_examples}.")
    count, most = len(lengths), min(max_examples or max_length, max_length)
    row, place = np.empty(count, "int32"), np.empty(count, "int32")
    # rows that are not full, by their free tokens and free places; more empty ones than are needed
    open_rows = {(max_length, most): np.arange(count, dtype="int32")}
    by_length = np.argsort(-lengths.astype("int64"), kind="stable")
    for waiting in np.split(by_length, np.flatnonzero(np.diff(lengths[by_length])) + 1):
        length = int(lengths[waiting[0]])
        # a row takes all it can before the next: what is left of its room then fits better still
        for room, places in sorted(key for key in open_rows if key[0] >= length):
            each = min(room // length, places)
            rows = open_rows.pop((room, places))
            needed = -(-len(waiting) // each)
            if needed < len(rows):
                open_rows[room, places] = rows[needed:]
            rows = rows[:needed]
            placed, waiting = np.split(waiting, [len(rows) * each])
            row[placed] = np.repeat(rows, each)[: len(placed)]
            place[placed] = most - places + np.arange(len(placed)) % each
            full, rest = divmod(len(placed), each)
            for changed, taken in ((rows[:full], each), (rows[full:], rest)):
                key = (room - taken * length, places - taken)
                if len(changed) and min(key) > 0:
                    open_rows[key] = np.append(open_rows.get(key, changed[:0]), changed)
            if not len(waiting):
                break
    examples = np.full((row.max() + 1, max_examples or place.max() + 1), -1, "int32")
    examples[row, place] = np.arange(count)
    return PackingPlan(examples, lengths.astype("int32"), max_length)


def pack(fields, examples, max_length, tokenizer):
    """Builds rows of several examples each: a graph function.

    Four examples of 5, 3, 4 and 2 tokens in two rows, examples = [[0, 1], [2, 3]], max_length = 8:

        token_ids     CLS 21 22 23 SEP CLS 31 SEP    CLS 41 42 SEP CLS SEP PAD PAD
        example_ids    1   1  1  1  1   2   2  2      1   1  1  1   2   2   0   0
        position_ids   0   1  2  3  4   0   1  2      0   1  2  3   0   1   0   0
        first_slots    0   5                          0   4

    Shapes (N examples, R rows, E most examples in a row, T = max_length):
        fields    a dict of (N, tokens) ragged int32, all of the same lengths: token_ids and others of
                  the batch vocabulary, as `combine(..., padding="do_not_pad")` gives them
        examples  (R, E) int: rows of a plan
        returns   a dict of (R, T) int32: `fields`, padding_mask, example_ids (0 = padding, 1.. = which
                  example of the row), position_ids (from 0 in each example); and first_slots (R, E),
                  where each example begins, 0 where a row has fewer

    Args:
        tokenizer: For the id of `[PAD]`. Of other fields, padding is as in `combine`, or 0.

    Raises:
        tf.errors.InvalidArgumentError: When the examples of a row have more than `max_length` tokens.
    """
    examples = tf.convert_to_tensor(examples)
    shape = (examples.shape[0], max_length)
    members = tf.RaggedTensor.from_tensor(examples, padding=-1)  # (R, examples)
    picked = {name: tf.gather(x, members) for name, x in fields.items()}  # (R, examples, tokens)
    tokens = picked["token_ids"]
    lengths = tokens.row_lengths(axis=2).values  # of each example
    numbers = tf.ragged.range(1, tf.cast(members.row_lengths(), tf.int32) + 1).values
    picked["example_ids"] = tokens.with_flat_values(tf.repeat(numbers, lengths))
    picked["position_ids"] = tokens.with_flat_values(tf.ragged.range(tf.cast(lengths, tf.int32)).values)
    # the examples of a row lie one behind the other already: forget where they meet
    rows = {name: x.merge_dims(1, 2) for name, x in picked.items()}
    tf.debugging.assert_less_equal(
        rows["token_ids"].row_lengths(),
        tf.constant(max_length, tf.int64),
        f"The examples of a row must have at most `max_length` = {max_length} tokens together. Was the "
        "plan made for these lengths?",
    )
    outside = {**OUTSIDE, "token_ids": tokenizer.pad_token_id}
    rows = {name: x.to_tensor(outside.get(name, 0), shape=shape) for name, x in rows.items()}
    rows["padding_mask"] = tf.cast(rows["example_ids"] > 0, tf.int32)
    is_there = examples >= 0
    lengths = tf.cast(tokens.row_lengths(axis=2).to_tensor(shape=examples.shape), tf.int32)
    rows["first_slots"] = tf.where(is_there, tf.cumsum(lengths, axis=1, exclusive=True), 0)
    return rows


def pack_labels(labels, examples):
    """Labels and weights for the rows that `pack` builds: a graph function.

    Shapes (N examples, R rows, E most examples in a row):
        labels    (N, ...)
        examples  (R, E)  int: rows of a plan
        returns   labels (R, E, ...), 0 where a row has fewer examples, and weights (R, E) float32,
                  1.0 or there 0.0
    """
    present = tf.convert_to_tensor(examples) >= 0
    picked = tf.gather(labels, tf.maximum(examples, 0))
    deep = present[(..., *[None] * (picked.shape.rank - 2))]
    return tf.where(deep, picked, tf.zeros_like(picked)), tf.cast(present, tf.float32)
