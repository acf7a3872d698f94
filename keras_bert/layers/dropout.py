"""Dropout as a pure function of a seed, so that nothing about it needs to be saved."""

import numpy as np
from keras import ops

from keras_bert.hashing import fold


def dropout(x, rate, seed, site, rows=None):
    """Zeroes a share `rate` of `x` and scales the rest by 1 / (1 - rate).

    The bits depend on (seed, site, row, column) alone. Eager, graph and XLA runs draw the same ones,
    a second forward pass (rematerialisation) repeats them, and a token keeps its mask whichever
    layout it is computed in.

    Shapes:
        x        (..., C)  float
        seed     ()        uint32, or None: no dropout
        rows     (R,)      uint32 or int32 name of each row, R = product of the leading axes;
                           None numbers them 0, 1, ...
        returns  (..., C)  as `x`

    Args:
        rate: Share of zeros, in [0, 1).
        site: Integer that tells apart the places of a model which share a seed.
    """
    if seed is None or not rate:
        return x
    shape = ops.shape(x)
    if rows is None:
        count = 1
        for size in shape[:-1]:
            count = count * size
        rows = ops.arange(count, dtype="int32")
    # Hashing rows and columns apart and mixing their sum once costs a third of hashing each element.
    # Both summands are well mixed, so one round is enough to make the top bits independent.
    row_bits = fold(seed, 2 * site, rows)
    column_bits = fold(seed, 2 * site + 1, ops.arange(shape[-1], dtype="int32"))
    bits = row_bits[:, None] + column_bits[None, :]  # (R, C)
    bits = (bits ^ ops.right_shift(bits, np.uint32(15))) * np.uint32(0x846CA68B)
    keep = ops.greater_equal(bits, np.uint32(round(rate * 2**32)))
    scale = ops.cast(1 / (1 - rate), x.dtype)
    return x * (ops.cast(ops.reshape(keep, shape), x.dtype) * scale)
