"""A model's weights as an export stores them: as they are, or in a half or a quarter of the bytes.

    float32    as the model has them
    bfloat16   tables and kernels rounded to 8 bits of precision
    int8       tables and kernels as whole numbers from -127 to 127, with a float32 scale for each row
               or each column, whichever loses less

Vectors (biases, norms) always stay as they are. What is stored smaller is made float32 again by the
graph, once, when a server loads it: requests are as fast as with float32, and take as much memory.
"""

import uuid

import keras
import numpy as np
import tensorflow as tf

KINDS = ("float32", "bfloat16", "int8")


class StoredWeights:
    """The float weights of a model, apart from it and from any strategy that made it.

    Args:
        weights: Keras variables.
        kind: One of `KINDS`.

    Attributes:
        variables: What is to be saved. (This is no module, which would save the model's own, too.)
        loaded: What is to be saved with them, to compute variables when it is loaded.
    """

    def __init__(self, weights, kind):
        if kind not in KINDS:
            raise ValueError(f"`weights` must be one of {', '.join(KINDS)}. Received: {kind!r}.")
        if tf.distribute.has_strategy():
            raise ValueError(
                "An export must be made outside of `strategy.scope()`: servers have no strategy. "
                f"Received: a call inside that of a {type(tf.distribute.get_strategy()).__name__}."
            )
        # those of whole numbers are seeds, which only training reads
        self._weights = [weight for weight in weights if "float" in str(weight.dtype)]
        run = uuid.uuid4().hex  # exports that one process loads share no variables
        self._stored = [
            _store(keras.ops.convert_to_numpy(weight), kind, f"{run}/{number}")
            for number, weight in enumerate(self._weights)
        ]
        self.variables = [variable for stored in self._stored for variable in stored.variables]
        self.loaded = [stored for stored in self._stored if isinstance(stored, _Packed)]

    def scope(self):
        """In it a graph reads the stored weights where the model reads its own."""
        return keras.StatelessScope(
            state_mapping=[
                (weight, tf.cast(stored.read(), weight.dtype))
                for weight, stored in zip(self._weights, self._stored, strict=True)
            ]
        )


class _Plain:
    """A weight as it is."""

    def __init__(self, value):
        self.variables = [tf.Variable(value, trainable=False)]

    def read(self):
        return self.variables[0].read_value()


class _Packed(tf.saved_model.experimental.TrackableResource):
    """A float32 variable that is no part of the files: loading computes it from those that are.

    Args:
        variables: What is stored: numbers, and where they have any, their scales.
        name: Of the float32 variable; of no other in any export.
    """

    def __init__(self, variables, name):
        super().__init__()
        self.variables = variables
        self._name = name

    def _create_resource(self):
        shape = self.variables[0].shape
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=shape, shared_name=self._name)

    def _initialize(self):
        numbers, *scales = self.variables
        value = tf.cast(numbers, tf.float32)
        for scale in scales:
            value *= scale
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=value)

    def read(self):
        return tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=tf.float32)


def _store(value, kind, name):
    if kind == "float32" or value.ndim < 2:
        return _Plain(value)
    value = value.astype("float32")
    if kind == "bfloat16":
        return _Packed([tf.Variable(tf.cast(value, tf.bfloat16), trainable=False)], name)
    numbers, scales = quantized(value)
    return _Packed([tf.Variable(each, trainable=False) for each in (numbers, scales)], name)


def quantized(value):
    """Whole numbers from -127 to 127 and scales, whose products are nearest to a weight.

    Shapes:
        value    (R, ...)  float32
        returns  numbers (R, ...) int8, and scales (R, 1, ...) or (1, ...) float32
    """
    best = None
    for axes in (tuple(range(1, value.ndim)), (0,)):  # a scale for each row, or for each column
        largest = np.abs(value).max(axis=axes, keepdims=True)
        scales = np.where(largest > 0, largest / 127, 1).astype("float32")
        numbers = np.round(value / scales).astype("int8")
        error = np.square(numbers * scales - value).sum()
        if best is None or error < best[0]:
            best = error, numbers, scales
    return best[1:]
