"""Random numbers as a pure function of their keys: a counter-based hash in `keras.ops`.

Dropout, masking and sampling draw from it, so the same keys give the same bits eagerly, in a graph,
under XLA, on every replica and after a restart. Nothing here holds a state.
"""

import numpy as np
from keras import ops


def mix(bits):
    """Scrambles each uint32 so that every input bit reaches every output bit.

    The constants and shifts are those of `lowbias32` (Chris Wellons, "Prospecting for Hash
    Functions", 2018), the least biased of the two-multiplication 32-bit mixers found there.
    """
    bits = bits ^ ops.right_shift(bits, np.uint32(16))
    bits = bits * np.uint32(0x7FEB352D)
    bits = bits ^ ops.right_shift(bits, np.uint32(15))
    bits = bits * np.uint32(0x846CA68B)
    return bits ^ ops.right_shift(bits, np.uint32(16))


def fold(*keys):
    """Hashes integer keys, in this order, into uint32 bits; tensors of keys broadcast.

    `fold(seed, epoch, example)` and `fold(fold(seed, epoch), example)` differ from `fold(seed,
    example, epoch)`: the order of keys matters.
    """
    bits = np.uint32(0x9E3779B9)
    for key in keys:
        key = np.uint32(key & 0xFFFFFFFF) if isinstance(key, int) else ops.cast(key, "uint32")
        bits = mix(ops.convert_to_tensor(bits ^ key) * np.uint32(0x85EBCA6B) + np.uint32(1))
    return bits


def uniform(*keys):
    """Draws float32 numbers in [0, 1), one for each (broadcast) combination of `keys`."""
    # 24 bits fill a float32's mantissa exactly: no number rounds up to 1
    return ops.cast(ops.right_shift(fold(*keys), np.uint32(8)), "float32") * np.float32(2**-24)


def below(limit, *keys):
    """Draws int32 numbers in [0, limit); `limit` is an integer or a tensor, at least 1.

    The bias of the remainder, at most limit / 2**32, is far below anything that is counted here.
    """
    limit = ops.cast(limit, "int64")
    return ops.cast(ops.cast(fold(*keys), "int64") % limit, "int32")
