"""keras_bert.hashing: the same bits everywhere, and bits that behave like chance."""

import numpy as np
import tensorflow as tf
from keras import ops

from keras_bert.hashing import below, fold, uniform

NUMBERS = np.arange(200_000, dtype="int32")


def reference(*keys):
    """The same hash on Python integers."""
    wrap = 2**32 - 1

    def mix(bits):
        bits = (bits ^ (bits >> 16)) * 0x7FEB352D & wrap
        bits = (bits ^ (bits >> 15)) * 0x846CA68B & wrap
        return bits ^ (bits >> 16)

    bits = 0x9E3779B9
    for key in keys:
        bits = mix(((bits ^ (key & wrap)) * 0x85EBCA6B + 1) & wrap)
    return bits


def test_bits_are_those_of_integer_arithmetic():
    values = [0, 1, 77, 2**31 - 1, 2**32 - 1]
    ours = [int(fold(np.uint32(value), 5)) for value in values]
    assert ours == [reference(value, 5) for value in values]


def test_eager_graph_and_xla_agree():
    for compiled in (False, True):
        draw = tf.function(lambda seed: fold(seed, NUMBERS[:100]), jit_compile=compiled)
        np.testing.assert_array_equal(draw(np.uint32(3)), fold(3, NUMBERS[:100]))


def test_order_and_every_key_matter():
    assert int(fold(1, 2)) != int(fold(2, 1))
    assert len({int(fold(*keys)) for keys in [(1, 2), (1, 3), (4, 2), (1,), (2,), (1, 2, 0)]}) == 6


def test_each_input_bit_flips_half_of_the_output_bits():
    before = ops.convert_to_numpy(fold(9, NUMBERS[:4000]))
    for bit in range(0, 31, 5):
        after = ops.convert_to_numpy(fold(9, NUMBERS[:4000] ^ (1 << bit)))
        flipped = np.unpackbits((before ^ after).view("uint8")).mean()
        assert abs(flipped - 0.5) < 0.01  # 128,000 bits: standard error 0.0014


def test_uniform_numbers_are_uniform_and_stay_below_one():
    draws = ops.convert_to_numpy(uniform(1, NUMBERS))
    counts = np.histogram(draws, bins=100, range=(0, 1))[0]
    chi_square = ((counts - 2000) ** 2 / 2000).sum()
    assert chi_square < 160  # 99 degrees of freedom: 1 in 10,000
    assert 0 <= draws.min() <= draws.max() < 1
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 0.01


def test_below_takes_a_limit_for_each_draw():
    limits = NUMBERS % 7 + 1
    draws = ops.convert_to_numpy(below(limits, 4, NUMBERS))
    assert (draws < limits).all()
    assert draws.min() == 0
    counts = np.bincount(draws[limits == 7], minlength=7)
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 30  # 6 degrees of freedom
