"""What all pretraining data shares: which examples a batch holds, and how segments become a batch."""

import math

import numpy as np
import tensorflow as tf

from keras_bert.hashing import fold
from keras_bert.text.masking import check_masking, mask_tokens, word_ids
from keras_bert.text.pairing import frame

_WORD_ALLOWANCE = 3  # predictions beyond the goal, so that few words fall victim to `max_predictions`


def training_positions(batch_size, start_step=0, context=None):
    """The places of each batch's rows in the endless stream of examples, from `start_step` on.

    Row i of a step's global batch has place step * batch_size + i, however many replicas share that
    batch. Each replica takes consecutive rows, and an input pipeline yields what its replicas take,
    one after the other. With batches of 8, 4 replicas and 2 pipelines:

        pipeline 0  [0 1] [2 3]  [ 8  9] [10 11] ...
        pipeline 1  [4 5] [6 7]  [12 13] [14 15] ...

    Args:
        batch_size: Rows B in the global batch.
        start_step: Step of the first batch.
        context: The tf.distribute.InputContext of the input pipeline; None for a single replica.

    Returns:
        Infinite Dataset of (B / replicas,) int64.

    Raises:
        ValueError: When the replicas cannot share the batch evenly.
    """
    replicas, places = _slices(batch_size, context)
    return tf.data.Dataset.counter(start_step * replicas).map(places)


