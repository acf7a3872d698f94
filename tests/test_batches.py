"""keras_bert.data.batches: who gets which rows, against plain loops; what fills up; what is refused."""

import numpy as np
import pytest
import tensorflow as tf
from counting_corpus import CLS, MASK, PAD, SEP, corpus_of, original_tokens, tokenizer_of
from hypothesis import given, settings
from hypothesis import strategies as st

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

CORPUS = corpus_of([[5, 4, 6]])
# (input pipelines, replicas of each, rows of each replica)
SHARINGS = st.tuples(*[st.integers(1, 3)] * 3)


def contexts(pipelines, replicas):
    return [tf.distribute.InputContext(pipelines, w, replicas) for w in range(pipelines)]


def fed_to_replicas(datasets, local, steps=None):
    """What each step's replicas get, in their order: [[(b,) of replica 0, of replica 1, ...], ...]."""
    streams = [list(d if steps is None else d.take(steps * local)) for d in datasets]
    count = len(streams[0]) // local
    assert {len(stream) for stream in streams} == {count * local}
    return [
        [element for stream in streams for element in stream[step * local : (step + 1) * local]]
        for step in range(count)
    ]


@settings(max_examples=15, deadline=None)
@given(SHARINGS, st.integers(0, 10**9))
def test_replicas_take_consecutive_rows_of_each_global_batch(sharing, start):
    pipelines, local, rows = sharing
    replicas = pipelines * local
    batch_size = rows * replicas
    fed = fed_to_replicas(
        [training_positions(batch_size, start, c) for c in contexts(pipelines, replicas)], local, 3
    )
    for step, of_replicas in enumerate(fed, start):
        for replica, positions in enumerate(of_replicas):
            first = step * batch_size + replica * rows
            np.testing.assert_array_equal(positions, range(first, first + rows))


