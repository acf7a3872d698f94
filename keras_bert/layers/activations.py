"""Nonlinearities by the names that `config.json` files give them."""

import keras


@keras.saving.register_keras_serializable(package="keras_bert")
def gelu(x):
    """x times the normal distribution function of x, exact (erf); Hendrycks & Gimpel 2016."""
    return keras.activations.gelu(x, approximate=False)


@keras.saving.register_keras_serializable(package="keras_bert")
def gelu_new(x):
    """The tanh approximation of gelu, which google-research/bert calls "gelu"."""
    return keras.activations.gelu(x, approximate=True)


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_new": gelu_new,
    "relu": keras.activations.relu,
    "silu": keras.activations.silu,
    "tanh": keras.activations.tanh,
}
