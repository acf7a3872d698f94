"""config.json of `transformers`: to an EncoderConfig and a head's options, and back."""

import dataclasses
import json

from keras_bert.checkpoints.huggingface_names import class_name, head_of
from keras_bert.config import FAMILIES, ROBERTAS, EncoderConfig

# What `transformers` takes a key to be that config.json does not hold.
_DEFAULTS = {
    "roberta": {"vocab_size": 50265, "pad_token_id": 1},
    "xlm-roberta": {"pad_token_id": 1},
    "camembert": {"pad_token_id": 1},
    "albert": {
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_hidden_groups": 1,
        "num_attention_heads": 64,
        "hidden_act": "gelu_new",
        "intermediate_size": 16384,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
    "distilbert": {"num_hidden_layers": 6},
    "electra": {
        "embedding_size": 128,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    },
}
_DISTILBERT_KEYS = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
_ACTIVATIONS = {
    "swish": "silu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_new",
    "gelu_fast": "gelu_new",
}
_PROBLEM_TYPES = {
    "single_label_classification": "single_label",
    "multi_label_classification": "multi_label",
    "regression": "regression",
}
# Keys that must have this value, or be absent: anything else is another architecture.
_REQUIRED = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({}, []),
    "inner_group_num": (1,),
    "summary_type": ("first",),
    "summary_use_proj": (True,),
    "summary_activation": ("gelu",),
    "auto_map": ({},),  # code of its own, which may compute anything
}
# Rates that the library takes where config.json has none; elsewhere it is that of the whole model.
_DROPOUTS = {
    "classifier_dropout_prob": 0.1,
    "seq_classif_dropout": 0.2,
    "qa_dropout": 0.1,
    "summary_last_dropout": 0.1,
}
_LABELLED = ("sequence_classification", "token_classification")


def read_config(settings, source="a dict"):
    """The EncoderConfig of what a config.json holds; `use_pooler` is the library's default.

    Raises:
        ValueError: When it is not of the BERT family as far as this package has it.
    """
    kind = settings.get("model_type")
    if kind not in FAMILIES:
        raise ValueError(
            f"`model_type` must be one of {', '.join(FAMILIES)}. Received: {kind!r} in {source}."
        )
    for key, values in _REQUIRED.items():
        if settings.get(key) is not None and settings[key] not in values:
            raise ValueError(
                f"`{key}` must be {json.dumps(values[0])}. "
                f"Received: {json.dumps(settings[key])} in {source}."
            )
    fields = dict(_DEFAULTS.get(kind, {}))
    for field in dataclasses.fields(EncoderConfig):
        key = _key(field.name, kind)
        if settings.get(key) is not None:
            fields[field.name] = settings[key]
    if kind not in ("albert", "electra"):
        fields["embedding_size"] = None
    if kind != "albert":
        fields["num_hidden_groups"] = None
    if kind == "distilbert":
        fields |= {"type_vocab_size": 0, "layer_norm_eps": 1e-12}
    if "hidden_act" in fields:
        fields["hidden_act"] = _ACTIVATIONS.get(fields["hidden_act"], fields["hidden_act"])
    if kind in ROBERTAS:
        fields["position_offset"] = fields["pad_token_id"] + 1
    fields["use_pooler"] = kind not in ("distilbert", "electra")
    if fields.get("embedding_size") == fields.get("hidden_size", EncoderConfig.hidden_size):
        fields["embedding_size"] = None
    try:
        return EncoderConfig.from_dict(fields)
    except ValueError as error:
        raise ValueError(f"{source} must describe an encoder: {error}") from None


def read_head(settings, config, source):
    """The head of the model that was stored, a key of `HEADS` or None, and the options of its class."""
    kind, (name, *_) = config.model_type, settings.get("architectures") or [None]
    head, options = head_of(name, kind), {}
    key = _dropout_key(kind, head)
    if key:
        rate = settings.get(key, _DROPOUTS.get(key))
        options["classifier_dropout"] = None if rate is None else float(rate)
    if head in _LABELLED or (head is None and {"id2label", "num_labels"} & set(settings)):
        options["label_names"] = _read_labels(settings, source)
    if head == "sequence_classification":
        problem = settings.get("problem_type")
        if problem not in (None, *_PROBLEM_TYPES):
            raise ValueError(
                f"`problem_type` must be one of {', '.join(_PROBLEM_TYPES)} or null. "
                f"Received: {problem!r} in {source}."
            )
        # without one, the library takes a single number for a regression
        default = "regression" if len(options["label_names"]) == 1 else "single_label"
        options["problem_type"] = _PROBLEM_TYPES.get(problem, default)
    if head == "question_answering" and settings.get("no_answer_threshold") is not None:  # ours
        options["no_answer_threshold"] = float(settings["no_answer_threshold"])
    return head, options