@settings(max_examples=15, deadline=None)
@given(SHARINGS, st.integers(1, 40))
def test_evaluation_has_every_number_once_and_fills_up_alike(sharing, examples):
    pipelines, local, rows = sharing
    replicas = pipelines * local
    batch_size = rows * replicas
    datasets = [evaluation_positions(batch_size, examples, c) for c in contexts(pipelines, replicas)]
    steps = -(-examples // batch_size)
    assert {int(d.cardinality()) for d in datasets} == {steps * local}
    numbers, real = [], []
    for of_replicas in fed_to_replicas(datasets, local):
        for some, are_real in of_replicas:
            assert some.shape == are_real.shape == [rows]
            numbers += some.numpy().tolist()
            real += are_real.numpy().tolist()
    assert numbers[:examples] == list(range(examples))
    assert max(numbers) < examples
    assert real == [1.0] * examples + [0.0] * (steps * batch_size - examples)


def test_shapes_are_static():
    context = tf.distribute.InputContext(2, 1, 4)
    assert training_positions(8, 5, context).element_spec.shape == [2]
    assert int(training_positions(8, 5, context).cardinality()) == tf.data.INFINITE_CARDINALITY
    for spec in evaluation_positions(8, 3, context).element_spec:
        assert spec.shape == [2]


@pytest.mark.parametrize(
    ("batch_size", "context", "words"),
    [
        (6, (1, 0, 4), "multiple of the number of replicas.*batch_size=6, 4 replicas"),
        (2, (2, 1, 4), "batch_size=2, 4 replicas"),
        (0, (1, 0, 1), "batch_size=0, 1 replicas"),
        (6, (2, 0, 3), "same number of replicas.*3 replicas, 2 input pipelines"),
    ],
)
def test_uneven_shares_are_refused_before_the_start(batch_size, context, words):
    context = tf.distribute.InputContext(*context)
    for positions in (training_positions, evaluation_positions):
        with pytest.raises(ValueError, match=words):
            positions(batch_size, 3, context)


def test_no_example_is_refused():
    with pytest.raises(ValueError, match=r"`examples` must be at least 1. Received: 0"):
        evaluation_positions(4, 0)


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_permutations_are_whole_and_differ_by_key(count):
    seen = {tuple(permuted(tf.range(count), count, 3, key).numpy()) for key in range(20)}
    assert all(sorted(order) == list(range(count)) for order in seen)
    assert len(seen) >= min(20, count)
    # a key for each place, as where a batch spans two epochs
    keys = tf.constant([5, 9] * 3)
    mixed = permuted(tf.zeros(6, tf.int64), count, 3, keys).numpy()
    alone = [int(permuted(tf.constant([0]), count, 3, key)[0]) for key in (5, 9)]
    assert mixed.tolist() == alone * 3


def test_examples_are_described_by_epoch():
    epochs, examples = np.array([4, 4, 5]), np.array([17, 2, 9])
    assert describe_examples(epochs, examples) == "epoch 4: examples 17 2, epoch 5: examples 9"


def batch_of(a, b, labels=None, separators=1, **options):
    tokenizer = tokenizer_of(CORPUS, separators)
    tokens = tf.constant(CORPUS.tokens)
    a, b = (s if s is None else tuple(tf.constant(x, tf.int64) for x in s) for s in (a, b))
    keys = tf.range(len(a[0]))
    options = {"max_length": 12, "max_predictions": 3, **options}
    return masked_batch(tokens, a, b, labels, keys, tokenizer=tokenizer, **options)


def test_pairs_in_the_form_of_the_tokenizer():
    labels = tf.constant([1])
    for separators, expected in (
        (1, [CLS, 5, 6, 7, SEP, 14, 15, SEP, PAD, PAD, PAD, PAD]),
        (2, [CLS, 5, 6, 7, SEP, SEP, 14, 15, SEP, PAD, PAD, PAD]),
    ):
        for types in (0, 1, 2):
            batch = batch_of(([0], [3]), ([9], [2]), labels, separators, type_vocab_size=types)
            x, y, weights = ({name: v.numpy() for name, v in part.items()} for part in batch)
            assert original_tokens(x, y, weights)[0].tolist() == expected
            assert x["padding_mask"][0].tolist() == [int(t != PAD) for t in expected]
            in_second = (np.arange(12) > 3 + separators) & (separators == 1)  # RoBERTa's are all 0
            assert (
                x["segment_ids"][0] == (in_second & (x["padding_mask"][0] > 0)) * (types == 2)
            ).all()
            assert y["sentence"].tolist() == [1]
            assert weights["sentence"].tolist() == [1.0]


def test_single_segments_have_no_label():
    x, y, weights = batch_of(([0, 3], [10, 0]), None)
    assert list(y) == list(weights) == ["masked_lm"]
    assert x["token_ids"][1].numpy().tolist() == [CLS, SEP] + [PAD] * 10
    assert weights["masked_lm"].numpy().sum(1).tolist() == [2, 0]  # 15 % of 10 tokens, none of none
    assert not x["segment_ids"].numpy().any()


def test_special_tokens_in_a_segment_are_never_predicted():
    """The separators between documents, say."""
    tokenizer = tokenizer_of(CORPUS)
    tokens = tf.constant([5, 6, SEP, 7, 8, SEP, 9, 10])
    rows = 200
    starts, lengths = tf.zeros(rows, tf.int64), tf.fill([rows], np.int64(8))
    x, y, weights = masked_batch(
        tokens,
        (starts, lengths),
        None,
        None,
        tf.range(rows),
        tokenizer=tokenizer,
        max_length=10,
        max_predictions=8,
        masking_rate=1.0,
    )
    assert (weights["masked_lm"].numpy().sum(1) == 6).all()
    assert (np.sort(y["masked_lm"].numpy(), axis=1) == [0, 0, 5, 6, 7, 8, 9, 10]).all()
    for slot in (0, 3, 6, 9):
        assert set(x["token_ids"].numpy()[:, slot]) == {CLS if slot == 0 else SEP}
    assert (x["token_ids"].numpy() == MASK).sum() > rows


def test_rows_are_weighed_in_every_output():
    batch = batch_of(([0, 0], [5, 5]), ([9, 9], [2, 2]), tf.constant([0, 1]))
    x, y, weights = weigh_rows(batch, tf.constant([0.0, 1.0]))
    assert x is batch[0]
    assert y is batch[1]
    for name, values in batch[2].items():
        np.testing.assert_array_equal(weights[name][0], 0 * values[0])
        np.testing.assert_array_equal(weights[name][1], values[1])
    assert batch[2]["masked_lm"].numpy()[0].any()


@pytest.mark.parametrize(
    ("arguments", "predictions"),
    [
        ((None, 0.15, "token", 128, 3), 19),
        ((None, 0.15, "whole_word", 128, 3), 22),
        ((None, 0.0, "token", 128, 3), 1),
        ((None, 1.0, "span", 12, 3), 9),
        ((7, 0.15, "token", 128, 3), 7),
    ],
)
def test_predictions(arguments, predictions):
    assert resolve_predictions(*arguments) == predictions


def test_in_background_keeps_order_and_size():
    dataset = in_background(tf.data.Dataset.range(50), lambda x: x * x)
    assert [int(x) for x in dataset] == [x * x for x in range(50)]
    assert int(dataset.cardinality()) == 50
