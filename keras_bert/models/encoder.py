"""The encoder: token ids to contextual states, for every architecture of the BERT family."""

import functools

import keras
from keras import ops

from keras_bert.config import EncoderConfig
from keras_bert.hashing import fold
from keras_bert.layers.activations import ACTIVATIONS
from keras_bert.layers.block import TransformerBlock
from keras_bert.layers.embeddings import Embeddings, initializer
from keras_bert.layers.layout import LAYOUTS, PackedLayout, SelectedLayout
from keras_bert.layers.remat import remat
from keras_bert.models.loading import PretrainedModel


@keras.saving.register_keras_serializable(package="keras_bert")
class BertEncoder(PretrainedModel):
    """Reads rows of tokens in both directions at once (Devlin et al. 2018).

    Shapes (B rows, T tokens, P selected tokens, D width):
        inputs   a dict of
            token_ids        (B, T)  int32
            padding_mask     (B, T)  bool or int, 1 = real token
            segment_ids      (B, T)  int32, optional: absent means 0
            and, where rows are packed with E examples each (text/packing.py),
            example_ids, position_ids  (B, T)  int32
            first_slots      (B, E)  int32, first token of each example; 0 where a row has fewer
        positions  (B, P)  int32, optional: the tokens of each row whose states are wanted
        returns  a dict of
            sequence_output  (B, T, D), or (B, P, D) with `positions`
            pooled_output    (B, D)  first token's state, through a dense layer if `use_pooler`;
                             (B, E, D) of packed rows

    A row begins with its tokens, and padding is behind them: positions are counted from the first slot.
    States at padding are finite and mean nothing; they influence no other token. With `positions`, the
    last block computes those states and the first token's alone, which saves most of its work; P = 0
    where nothing but `pooled_output` is wanted.

    Args:
        config: An EncoderConfig.
        layout: "dense" (static shapes: XLA, TPU) or "unpadded" (computes real tokens only: faster
            where rows differ in length, CPU and GPU without XLA). The numbers are the same; a built
            model's `layout` may be set anew.
        tokenizer: What `save_pretrained` writes beside the weights.

    Set `remat` to True and the backward pass of training computes each block anew instead of keeping
    its states (Chen et al. 2016): memory for one block instead of all, a third more time, the same
    gradients. It is not saved.

    In training, dropout is drawn from `seed`, a uint32 scalar. Without one it comes from a saved
    weight, random at first (see `keras.utils.set_random_seed`) and moved on by each training call, so
    that a reloaded model goes on with the masks that were due.
    """

    head = "encoder"

    def __init__(self, config, layout="dense", tokenizer=None, name="encoder", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.tokenizer = tokenizer
        self.layout = layout
        self.remat = False
        dtype = self.dtype_policy
        self.embeddings = Embeddings(
            config.vocab_size,
            config.hidden_size,
            config.embedding_width,
            config.max_position_embeddings,
            config.type_vocab_size,
            config.position_offset,
            config.hidden_dropout_prob,
            config.layer_norm_eps,
            config.initializer_range,
            dtype=dtype,
            name="embeddings",
        )
        self.blocks = [
            TransformerBlock(
                config.num_attention_heads,
                config.intermediate_size,
                config.hidden_act,
                config.hidden_dropout_prob,
                config.attention_probs_dropout_prob,
                config.layer_norm_eps,
                config.initializer_range,
                dtype=dtype,
                name=f"block_{index}",
            )
            for index in range(config.groups)
        ]
        self.pooler = None
        if config.use_pooler:
            self.pooler = keras.layers.Dense(
                config.hidden_size,
                ACTIVATIONS[config.pooler_act],
                kernel_initializer=initializer(config.initializer_range),
                dtype=dtype,
                name="pooler",
            )
        # int32: hosts of a strategy cannot send each other unsigned numbers
        self.dropout_seed = self.add_weight(
            (), _random_bits, dtype="int32", trainable=False, autocast=False, name="dropout_seed"
        )
        # The config fixes every shape: build at once, so that weights can be loaded before any call.
        with keras.name_scope(self.name):
            self.embeddings.build()
            for layer in [*self.blocks, *([self.pooler] if self.pooler else [])]:
                layer.build((None, config.hidden_size))
        self.built = True

    @property
    def layout(self):
        return self._layout

    @layout.setter
    def layout(self, name):
        if name not in LAYOUTS:
            raise ValueError(f"`layout` must be one of {', '.join(LAYOUTS)}. Received: {name!r}.")
        self._layout = name
        self.supports_jit = LAYOUTS[name].supports_jit

    def resolve_seed(self, training, seed):
        """Seed of a call: None outside of training; else `seed`, or the saved one, which moves on."""
        if training and seed is None:
            seed = fold(self.dropout_seed)
            self.dropout_seed.assign_add(1)
        return seed if training else None

    def call(self, inputs, training=None, seed=None, positions=None):
        for name in ("token_ids", "padding_mask"):
            if name not in inputs:
                raise ValueError(f"`inputs` must hold `{name}`. Received: {sorted(inputs)}.")
        seed = self.resolve_seed(training, seed)

        def seed_of(part):
            return None if seed is None else fold(seed, part)

        layout = self._layout_of(inputs)
        states = self.embeddings(
            inputs["token_ids"],
            inputs.get("segment_ids"),
            inputs.get("position_ids"),
            layout=layout,
            seed=seed_of(0),
        )
        firsts = inputs.get("first_slots")
        if firsts is None:
            firsts = ops.zeros((layout.rows, 1), "int32")
        selected = None
        if positions is not None:
            # the first tokens, which are pooled, in front
            selected = SelectedLayout(layout, ops.concatenate([firsts, positions], axis=1))
        layers = self.config.num_hidden_layers
        for index in range(layers):
            block = self.blocks[index * len(self.blocks) // layers]
            is_last = index == layers - 1
            apply = functools.partial(block, layout=layout, selected=selected if is_last else None)
            if self.remat and training:
                apply = remat(apply)
            states = apply(states, seed=seed_of(1 + index))
        rows = (selected or layout).to_rows(states)
        count = firsts.shape[1]
        if selected is not None:
            pooled, rows = rows[:, :count], rows[:, count:]
        elif "first_slots" in inputs:
            pooled = ops.take_along_axis(rows, firsts[:, :, None], axis=1)
        else:
            pooled = rows[:, :1]
        if self.pooler is not None:
            pooled = self.pooler(pooled)
        if "first_slots" not in inputs:
            pooled = pooled[:, 0]
        return {"sequence_output": rows, "pooled_output": pooled}

    def _layout_of(self, inputs):
        packed = [name for name in ("example_ids", "position_ids", "first_slots") if name in inputs]
        if not packed:
            return LAYOUTS[self.layout](inputs["padding_mask"])
        if len(packed) < 3 or self.layout != "dense":
            raise ValueError(
                "Packed rows must have example_ids, position_ids and first_slots, and the encoder the "
                f"dense layout. Received: {', '.join(packed)}, layout={self.layout!r}."
            )
        return PackedLayout(inputs["example_ids"])

    def get_config(self):
        own = {"config": self.config.to_dict(), "layout": self.layout}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "config": EncoderConfig.from_dict(config["config"])})


def _random_bits(shape, dtype):
    return ops.cast(keras.random.randint(shape, 0, 2**31 - 1), dtype)
