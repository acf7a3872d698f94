"""keras_bert.layers.dropout: a pure function of its seed whose zeros look like chance."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.layers.dropout import dropout

ONES = np.ones((512, 512), "float32")


def keeps(rate=0.1, seed=5, site=0, rows=None):
    return np.asarray(dropout(tf.constant(ONES), rate, seed, site, rows)) > 0


def test_no_seed_or_no_rate_leaves_the_input_alone():
    x = tf.constant(ONES)
    assert dropout(x, 0.5, None, site=0) is x
    assert dropout(x, 0.0, 1, site=0) is x


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_share_of_zeros_and_mean(rate):
    out = np.asarray(dropout(tf.constant(ONES), rate, 3, site=0))
    error = np.sqrt(rate * (1 - rate) / out.size)
    assert abs((out == 0).mean() - rate) < 4 * error
    np.testing.assert_allclose(out[out > 0], 1 / (1 - rate), rtol=1e-6)


def test_rows_columns_and_seeds_are_independent():
    """Row and column hashes are only added: no pair of either may share its zeros."""
    masks = keeps(0.5).astype("float64")
    limit = 6 / np.sqrt(512)  # six standard errors, over 130,000 pairs
    for table in (masks, masks.T):
        correlation = np.corrcoef(table)
        np.fill_diagonal(correlation, 0)
        assert np.abs(correlation).max() < limit
    for other in (keeps(0.5, seed=6), keeps(0.5, site=1)):
        assert abs(np.corrcoef(masks.ravel(), other.ravel())[0, 1]) < 0.01
    counts = masks.sum(0)  # per column: binomial(512, 1/2), whose variance is 128
    assert 100 < counts.var() < 160


def test_squares_of_four_carry_no_fifth_bit():
    """Parity over rectangles, where a sum of row and column would show: half even, half odd."""
    masks = keeps(0.5).astype("int64")
    parity = masks[:-1, :-1] ^ masks[1:, :-1] ^ masks[:-1, 1:] ^ masks[1:, 1:]
    assert abs(parity.mean() - 0.5) < 0.006  # standard error 0.001, squares overlap


def test_a_row_keeps_its_mask_when_rows_are_left_out():
    rows = np.array([3, 40, 511], "int32")
    some = np.asarray(dropout(tf.constant(ONES[:3]), 0.1, 5, site=0, rows=rows)) > 0
    np.testing.assert_array_equal(some, keeps()[rows])


def test_graph_xla_and_higher_ranks_draw_the_same_bits():
    for compiled in (False, True):
        run = tf.function(lambda x, s: dropout(x, 0.1, s, site=0), jit_compile=compiled)
        out = run(tf.reshape(ONES, (8, 64, 512)), np.uint32(5))
        np.testing.assert_array_equal(np.reshape(out, (512, 512)) > 0, keeps())


def test_a_rematerialised_forward_pass_repeats_the_mask():
    x = tf.Variable(ONES[:8])

    def loss(value):
        return tf.reduce_sum(dropout(value, 0.5, np.uint32(2), site=0) ** 2)

    with tf.GradientTape() as tape:
        plain = loss(x)
    expected = tape.gradient(plain, x)
    with tf.GradientTape() as tape:
        again = keras.remat(loss)(tf.convert_to_tensor(x))
    np.testing.assert_array_equal(tape.gradient(again, x), expected)
