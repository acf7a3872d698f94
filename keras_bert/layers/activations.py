"""Nonlinearities by the names that `config.json` files give them."""

import keras
from keras import ops

from keras_bert.layers.fusion import one_pass


@keras.saving.register_keras_serializable(package="keras_bert")
def gelu(x):
    """x times the normal distribution function of x, exact (erf); Hendrycks & Gimpel 2016."""
    # in float32: TensorFlow's kernels for bfloat16 widen and narrow it in every op
    wide = ops.cast(x, "float32")
    return ops.cast(wide * (0.5 + 0.5 * ops.erf(wide * 0.5**0.5)), x.dtype)


@keras.saving.register_keras_serializable(package="keras_bert")
def gelu_new(x):
    """The tanh approximation of gelu, which google-research/bert calls "gelu"."""
    return ops.cast(keras.activations.gelu(ops.cast(x, "float32"), approximate=True), x.dtype)


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_new": gelu_new,
    "relu": keras.activations.relu,
    "silu": keras.activations.silu,
    "tanh": keras.activations.tanh,
}

# for training: an exported graph should need no XLA where it is served
FUSED_ACTIVATIONS = {name: one_pass(function) for name, function in ACTIVATIONS.items()}
