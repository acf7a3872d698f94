"""Token ids to states: word + position + segment, norm, dropout."""

import keras
from keras import ops

from keras_bert.layers.dropout import dropout


@keras.saving.register_keras_serializable(package="keras_bert")
class Embeddings(keras.layers.Layer):
    """Sums a word, a position and a segment vector for each token (Devlin et al. 2018, section 3).

    The word table is `word_table`; heads that score words are given it by their caller.

    Shapes (B rows, T tokens, N flat tokens, E table width, D width):
        token_ids     (B, T)  int32
        segment_ids   (B, T)  int32, or None: all 0
        position_ids  (B, T)  int32, or None: counted from the first slot of a row
        returns       (N, D)  flat states

    Args:
        vocab_size: Rows of the word table.
        hidden_size: Width D of the states.
        embedding_size: Width E of the tables. Where it differs from D, a dense layer follows the norm
            (ALBERT, section 3.1).
        max_position_embeddings: Rows of the position table.
        type_vocab_size: Rows of the segment table; 0 for none.
        position_offset: Row of the position table that a row's first token takes.
        dropout_rate: Share of the normed sum that training zeroes.
        epsilon: Added to the variance by the layer norm.
        initializer_range: Standard deviation of the initial tables.
    """

    def __init__(
        self,
        vocab_size,
        hidden_size,
        embedding_size,
        max_position_embeddings=512,
        type_vocab_size=2,
        position_offset=0,
        dropout_rate=0.1,
        epsilon=1e-12,
        initializer_range=0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.embedding_size = embedding_size
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.position_offset = position_offset
        self.dropout_rate = dropout_rate
        self.epsilon = epsilon
        self.initializer_range = initializer_range

    def build(self, token_ids_shape=None):
        width, start = self.embedding_size, initializer(self.initializer_range)
        # autocast would round the whole table to bfloat16 to look up some of its rows
        self.word_table = self.add_weight(
            (self.vocab_size, width), start, name="word_table", autocast=False
        )
        self.position_table = self.add_weight(
            (self.max_position_embeddings, width), start, name="position_table"
        )
        self.segment_table = None
        if self.type_vocab_size:
            self.segment_table = self.add_weight(
                (self.type_vocab_size, width), start, name="segment_table"
            )
        self.norm = keras.layers.LayerNormalization(
            epsilon=self.epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.norm.build((None, width))
        self.projection = None
        if width != self.hidden_size:
            self.projection = keras.layers.Dense(
                self.hidden_size,
                kernel_initializer=start,
                dtype=self.dtype_policy,
                name="projection",
            )
            self.projection.build((None, width))

    def call(self, token_ids, segment_ids=None, position_ids=None, layout=None, seed=None):
        x = ops.cast(ops.take(self.word_table, token_ids, axis=0), self.compute_dtype)  # (B, T, E)
        x = x + self._positions(token_ids, position_ids)
        if self.segment_table is not None:
            if segment_ids is None:
                x = x + self.segment_table[0]
            else:
                # a product instead of a gather: its gradient has two rows to sum into, not B * T
                choice = ops.one_hot(segment_ids, self.type_vocab_size, dtype=self.compute_dtype)
                x = x + ops.matmul(choice, self.segment_table)
        x = layout.to_flat(x)  # (N, E)
        x = dropout(self.norm(x), self.dropout_rate, seed, site=0, rows=layout.slots)
        return x if self.projection is None else self.projection(x)

    def _positions(self, token_ids, position_ids):
        """Vectors of positions: (1 or B, T, E)."""
        length, first = token_ids.shape[1], self.position_offset
        if position_ids is not None:
            return ops.take(self.position_table, position_ids + first, axis=0)
        if length is None:  # only known when the graph runs
            length = ops.shape(token_ids)[1]
        elif first + length > self.max_position_embeddings:
            raise ValueError(
                "`token_ids` must not be longer than the position table allows, "
                f"{self.max_position_embeddings - first} tokens. Received: {length} tokens "
                f"a row (shape {tuple(token_ids.shape)})."
            )
        return self.position_table[None, first : first + length]

    def get_config(self):
        own = {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "embedding_size": self.embedding_size,
            "max_position_embeddings": self.max_position_embeddings,
            "type_vocab_size": self.type_vocab_size,
            "position_offset": self.position_offset,
            "dropout_rate": self.dropout_rate,
            "epsilon": self.epsilon,
            "initializer_range": self.initializer_range,
        }
        return {**super().get_config(), **own}


def initializer(standard_deviation):
    """BERT's start: a normal distribution cut at two standard deviations."""
    return keras.initializers.TruncatedNormal(stddev=standard_deviation)
