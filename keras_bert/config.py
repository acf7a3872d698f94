"""The architecture of an encoder as one frozen value, with presets and JSON in and out."""

import dataclasses
import difflib
import json
import math
import typing

from keras_bert.files import read_text, write_atomically

# What the released families do not let a config choose: the nonlinearity of the dense layer between the
# first token's state and a classifier, and that of the masked LM head (None: `hidden_act`).
FAMILIES = {
    "bert": ("tanh", None),
    "roberta": ("tanh", "gelu"),
    "xlm-roberta": ("tanh", "gelu"),
    "camembert": ("tanh", "gelu"),
    "albert": ("tanh", None),
    "distilbert": ("relu", None),
    "electra": ("gelu", "gelu"),
}
# Those that count positions from behind the padding's row of the table (as fairseq does).
ROBERTAS = ("roberta", "xlm-roberta", "camembert")
HIDDEN_ACTS = ("gelu", "gelu_new", "relu", "silu", "tanh")

# The released sizes: Devlin et al. 2018, section 3 (base, large), and Turc et al. 2019,
# "Well-Read Students Learn Better", table 1 (the smaller ones). Heads are 64 wide in all of them.
_SIZES = {
    "bert_tiny": {"num_hidden_layers": 2, "hidden_size": 128},
    "bert_mini": {"num_hidden_layers": 4, "hidden_size": 256},
    "bert_small": {"num_hidden_layers": 4, "hidden_size": 512},
    "bert_medium": {"num_hidden_layers": 8, "hidden_size": 512},
    "bert_base": {"num_hidden_layers": 12, "hidden_size": 768},
    "bert_large": {"num_hidden_layers": 24, "hidden_size": 1024},
}
PRESETS = {
    name: {
        **size,
        "num_attention_heads": size["hidden_size"] // 64,
        "intermediate_size": 4 * size["hidden_size"],
    }
    for name, size in _SIZES.items()
}


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Everything that fixes an encoder's weights and arithmetic; refused at birth when inconsistent.

    Fields are spelled, and mean, as in the `config.json` of Hugging Face's `transformers`; the last
    six describe variants of BERT.

    Args:
        vocab_size: Rows of the word table.
        hidden_size: Width D of the states.
        num_hidden_layers: Transformer blocks that a token passes through.
        num_attention_heads: Heads H; must divide `hidden_size`.
        intermediate_size: Width inside each feed-forward layer.
        hidden_act: "gelu" (exact, erf), "gelu_new" (tanh form), "relu", "silu" or "tanh".
        hidden_dropout_prob: Dropout after the embeddings, attention and feed-forward layers.
        attention_probs_dropout_prob: Dropout on attention probabilities.
        max_position_embeddings: Rows of the position table.
        type_vocab_size: Rows of the segment table; 0 for models without segments (DistilBERT).
        initializer_range: Standard deviation of the truncated normal that weights start from.
        layer_norm_eps: Added to the variance by every layer norm.
        pad_token_id: Id that padding is filled with; which slots are padding is told by
            `padding_mask` alone.
        embedding_size: Width of the word table when it is factorised (ALBERT, section 3.1); None
            for `hidden_size`.
        num_hidden_groups: How many blocks have weights of their own; layers share them in equal
            runs (ALBERT: 1). None for `num_hidden_layers`.
        position_offset: First row of the position table in use (RoBERTa: pad id + 1 = 2).
        use_pooler: Whether the first token's state passes a dense layer, `pooler_act` behind it.
        model_type: The family, a key of `FAMILIES`: which library class a checkpoint is written for,
            and the nonlinearities of its heads. Everything else is said by the other fields.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    embedding_size: int | None = None
    num_hidden_groups: int | None = None
    position_offset: int = 0
    use_pooler: bool = True
    model_type: str = "bert"

    def __post_init__(self):
        check_field_types(self)
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "embedding_size",
            "num_hidden_groups",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {value}.")
        for name in ("type_vocab_size", "pad_token_id", "position_offset"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must not be negative. Received: {getattr(self, name)}.")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"`{name}` must lie in [0, 1). Received: {getattr(self, name)}.")
        for name in ("initializer_range", "layer_norm_eps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be positive. Received: {getattr(self, name)}.")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "`num_attention_heads` must divide `hidden_size`. Received: "
                f"num_attention_heads={self.num_attention_heads}, hidden_size={self.hidden_size}."
            )
        if self.num_hidden_layers % self.groups:
            raise ValueError(
                "`num_hidden_groups` must divide `num_hidden_layers`. Received: "
                f"num_hidden_groups={self.groups}, num_hidden_layers={self.num_hidden_layers}."
            )
        if self.hidden_act not in HIDDEN_ACTS:
            raise ValueError(
                f"`hidden_act` must be one of {', '.join(HIDDEN_ACTS)}. "
                f"Received: {self.hidden_act!r}{_did_you_mean(self.hidden_act, HIDDEN_ACTS)}."
            )
        if self.model_type not in FAMILIES:
            raise ValueError(
                f"`model_type` must be one of {', '.join(FAMILIES)}. "
                f"Received: {self.model_type!r}{_did_you_mean(self.model_type, FAMILIES)}."
            )
        if self.pad_token_id >= self.vocab_size:
            raise ValueError(
                "`pad_token_id` must be below `vocab_size`. Received: "
                f"pad_token_id={self.pad_token_id}, vocab_size={self.vocab_size}."
            )
        if self.max_length < 1:
            raise ValueError(
                "`position_offset` must leave rows of the position table. Received: position_offset="
                f"{self.position_offset}, max_position_embeddings={self.max_position_embeddings}."
            )

    @property
    def embedding_width(self):
        """Width of the word table: `embedding_size`, or `hidden_size` where it is None."""
        return self.embedding_size or self.hidden_size

    @property
    def groups(self):
        """Number of blocks with weights of their own."""
        return self.num_hidden_groups or self.num_hidden_layers

    @property
    def pooler_act(self):
        """Nonlinearity of the pooler."""
        return FAMILIES[self.model_type][0]

    @property
    def masked_lm_act(self):
        """Nonlinearity of the masked LM head."""
        return FAMILIES[self.model_type][1] or self.hidden_act

    @property
    def max_length(self):
        """Longest row, in tokens, that the position table has room for."""
        return self.max_position_embeddings - self.position_offset

    @classmethod
    def from_preset(cls, name, **overrides):
        """A published size by name, with some fields replaced.

        >>> EncoderConfig.from_preset("bert_tiny", vocab_size=8000).num_attention_heads
        2
        """
        if name not in PRESETS:
            raise ValueError(
                f"The preset must be one of {', '.join(PRESETS)}. "
                f"Received: {name!r}{_did_you_mean(name, PRESETS)}."
            )
        return cls.from_dict({**PRESETS[name], **overrides})

    @classmethod
    def from_dict(cls, values):
        """Builds a config from a mapping of field names; unknown names are an error."""
        names = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                raise ValueError(
                    "A config must only hold fields of EncoderConfig. "
                    f"Received: {name!r}{_did_you_mean(name, names)}."
                )
        return cls(**values)

    def to_dict(self):
        """All fields, as plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_file(cls, path):
        """Reads what `save` wrote; `path` may be local or remote (`gs://...`)."""
        return cls.from_dict(json.loads(read_text(path)))

    def save(self, path):
        """Writes the fields as JSON."""
        write_atomically(path, json.dumps(self.to_dict(), indent=2) + "\n")


def check_field_types(settings):
    """Refuses a dataclass whose values are not of their annotated types (whole numbers are floats)."""
    for field in dataclasses.fields(settings):
        value, kinds = getattr(settings, field.name), typing.get_args(field.type) or (field.type,)
        if typing.get_origin(field.type) is typing.Literal:
            fits, expected = value in kinds, " or ".join(map(repr, kinds))
        else:
            fits = type(value) in kinds or (float in kinds and type(value) is int)
            expected = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        if not fits:
            raise ValueError(f"`{field.name}` must be {expected}. Received: {value!r}.")
        if type(value) is float and not math.isfinite(value):
            raise ValueError(f"`{field.name}` must be a finite number. Received: {value}.")


def _did_you_mean(name, names):
    near = difflib.get_close_matches(str(name), list(names), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