def evaluation_positions(batch_size, examples, context=None):
    """The numbers from 0 to `examples` - 1 in batches of one size, as many on each input pipeline.

    What the last batch lacks is filled up with numbers from 0 on, which are not real. With batches of 4
    and 6 examples:

        numbers  [0 1 2 3] [4 5 0 1]
        is_real  [1 1 1 1] [1 1 0 0]

    Args:
        batch_size: Rows in the global batch, shared among replicas as in training.
        examples: How many numbers, at least 1.
        context: The tf.distribute.InputContext of the input pipeline; None for a single replica.

    Returns:
        Dataset of known cardinality, of (numbers (b,) int64, is_real (b,) float32).

    Raises:
        ValueError: When the replicas cannot share the batch evenly, or there is no example.
    """
    if examples < 1:
        raise ValueError(f"`examples` must be at least 1. Received: {examples}.")
    replicas, places = _slices(batch_size, context)

    def numbers(element):
        place = places(element)
        return place % examples, tf.cast(place < examples, tf.float32)

    return tf.data.Dataset.range(-(-examples // batch_size) * replicas).map(numbers)


def _slices(batch_size, context):
    """Replicas of the pipeline, and the function from the number of an element to its rows' places."""
    pipelines, pipeline, replicas = 1, 0, 1
    if context is not None:
        pipelines, pipeline = context.num_input_pipelines, context.input_pipeline_id
        replicas = context.num_replicas_in_sync
    if replicas % pipelines:
        raise ValueError(
            "Each input pipeline must feed the same number of replicas. "
            f"Received: {replicas} replicas, {pipelines} input pipelines."
        )
    if batch_size < 1 or batch_size % replicas:
        raise ValueError(
            "`batch_size` must be a multiple of the number of replicas, which share each batch. "
            f"Received: batch_size={batch_size}, {replicas} replicas."
        )
    rows, local = batch_size // replicas, replicas // pipelines

    def places(element):
        replica = pipeline * local + element % local
        return element // local * batch_size + replica * rows + tf.range(rows, dtype=tf.int64)

    return local, places


def permuted(places, count, *keys):
    """What a random permutation of 0 .. `count` - 1, another one for other keys, has at some places.

    Each place is computed by itself, so that nothing is kept and a stream can start anywhere.

    Shapes (B places):
        places, keys  (B,) or ()  int, places in [0, count)
        returns       (B,)        int64
    """
    # The public wrapper takes one seed for all places. Mixed first: the op looks at the low bits of its
    # keys alone.
    seeds = tf.stack([fold(*keys, part) for part in range(3)], axis=-1)  # (3,) or (B, 3)
    seeds = tf.broadcast_to(seeds, [tf.size(places), 3])
    return tf.raw_ops.RandomIndexShuffle(
        index=tf.cast(places, tf.int64),
        seed=tf.cast(seeds, tf.int64),
        max_index=np.int64(count - 1),
        rounds=8,
    )


def describe_examples(epochs, examples):
    """Says which examples of which epochs these are: "epoch 0: examples 8 5, epoch 1: examples 3".

    Shapes (B examples):
        epochs, examples  (B,)  int arrays
    """
    return ", ".join(
        f"epoch {epoch}: examples {' '.join(map(str, examples[epochs == epoch]))}"
        for epoch in np.unique(epochs)
    )


def in_background(dataset, function):
    """Maps a graph function in other threads, some batches ahead.

    Without tf.data's autotuning: its thread sleeps twice as long each time, and whoever closes the
    iterator waits until it wakes, which holds up the end of `fit` by as much as half of its time. And
    without AutoGraph, which takes a second to find that there is no Python in need of conversion.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    function = tf.autograph.experimental.do_not_convert(function)
    return dataset.map(function, tf.data.AUTOTUNE).prefetch(4).with_options(options)


def resolve_predictions(max_predictions, masking_rate, masking, max_length, special_tokens):
    """Checks how tokens are to be masked, and says how many predictions P a row has at most.

    Args:
        max_predictions: None for as many as `masking_rate` asks for in a full row, and 3 more where
            words stay whole, which may go beyond it.
        masking_rate: Share of tokens to predict.
        masking: What is masked together, as in `mask_tokens`.
        max_length: Tokens T in a row.
        special_tokens: How many of them, at least, are special.
    """
    if not 0 <= masking_rate <= 1:
        raise ValueError(f"`masking_rate` must lie in [0, 1]. Received: {masking_rate}.")
    check_masking(masking)
    if max_predictions is None:
        room = max_length - special_tokens
        beyond = 0 if masking == "token" else _WORD_ALLOWANCE
        max_predictions = min(max(1, math.ceil(masking_rate * room)) + beyond, room)
    if not 1 <= max_predictions <= max_length:
        raise ValueError(
            "`max_predictions` must be at least 1 and at most `max_length`. "
            f"Received: max_predictions={max_predictions}, max_length={max_length}."
        )
    return max_predictions


def masked_batch(
    tokens,
    a,
    b,
    labels,
    keys,
    *,
    tokenizer,
    max_length,
    max_predictions,
    masking_rate=0.15,
    masking="token",
    type_vocab_size=2,
):
    """Cuts segments out of a flat array of tokens, frames them into rows and hides tokens of them.

    Special tokens among `tokens` (the separators between documents, unknown words) are not predicted.

    Shapes (B rows, N flat tokens, T = max_length, P = max_predictions):
        tokens   (N,)  int32, N at least 1
        a, b     each two of (B,) int32 or int64: where segments begin in `tokens`, and how many tokens
                 they have, which must fit into T with the special ones; b = None for single segments
        labels   (B,)  int32, 0: the segments are in order, 1: they are not; None: nobody asks
        keys     (B,)  uint32; the same key draws the same masks
        returns  (x, y, sample_weight) for a BertPretrainer:
                 x token_ids, padding_mask, segment_ids (B, T), mask_positions (B, P) int32;
                 y masked_lm (B, P) int32 and, where there are labels, sentence (B,) int32;
                 sample_weight the same names and shapes, float32

    Args:
        tokenizer: The tokenizer that made the tokens; the row has its form.
        masking_rate, masking: As in `mask_tokens`.
        type_vocab_size: Of the encoder; below 2, segment ids are all 0.
    """
    x = frame(
        {"token_ids": tokens}, a, b, max_length, tokenizer, tokenizer.pair_separators, type_vocab_size
    )
    is_special = tf.gather(tf.constant(tokenizer.is_special), x["token_ids"])
    is_candidate = ~is_special & (x["padding_mask"] > 0)
    masked = mask_tokens(
        x["token_ids"],
        word_ids(x["token_ids"], is_candidate, tokenizer),
        keys,
        tokenizer,
        max_predictions,
        masking_rate,
        masking,
    )
    y, weights = {"masked_lm": masked.pop("mask_ids")}, {"masked_lm": masked.pop("mask_weights")}
    if labels is not None:
        y["sentence"], weights["sentence"] = labels, tf.ones_like(labels, tf.float32)
    return {**x, **masked}, y, weights


def weigh_rows(batch, row_weights):
    """Multiplies all sample weights of each row by a number: 0 for rows that only fill up a batch.

    Shapes (B rows):
        batch        (x, y, sample_weight)
        row_weights  (B,)  float32
        returns      (x, y, sample_weight)
    """
    x, y, weights = batch

    def weigh(values):
        return values * tf.reshape(row_weights, [-1] + [1] * (values.shape.rank - 1))

    return x, y, {name: weigh(values) for name, values in weights.items()}
