"""keras_bert.layers.heads, losses and metrics: values against plain loops, refusals of shape."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.heads import MaskedLMHead, products
from keras_bert.losses import sparse_cross_entropy, weighted_mean
from keras_bert.metrics import sparse_accuracy

RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(2, 5, 4)).astype("float32")
TABLE = RNG.normal(size=(7, 4)).astype("float32")


def test_logits_match_a_plain_loop():
    head = MaskedLMHead(activation="tanh")
    logits = head(STATES, TABLE).numpy()
    for b, p in np.ndindex(2, 5):
        x = np.tanh(STATES[b, p] @ head.dense.kernel.numpy())
        x = (x - x.mean()) / x.std()
        np.testing.assert_allclose(logits[b, p], TABLE @ x, atol=1e-5)


def test_products_have_the_gradients_of_a_matrix_product():
    x, table, upstream = (tf.constant(RNG.normal(size=size)) for size in ((3, 4), (7, 4), (3, 7)))
    found = []
    for function in (products, lambda x, table: tf.matmul(x, table, transpose_b=True)):
        with tf.GradientTape() as tape:
            tape.watch([x, table])
            out = function(x, table)
        found.append([out, *tape.gradient(out, [x, table], upstream)])
    for got, expected in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_the_bias_starts_at_log_frequencies():
    head = MaskedLMHead()
    head.build(STATES.shape, TABLE.shape)
    head.start_from_counts([0, 9, 99, 0, 0, 0, 0])
    bias = head.bias.numpy()
    np.testing.assert_allclose(bias[1:3] - bias[0], np.log([10, 100]), rtol=1e-6)
    assert bias.mean() == pytest.approx(0, abs=1e-6)


def test_building_leaves_the_config_alone():
    head = MaskedLMHead(activation="relu", epsilon=1e-5)
    before = head.get_config()
    head(STATES, TABLE)
    assert MaskedLMHead.from_config(head.get_config()).get_config() == before


def test_elements_match_keras():
    labels = RNG.integers(0, 7, (2, 3))
    logits = RNG.normal(size=(2, 3, 7)).astype("float32")
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
    np.testing.assert_allclose(sparse_cross_entropy(labels, logits), losses(labels, logits), rtol=1e-5)
    hits = logits.argmax(-1) == labels
    np.testing.assert_array_equal(sparse_accuracy(labels, logits), hits)


def test_ties_are_shared():
    logits = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    assert sparse_accuracy(np.array([0, 2]), logits).numpy().tolist() == [0.5, 0.0]


def test_weighted_mean_by_hand():
    values = np.array([[1.0, 2.0], [3.0, 100.0]], "float32")
    assert float(weighted_mean(values, np.array([[1, 0.5], [2, 0]], "float32"))) == pytest.approx(
        8 / 3.5
    )
    assert float(weighted_mean(values, np.zeros((2, 2), "float32"))) == 0
    assert float(weighted_mean(values)) == pytest.approx(26.5)
