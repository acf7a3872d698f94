"""Multi-head self-attention within each row."""

import keras
from keras import ops

from keras_bert.layers.dropout import dropout
from keras_bert.layers.embeddings import initializer
from keras_bert.layers.fusion import one_pass


@one_pass
def attention_weights(scores, mask, seed, rows, scale, rate):
    """Dropout of the softmax of scaled scores (B, H, P, T), in float32 until done.

    Shapes:
        mask  (B, 1, 1 or P, T)  bool, which slots are seen
        rows  (B * H * P,)  name of each row of scores
    """
    x = ops.cast(scores, "float32") * scale
    # A finite floor: a row of nothing but padding gets equal weights instead of 0 / 0.
    x = ops.softmax(ops.where(mask, x, -1e9), axis=-1)
    return ops.cast(dropout(x, rate, seed, site=1, rows=rows), scores.dtype)


def split_heads(states, layout, kernel, bias):
    """What C kernels make of the flat states, for each head apart.

    Shapes:
        states   (N, D)
        kernel   (D, C, H, K)
        bias     (C, H, K)
        returns  C times (B, H, T, K)
    """
    width, count, heads, head_width = kernel.shape
    x = ops.matmul(states, ops.reshape(kernel, (width, -1))) + ops.reshape(bias, (-1,))
    x = layout.to_rows(x)  # (B, T, C * D)
    x = ops.reshape(x, (layout.rows, layout.length, count, heads, head_width))
    # transposed before it is taken apart: the gradient of a slice would fill the rest with zeros
    return ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), count)


@keras.saving.register_keras_serializable(package="keras_bert")
class SelfAttention(keras.layers.Layer):
    """Mixes the tokens of a row by scaled dot products (Vaswani et al. 2017, section 3.2).

    Queries, keys and values come from one product. Its kernel is stored as (D, 3, H, K), so each of the
    three, and each head, is a plain slice.

    Shapes (N flat tokens, M of them selected or all, B rows, T slots, P selected slots or all, D width,
    H heads, K = D / H):
        states   (N, D)  float
        returns  (M, D)  float

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

    def call(self, states, layout=None, seed=None, selected=None):
        """Mixes what all tokens hold into the `selected` ones, a SelectedLayout; None: into all."""
        kernel, bias = (ops.convert_to_tensor(x) for x in (self.qkv_kernel, self.qkv_bias))
        heads, head_width = bias.shape[1:]
        if selected is None:
            selected = layout
            query, key, value = split_heads(states, layout, kernel, bias)  # (B, H, T, K)
        else:
            (query,) = split_heads(selected.select(states), selected, kernel[:, :1], bias[:1])
            key, value = split_heads(states, layout, kernel[:, 1:], bias[1:])

        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # (B, H, P, T)
        first_rows = ops.arange(layout.rows * heads, dtype="int32") * layout.length
        first_rows = ops.reshape(first_rows, (layout.rows, heads, 1))
        weights = attention_weights(
            scores,
            layout.visible(selected),
            seed,
            ops.reshape(first_rows + selected.positions[:, None, :], (-1,)),
            scale=head_width**-0.5,
            rate=self.dropout_rate,
        )
        mixed = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))  # (B, P, H, K)
        mixed = ops.reshape(mixed, (selected.rows, selected.length, heads * head_width))
        return self.output_dense(selected.to_flat(mixed))  # (M, D)

    def get_config(self):
        own = {
            "num_heads": self.num_heads,
            "dropout_rate": self.dropout_rate,
            "initializer_range": self.initializer_range,
        }
        return {**super().get_config(), **own}
