"""Heads of more than one layer, on the states of tokens."""

import keras
import numpy as np
from keras import ops

from keras_bert.layers.activations import ACTIVATIONS
from keras_bert.layers.embeddings import initializer


@keras.saving.register_keras_serializable(package="keras_bert")
class MaskedLMHead(keras.layers.Layer):
    """Scores every word of the vocabulary for each masked token.

    The word table is an input, not an attribute: nothing to tie after loading.

    Shapes (B rows, P predictions, D width, E table width, V words):
        states   (B, P, D)  float    encoder output at the masked tokens
        table    (V, E)     float    word table
        returns  (B, P, V)  float32  logits; give padded predictions weight 0

    Args:
        activation: Name of the nonlinearity after the dense layer, a key of `ACTIVATIONS`.
        epsilon: Added to the variance by the layer norm.
        initializer_range: Standard deviation of the initial kernel.
    """

    def __init__(self, activation="gelu", epsilon=1e-12, initializer_range=0.02, **kwargs):
        super().__init__(**kwargs)
        self.activation = activation
        self.epsilon = epsilon
        self.initializer_range = initializer_range

    def build(self, states_shape, table_shape):
        words, width = table_shape
        self.dense = keras.layers.Dense(
            width,
            ACTIVATIONS[self.activation],
            kernel_initializer=initializer(self.initializer_range),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.dense.build((None, states_shape[-1]))
        self.norm = keras.layers.LayerNormalization(
            epsilon=self.epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.norm.build((None, width))
        # autocast would round the bias to bfloat16 before the float32 sum
        self.bias = self.add_weight((words,), "zeros", name="bias", autocast=False)

    def start_from_counts(self, counts):
        """Sets the bias to the log frequencies of the words.

        Training then begins at the unigram entropy of the text, not at log V, and need not spend its
        first steps on moving thousands of biases.

        Shapes (V words):
            counts  (V,)  how often each word occurs in the text
        """
        logs = np.log(np.asarray(counts, "float64") + 1)
        self.bias.assign(logs - logs.mean())

    def call(self, states, table):
        rows, predictions, width = ops.shape(states)
        x = ops.reshape(states, (-1, width))
        x = self.norm(self.dense(x))  # (B * P, E)
        logits = products(x, ops.cast(table, self.compute_dtype))  # (B * P, V)
        logits = ops.cast(logits, "float32") + self.bias
        return ops.reshape(logits, (rows, predictions, table.shape[0]))

    def get_config(self):
        own = {
            "activation": self.activation,
            "epsilon": self.epsilon,
            "initializer_range": self.initializer_range,
        }
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="keras_bert")
class DiscriminatorHead(keras.layers.Layer):
    """Scores every token as replaced or not (Clark et al. 2020, section 2).

    Shapes (B rows, T tokens, D width):
        states   (B, T, D)  float
        returns  (B, T)     float32  logits

    Args:
        activation: Name of the nonlinearity after the first layer, a key of `ACTIVATIONS`.
        initializer_range: Standard deviation of the initial kernels.
    """

    def __init__(self, activation="gelu", initializer_range=0.02, **kwargs):
        super().__init__(**kwargs)
        self.activation = activation
        self.initializer_range = initializer_range

    def build(self, states_shape):
        start, width = initializer(self.initializer_range), states_shape[-1]
        activation = ACTIVATIONS[self.activation]
        self.dense, self.scores = (
            keras.layers.Dense(units, act, kernel_initializer=start, dtype=self.dtype_policy, name=name)
            for units, act, name in ((width, activation, "dense"), (1, None, "scores"))
        )
        for layer in (self.dense, self.scores):
            layer.build((None, None, width))

    def call(self, states):
        return ops.cast(self.scores(self.dense(states))[..., 0], "float32")

    def get_config(self):
        own = {"activation": self.activation, "initializer_range": self.initializer_range}
        return {**super().get_config(), **own}


@ops.custom_gradient
def products(x, table):
    """Products of the rows (N, E) and (V, E), each with each: (N, V).

    The gradient that `ops.matmul` would have is found as (E, V), and then transposed.
    """

    def gradients(*args, upstream=None):
        upstream = args[0] if upstream is None else upstream
        return ops.matmul(upstream, table), ops.matmul(ops.transpose(upstream), x)

    return ops.matmul(x, ops.transpose(table)), gradients
