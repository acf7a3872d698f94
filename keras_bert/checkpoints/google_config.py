"""bert_config.json and albert_config.json of google-research and of TensorFlow's Model Garden."""

import dataclasses

import tensorflow as tf

from keras_bert.config import EncoderConfig
from keras_bert.files import read_json

NAMES = ("bert_config.json", "albert_config.json")
# "gelu" is the tanh form in these libraries; "swish" is Model Garden's alone.
_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "tanh": "tanh", "swish": "silu"}
# What the libraries take a key to be that the file does not hold.
_DEFAULTS = {
    "bert": {"type_vocab_size": 16},
    "albert": {
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_hidden_groups": 1,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
}
# Keys that nothing in the libraries' encoders reads.
_IGNORED = {
    "backward_compatible",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
}
# Keys that must have this value: anything else is, or would be, another architecture.
_REQUIRED = {
    "directionality": "bidi",
    "pooler_type": "first_token_transform",
    "inner_group_num": 1,
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "down_scale_factor": 1,
}
_FIELDS = {field.name for field in dataclasses.fields(EncoderConfig)} - {
    "model_type",
    "use_pooler",
    "position_offset",
    "pad_token_id",
    "layer_norm_eps",
}


def config_path(directory):
    """The path of a directory's config, None where it holds none."""
    paths = [tf.io.gfile.join(directory, name) for name in NAMES]
    return next((path for path in paths if tf.io.gfile.exists(path)), None)


def read_config(path):
    """The EncoderConfig of a file; it is of an ALBERT when the file's name or its keys say so.

    Raises:
        ValueError: When a key is not known, or has a value that this package has no encoder for.
    """
    settings = read_json(path)
    is_albert = path.endswith(NAMES[1]) or "num_hidden_groups" in settings
    return make_config(settings, "albert" if is_albert else "bert", path)


def make_config(settings, kind, source):
    """The EncoderConfig of what a file holds, in the keys of bert_config.json."""
    fields = {"hidden_act": "gelu", **_DEFAULTS[kind]}
    for key, value in settings.items():
        if key in _REQUIRED and value != _REQUIRED[key]:
            raise ValueError(f"`{key}` must be {_REQUIRED[key]!r}. Received: {value!r} in {source}.")
        if key not in _FIELDS and key not in _REQUIRED and key not in _IGNORED:
            known = sorted({*_FIELDS, *_REQUIRED, *_IGNORED})
            raise ValueError(
                f"The config must only hold keys out of {', '.join(known)}. "
                f"Received: {key!r} = {value!r} in {source}."
            )
        if key in _FIELDS and value is not None:
            fields[key] = value
    activation = str(fields["hidden_act"]).lower()
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"`hidden_act` must be one of {', '.join(_ACTIVATIONS)}. "
            f"Received: {fields['hidden_act']!r} in {source}."
        )
    fields |= {"hidden_act": _ACTIVATIONS[activation], "model_type": kind}
    if fields.get("embedding_size") == fields.get("hidden_size", EncoderConfig.hidden_size):
        fields["embedding_size"] = None
    try:
        return EncoderConfig.from_dict(fields)
    except ValueError as error:
        raise ValueError(f"{source} must describe an encoder: {error}") from None


def label_options(count):
    """The options of a classifier's constructor, from its number of labels: all that is stored."""
    return {
        "label_names": [f"LABEL_{i}" for i in range(count)],
        "problem_type": "regression" if count == 1 else "single_label",
    }
