"""One Transformer block: attention and feed-forward, each with a residual and a norm behind it."""

import keras
from keras import ops

from keras_bert.layers.activations import ACTIVATIONS, FUSED_ACTIVATIONS
from keras_bert.layers.attention import SelfAttention
from keras_bert.layers.dropout import dropout
from keras_bert.layers.embeddings import initializer
from keras_bert.layers.fusion import one_pass


@one_pass
def add_and_norm(states, update, gamma, beta, seed, slots, rate, site, epsilon):
    """norm(states + dropout(update)), in float32 until it is done."""
    x = dropout(ops.cast(update, "float32"), rate, seed, site, rows=slots)
    x = ops.layer_normalization(ops.cast(states, "float32") + x, gamma, beta, epsilon=epsilon)
    return ops.cast(x, states.dtype)


@keras.saving.register_keras_serializable(package="keras_bert")
class TransformerBlock(keras.layers.Layer):
    """norm(x + attention(x)), then norm(x + feed_forward(x)): BERT's post-norm order.

    Shapes (N flat tokens, M of them selected or all, D width):
        states   (N, D)  float
        returns  (M, D)  float

    Args:
        num_heads: Attention heads; must divide D.
        intermediate_size: Width inside the feed-forward layer.
        activation: Name of its nonlinearity, a key of `ACTIVATIONS`.
        dropout_rate: Dropout on what each of the two adds to its residual.
        attention_dropout_rate: Dropout on the attention probabilities.
        epsilon: Added to the variance by the norms.
        initializer_range: Standard deviation of the initial kernels.
    """

    def __init__(
        self,
        num_heads,
        intermediate_size,
        activation="gelu",
        dropout_rate=0.1,
        attention_dropout_rate=0.1,
        epsilon=1e-12,
        initializer_range=0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.intermediate_size = intermediate_size
        self.activation = activation
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.epsilon = epsilon
        self.initializer_range = initializer_range

    def build(self, states_shape):
        width, start, dtype = (
            states_shape[-1],
            initializer(self.initializer_range),
            self.dtype_policy,
        )
        dense, norm = keras.layers.Dense, keras.layers.LayerNormalization
        self.attention = SelfAttention(
            self.num_heads,
            self.attention_dropout_rate,
            self.initializer_range,
            dtype=dtype,
            name="attention",
        )
        self.attention_norm = norm(epsilon=self.epsilon, dtype=dtype, name="attention_norm")
        self.intermediate = dense(
            self.intermediate_size, kernel_initializer=start, dtype=dtype, name="intermediate"
        )
        self.output_dense = dense(width, kernel_initializer=start, dtype=dtype, name="output")
        self.output_norm = norm(epsilon=self.epsilon, dtype=dtype, name="output_norm")
        for layer in (self.attention, self.attention_norm, self.intermediate, self.output_norm):
            layer.build((None, width))
        self.output_dense.build((None, self.intermediate_size))

    def call(self, states, layout=None, seed=None, selected=None):
        """New states of the `selected` tokens, a SelectedLayout; None: of all."""
        x = self.attention(states, layout=layout, seed=seed, selected=selected)
        if selected is not None:
            states, layout = selected.select(states), selected
        states = self._add_and_norm(states, x, self.attention_norm, seed, layout, site=2)
        activation = (ACTIVATIONS if seed is None else FUSED_ACTIVATIONS)[self.activation]
        x = self.output_dense(activation(self.intermediate(states)))
        return self._add_and_norm(states, x, self.output_norm, seed, layout, site=3)

    def _add_and_norm(self, states, update, norm, seed, layout, site):
        gamma, beta = (ops.convert_to_tensor(weight) for weight in (norm.gamma, norm.beta))
        return add_and_norm(
            states,
            update,
            gamma,
            beta,
            seed,
            layout.slots,
            rate=self.dropout_rate,
            site=site,
            epsilon=self.epsilon,
        )

    def get_config(self):
        own = {
            "num_heads": self.num_heads,
            "intermediate_size": self.intermediate_size,
            "activation": self.activation,
            "dropout_rate": self.dropout_rate,
            "attention_dropout_rate": self.attention_dropout_rate,
            "epsilon": self.epsilon,
            "initializer_range": self.initializer_range,
        }
        return {**super().get_config(), **own}