def _read_labels(settings, source):
    labels = settings.get("id2label")
    if labels is None:
        labels = {i: f"LABEL_{i}" for i in range(settings.get("num_labels") or 2)}
    try:
        labels = {int(i): str(label) for i, label in labels.items()}
    except ValueError:
        labels = {}
    if sorted(labels) != list(range(len(labels))) or not labels:
        raise ValueError(
            "`id2label` must have a label for each of 0, 1, 2, ... "
            f"Received: {settings.get('id2label')} in {source}."
        )
    return [labels[i] for i in range(len(labels))]


def make_settings(config, head, head_options, foreign):
    """What config.json must hold for a model.

    Raises:
        ValueError: When the library's family cannot be configured so.
    """
    kind = config.model_type
    settings = {**foreign, "model_type": kind, "architectures": [class_name(config, head)]}
    for field in dataclasses.fields(EncoderConfig):
        if field.name not in ("model_type", "use_pooler", "position_offset"):
            settings[_key(field.name, kind)] = getattr(config, field.name)
    if kind in ("albert", "electra"):
        settings["embedding_size"] = config.embedding_width
    else:
        del settings["embedding_size"]
    if kind == "albert":
        settings["num_hidden_groups"] = config.groups
    else:
        del settings["num_hidden_groups"]
    if kind == "distilbert":
        del settings["type_vocab_size"], settings["layer_norm_eps"]
    readable = read_config(settings)
    readable_pooler = readable.use_pooler
    readable = dataclasses.replace(readable, use_pooler=config.use_pooler)
    ours, theirs = config.to_dict(), readable.to_dict()
    if (config.groups, config.embedding_width) == (readable.groups, readable.embedding_width):
        ours |= {"num_hidden_groups": None, "embedding_size": None}
        theirs |= {"num_hidden_groups": None, "embedding_size": None}
    lost = {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    if lost:
        needed = ", ".join(f"{name} = {value!r}" for name, (_, value) in lost.items())
        found = ", ".join(f"{name} = {value!r}" for name, (value, _) in lost.items())
        raise ValueError(
            f"A {kind} of transformers must have {needed}. Received: {found}. `model_type` says which "
            "family a model is written as."
        )
    is_pooled = head in ("sequence_classification", "multiple_choice")
    if config.use_pooler and not is_pooled and not readable_pooler:
        raise ValueError(
            f"A {class_name(config, head)} must have no pooler: transformers has none. "
            "Received: use_pooler=True."
        )
    labels = head_options.get("label_names")
    if labels is not None:
        settings["id2label"] = {str(i): label for i, label in enumerate(labels)}
        settings["label2id"] = {label: i for i, label in enumerate(labels)}
    if "problem_type" in head_options:
        names = {ours: theirs for theirs, ours in _PROBLEM_TYPES.items()}
        settings["problem_type"] = names[head_options["problem_type"]]
    settings.pop("no_answer_threshold", None)
    if head_options.get("no_answer_threshold") is not None:
        settings["no_answer_threshold"] = head_options["no_answer_threshold"]
    key = _dropout_key(kind, head)
    if key and "classifier_dropout" in head_options:
        rate = head_options["classifier_dropout"]
        has_default = key in _DROPOUTS  # so that null is no value of it
        settings[key] = config.hidden_dropout_prob if rate is None and has_default else rate
    return settings


def foreign_settings(settings):
    """What of a config.json is written back as it is, where a model has nothing else to say."""
    # of the file, not of the model
    own = {"transformers_version", "torch_dtype", "dtype", "tie_word_embeddings", "_name_or_path"}
    return {key: value for key, value in settings.items() if key not in own}


def _key(field, kind):
    """The key of config.json that holds a field."""
    return _DISTILBERT_KEYS.get(field, field) if kind == "distilbert" else field


def _dropout_key(kind, head):
    """The key of the dropout rate before a head's last layer; None: the library has no such key."""
    if head == "question_answering":
        return "qa_dropout" if kind == "distilbert" else None
    if kind == "distilbert":
        is_pooled = head in ("sequence_classification", "multiple_choice")
        return "seq_classif_dropout" if is_pooled else None
    if kind == "electra" and head == "multiple_choice":
        return "summary_last_dropout"
    if head not in (*_LABELLED, "multiple_choice"):
        return None
    return "classifier_dropout_prob" if kind == "albert" else "classifier_dropout"
