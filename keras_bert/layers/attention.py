"""Multi-head self-attention within each row."""

import keras
from keras import ops

from keras_bert.layers.dropout import dropout
from keras_bert.layers.embeddings import initializer
from keras_bert.layers.fusion import one_pass


@one_pass
def attention_weights(scores, mask, seed, scale, rate):
    """Dropout of the softmax of scaled scores (B, H, T, T), in float32 until done; mask (B, T)."""
    x = ops.cast(scores, "float32") * scale
    # A finite floor: a row of nothing but padding gets equal weights instead of 0 / 0.
    x = ops.softmax(ops.where(mask[:, None, None, :], x, -1e9), axis=-1)
    return ops.cast(dropout(x, rate, seed, site=1), scores.dtype)


@keras.saving.register_keras_serializable(package="keras_bert")
class SelfAttention(keras.layers.Layer):
    """Mixes the tokens of a row by scaled dot products (Vaswani et al. 2017, section 3.2).

    Queries, keys and values come from one product. Its kernel is stored as (D, 3, H, K), so each of the
    three, and each head, is a plain slice.

    Shapes (N flat tokens, B rows, T slots, D width, H heads, K = D / H):
        states   (N, D)  float
        returns  (N, D)  float

    Args:
        num_heads: Heads H; must divide D.
        dropout_rate: Share of the attention probabilities that training zeroes.
        initializer_range: Standard deviation of the initial kernels.
    """

    def __init__(self, num_heads, dropout_rate=0.1, initializer_range=0.02, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.initializer_range = initializer_range

    def build(self, states_shape):
        width, heads, start = states_shape[-1], self.num_heads, initializer(self.initializer_range)
        if width % heads:
            raise ValueError(
                "`num_heads` must divide the width of `states`. "
                f"Received: num_heads={heads}, states {tuple(states_shape)}."
            )
        self.qkv_kernel = self.add_weight((width, 3, heads, width // heads), start, name="qkv_kernel")
        self.qkv_bias = self.add_weight((3, heads, width // heads), "zeros", name="qkv_bias")
        self.output_dense = keras.layers.Dense(
            width, kernel_initializer=start, dtype=self.dtype_policy, name="output"
        )
        self.output_dense.build((None, width))

    def call(self, states, layout=None, seed=None):
        width, heads = states.shape[-1], self.num_heads
        head_width = width // heads
        qkv = ops.matmul(states, ops.reshape(self.qkv_kernel, (width, 3 * width)))
        qkv = layout.to_rows(qkv + ops.reshape(self.qkv_bias, (3 * width,)))  # (B, T, 3 * D)
        qkv = ops.reshape(qkv, (layout.rows, layout.length, 3, heads, head_width))
        # transposed before it is taken apart: the gradient of a slice would fill the rest with zeros
        query, key, value = ops.unstack(ops.transpose(qkv, (2, 0, 3, 1, 4)), 3)  # (B, H, T, K)

        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # (B, H, T, T)
        weights = attention_weights(
            scores, layout.padding_mask, seed, scale=head_width**-0.5, rate=self.dropout_rate
        )
        mixed = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))  # (B, T, H, K)
        mixed = ops.reshape(mixed, (layout.rows, layout.length, width))
        return self.output_dense(layout.to_flat(mixed))  # (N, D)

    def get_config(self):
        own = {
            "num_heads": self.num_heads,
            "dropout_rate": self.dropout_rate,
            "initializer_range": self.initializer_range,
        }
        return {**super().get_config(), **own}
