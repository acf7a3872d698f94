"""Presets of keras-hub: a backbone and perhaps a task's head are read, a BERT is written."""

import dataclasses
import functools
import itertools
import os
import shutil
import uuid
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from keras_bert.checkpoints.hdf5_files import read_file
from keras_bert.checkpoints.weights import HEADS, Checkpoint, Entry, Style, Tensor, collect
from keras_bert.config import EncoderConfig
from keras_bert.files import read_json

# Layers are stored by class and place (layers/dense_1) with their variables numbered, the same way
# since Keras 3.0. A prefix of ours tells a task's file from the backbone's.
_KERAS = Style("/vars/0", "/vars/1", "/vars/0", "/vars/1")
_TASK, _REFUSED = "task/", "refused/"
_ABSENT = "absent/"
_NO_SEGMENTS = "zeros/segment_table"

# key of a preset's config -> field of EncoderConfig
_FIELDS = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
}
_WORDS = {"vocabulary_size": "vocab_size"}
_SEGMENTS = {"num_segments": "type_vocab_size"}
_NARROW = {"embedding_dim": "embedding_size"}
_GROUPS = {"num_groups": "num_hidden_groups", "num_inner_repetitions": None}


@dataclasses.dataclass(frozen=True)
class _Backbone:
    """What a class of the library stores, and what its code fixes."""

    model_type: str
    fields: Mapping[str, str | None]
    fixed: Mapping[str, object]


# "gelu" is Keras's, exact; the other classes name the tanh form.
_TANH_GELU = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12}
_ROBERTA = {"hidden_act": "gelu", "layer_norm_eps": 1e-5, "pad_token_id": 1, "position_offset": 2}
_ROBERTA |= {"type_vocab_size": 1}
_BACKBONES = {
    "BertBackbone": _Backbone("bert", _WORDS | _SEGMENTS, _TANH_GELU),
    "RobertaBackbone": _Backbone("roberta", _WORDS, _ROBERTA),
    "XLMRobertaBackbone": _Backbone("xlm-roberta", _WORDS, _ROBERTA),
    "AlbertBackbone": _Backbone("albert", _WORDS | _SEGMENTS | _NARROW | _GROUPS, _TANH_GELU),
    "DistilBertBackbone": _Backbone(
        "distilbert", _WORDS, {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "type_vocab_size": 0}
    ),
    "ElectraBackbone": _Backbone(
        "electra", {"vocab_size": "vocab_size"} | _SEGMENTS | _NARROW, _TANH_GELU
    ),
}
# The end of a task's name, which once was BertClassifier -> its head here, and the component.
_TASKS = {
    "Classifier": ("sequence_classification", "classifier"),
    "MaskedLM": ("masked_lm", "masked_lm"),
}


def is_here(directory):
    """Whether a directory holds the config.json of a preset."""
    path = tf.io.gfile.join(directory, "config.json")
    name = read_json(path).get("registered_name") if tf.io.gfile.exists(path) else None
    return str(name).startswith(("keras_hub>", "keras_nlp>"))


def open_directory(directory):
    """Opens a preset as a Checkpoint.

    A head that computes something else than ours of that name does is in `Checkpoint.refused`.

    Raises:
        ValueError: When the backbone is not of the BERT family, or files are missing or damaged.
    """
    config_path, task_path = (
        tf.io.gfile.join(directory, name) for name in ("config.json", "task.json")
    )
    config = _read_config(read_json(config_path), config_path)
    task = read_json(task_path) if tf.io.gfile.exists(task_path) else None
    head, options, refused = _read_task(task, config, task_path)
    tensors = _read_backbone(directory)
    others = []
    if config.model_type == "electra":
        # tanh of the first token, which ELECTRA has nowhere: no model of ours reads it
        others += _KERAS.dense("", _pooled_dense(config))
    if config.model_type in ("roberta", "xlm-roberta"):
        _add_rows(tensors, config)
    weights = tf.io.gfile.join(directory, "task.weights.h5")
    if task is not None and tf.io.gfile.exists(weights):
        place = _REFUSED if refused else _TASK
        stored = {place + name: tensor for name, tensor in read_file(weights).items()}
        tensors |= stored
        others += [Entry("", name) for name in stored if refused]
    return Checkpoint(
        path=directory,
        kind="keras-hub",
        config=config,
        head=head,
        tensors=tensors,
        table=functools.partial(_table, others=tuple(others)),
        head_options=options,
        refused=refused,
    )


def write_preset(directory, config, weights, tokenizer=None):
    """Writes a preset that `keras_hub.models.BertBackbone.from_preset` loads.

    keras-hub's own tokenizer of an uncased vocabulary keeps accents ("café" is not "cafe").

    Args:
        directory: Local path, new or empty; it holds all of the preset or nothing.
        config: The encoder's.
        weights: {path below the model: keras Variable} of an encoder with its pooler.
        tokenizer: (list of WordPiece's pieces, whether text is lower-cased), or None.

    Raises:
        ValueError: When keras-hub's BERT cannot be configured so, or the directory holds something.
    """
    import h5py
    import keras_hub

    settings = _make_settings(config)
    if os.path.exists(directory) and (not os.path.isdir(directory) or os.listdir(directory)):
        raise ValueError(
            "`directory` must be new or empty, so that no other preset's files stay. "
            f"Received: {directory}."
        )
    arrays = collect(weights, _table(config, "encoder"))
    dtype = weights["encoder/embeddings/word_table"].dtype
    backbone = keras_hub.models.BertBackbone(**settings, dtype=dtype)
    draft = f"{os.path.normpath(directory)}.{uuid.uuid4().hex}"
    os.makedirs(draft)
    try:
        # the library reads it, and so refuses names that are not its own
        path = os.path.join(draft, "model.weights.h5")
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array).attrs["dtype"] = str(array.dtype)
        backbone.load_weights(path)
        backbone.save_to_preset(draft)
        if tokenizer is not None:
            vocabulary, lowercase = tokenizer
            keras_hub.models.BertTokenizer(list(vocabulary), lowercase).save_to_preset(draft)
        os.rename(draft, directory)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _read_config(settings, source="a dict"):
    """The EncoderConfig of what a preset's config.json holds, with a pooler."""
    name, given = settings["registered_name"].split(">")[-1], settings.get("config")
    if name not in _BACKBONES:
        raise ValueError(
            f"The backbone must be one of {', '.join(_BACKBONES)}. Received: {name!r} in {source}."
        )
    backbone = _BACKBONES[name]
    keys = _FIELDS | backbone.fields
    found = set(given if isinstance(given, dict) else ()) - {"name", "trainable", "dtype"}
    if found != set(keys):
        raise ValueError(
            f"The config of a {name} must have the keys {', '.join(sorted(keys))}. "
            f"Received: {', '.join(sorted(found))} in {source}."
        )
    if given.get("num_inner_repetitions", 1) != 1:
        raise ValueError(
            "`num_inner_repetitions` must be 1: layers that share weights follow each other. "
            f"Received: {given['num_inner_repetitions']!r} in {source}."
        )
    if name == "AlbertBackbone" and given["embedding_dim"] == given["hidden_dim"]:
        raise ValueError(
            "`embedding_dim` must not be `hidden_dim`: our encoder has no projection then. "
            f"Received: {given['hidden_dim']!r} in {source}."
        )
    fields = {field: given[key] for key, field in keys.items() if field}
    fields |= {"model_type": backbone.model_type, **backbone.fixed}
    fields["attention_probs_dropout_prob"] = given["dropout"]
    if fields.get("embedding_size") == fields["hidden_size"]:
        fields["embedding_size"] = None
    try:
        if "position_offset" in fields:
            fields["max_position_embeddings"] += fields["position_offset"]
        return EncoderConfig.from_dict(fields)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{source} must describe an encoder: {error}") from None


def _make_settings(config):
    """Arguments of the library's BertBackbone.

    Raises:
        ValueError: When it cannot be configured so.
    """
    keys = _FIELDS | _BACKBONES["BertBackbone"].fields
    settings = {key: getattr(config, field) for key, field in keys.items()}
    readable = _read_config({"registered_name": "keras_hub>BertBackbone", "config": settings})
    # what new weights would be drawn from, and other names of the same widths
    free = {"initializer_range": config.initializer_range}
    if (config.groups, config.embedding_width) == (readable.groups, readable.embedding_width):
        free |= {"num_hidden_groups": config.num_hidden_groups, "embedding_size": config.embedding_size}
    ours, theirs = config.to_dict(), dataclasses.replace(readable, **free).to_dict()
    lost = [name for name in ours if ours[name] != theirs[name]]
    if lost:
        needed, found = (
            ", ".join(f"{name} = {fields[name]!r}" for name in lost) for fields in (theirs, ours)
        )
        raise ValueError(f"keras-hub's BertBackbone must have {needed}. Received: {found}.")
    return settings


def _read_task(task, config, source):
    """The head that a task.json describes, its options, and {component: why it is none of ours}."""
    if task is None:
        return "encoder", {}, {}
    name, given = str(task.get("registered_name")).split(">")[-1], task.get("config") or {}
    found = next((found for ending, found in _TASKS.items() if name.endswith(ending)), None)
    if found is None:
        components = set(itertools.chain.from_iterable(HEADS.values())) - {"pooler"}
        has_weights = not name.endswith("TextEmbedder")
        known = f"{source} with a task {name}, not one of {', '.join(_TASKS)}"
        return "encoder", {}, dict.fromkeys(components, known) if has_weights else {}
    head, component = found
    refusal = _refusal(head, config, given)
    if refusal:
        return head, {}, {component: f"the {name} in {source} has {refusal}"}
    if head == "masked_lm":
        return head, {}, {}
    count, rate = given.get("num_classes"), given.get("dropout")
    if not isinstance(count, int) or count < 1 or not isinstance(rate, (int, float)):
        raise ValueError(
            "`num_classes` must be at least 1, and `dropout` a number. "
            f"Received: {count!r} and {rate!r} in {source}."
        )
    labels = [f"LABEL_{i}" for i in range(count)]
    return head, {"label_names": labels, "classifier_dropout": float(rate)}, {}


def _refusal(head, config, given):
    """What of a head's arithmetic no head of ours has; None where it is the same."""
    if head == "masked_lm":
        act, epsilon = config.masked_lm_act, config.layer_norm_eps
        theirs = "gelu_new" if config.model_type == "albert" else "gelu"
        if (act, epsilon) != (theirs, 1e-5):  # MaskedLMHead's default, which no task changes
            return f"{theirs!r} and an epsilon of 1e-05 where its encoder has {act!r} and {epsilon}"
        return None
    if given.get("activation") not in (None, "linear"):
        return f"an activation, {given['activation']!r}, where logits must be"
    if given.get("hidden_dim", config.hidden_size) not in (None, config.hidden_size):
        return f"`hidden_dim` = {given['hidden_dim']}, not the encoder's {config.hidden_size}"
    return None


def _table(config, head, others=()):
    """Names of the tensors: {component: entries}; `others` are those that no model of ours has."""
    dense = _KERAS.dense
    blocks = (_block(config, index) for index in range(config.groups))
    pooler, classifier = f"{_ABSENT}pooler", f"{_TASK}layers/dense"
    if config.model_type in ("bert", "albert"):
        pooler = _pooled_dense(config)
    elif config.model_type != "electra":  # the task's, before its classifier
        pooler = f"{_TASK}layers/dense" if head == "sequence_classification" else pooler
        classifier += "_1"
    masked_lm = f"{_TASK}layers/masked_lm_head"
    components = {
        "encoder": [*_embeddings(config), *itertools.chain.from_iterable(blocks)],
        "pooler": dense("encoder/pooler", pooler),
        "masked_lm": [
            *dense("masked_lm/dense", f"{masked_lm}/_intermediate_dense"),
            *_KERAS.norm("masked_lm/norm", f"{masked_lm}/_intermediate_layer_norm"),
            Entry("masked_lm/bias", f"{masked_lm}/vars/0"),
        ],
        "classifier": dense("classifier", classifier),
        "discriminator": [
            *dense("discriminator/dense", f"{_ABSENT}discriminator"),
            *dense("discriminator/scores", f"{_ABSENT}scores"),
        ],
    }
    for name in ("sentence", "token_classifier", "span", "choice"):
        components[name] = dense(name, _ABSENT + name)
    return {name: components[name] for name in ("encoder", *HEADS[head])} | {"others": list(others)}


def _embeddings(config):
    words, positions = "layers/reversible_embedding", "layers/position_embedding"
    segments = "layers/embedding/vars/0"
    if config.model_type not in ("bert", "albert", "electra"):
        both = "layers/token_and_position_embedding"
        words, positions, segments = f"{both}/token_embedding", f"{both}/position_embedding", None
    if config.position_offset:
        segments = _NO_SEGMENTS
    entries = [
        Entry("encoder/embeddings/word_table", f"{words}/vars/0"),
        Entry("encoder/embeddings/position_table", f"{positions}/vars/0"),
        *_KERAS.norm("encoder/embeddings/norm", "layers/layer_normalization"),
    ]
    if segments:
        entries.append(Entry("encoder/embeddings/segment_table", segments))
    if config.embedding_width != config.hidden_size:
        entries += _KERAS.dense("encoder/embeddings/projection", "layers/dense")
    return entries


def _block(config, index):
    """The entries of one block, whose attention has heads as an axis of their own."""
    place = "layers/transformer_encoder" + (f"_{index}" if index else "")
    attention = f"{place}/_self_attention_layer"
    names = [f"{attention}/{part}_dense" for part in ("query", "key", "value", "output")]
    names += [f"{place}/_self_attention_layer_norm", f"{place}/_feedforward_intermediate_dense"]
    names += [f"{place}/_feedforward_output_dense", f"{place}/_feedforward_layer_norm"]
    width, heads = config.hidden_size, config.num_attention_heads
    split = (heads, width // heads)
    shapes = {f"{attention}/output_dense/vars/0": (*split, width)}
    for name in names[:3]:
        shapes |= {f"{name}/vars/0": (width, *split), f"{name}/vars/1": split}
    return [
        dataclasses.replace(entry, shape=shapes.get(entry.theirs))
        for entry in _KERAS.block(index, names)
    ]


def _pooled_dense(config):
    """The backbone's last dense layer; the first is the projection of narrow embeddings."""
    return "layers/dense" + ("_1" if config.embedding_width != config.hidden_size else "")


def _add_rows(tensors, config):
    """Makes the tables of a RoBERTa those of its authors' checkpoints.

    The library's position table starts with the first token's row, and it has no segments. There,
    rows of zeros that no token has come before it, and the one segment's row is of zeros.
    """
    name = "layers/token_and_position_embedding/position_embedding/vars/0"
    table, count = tensors.get(name), config.position_offset
    if table is not None:
        shape = (count + table.shape[0], *table.shape[1:])
        tensors[name] = Tensor(shape, table.dtype, lambda: _below_zeros(table.read(), count))
    shape = (1, config.hidden_size)
    tensors[_NO_SEGMENTS] = Tensor(shape, "float32", lambda: np.zeros(shape, "float32"))


def _below_zeros(array, count):
    return np.concatenate([np.zeros((count, *array.shape[1:]), array.dtype), array])


def _read_backbone(directory):
    """{name: Tensor} of the one file of weights, or of all that an index names."""
    single, index = (
        tf.io.gfile.join(directory, f"model.weights.{ending}") for ending in ("h5", "json")
    )
    if tf.io.gfile.exists(single) or not tf.io.gfile.exists(index):
        return read_file(single)
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict):
        raise ValueError(f"`weight_map` must be an object. Received: {places!r} in {index}.")
    lists = (place if isinstance(place, list) else [place] for place in places.values())
    tensors = {}
    for file in sorted({str(file) for files in lists for file in files}):
        if os.path.basename(file) != file:
            raise ValueError(f"`weight_map` must name files beside it. Received: {file!r} in {index}.")
        stored = read_file(tf.io.gfile.join(directory, file))
        if tensors.keys() & stored.keys():
            raise ValueError(
                "Files of weights must hold each tensor once. "
                f"Received: {sorted(tensors.keys() & stored.keys())[:5]} again in {file}."
            )
        tensors |= stored
    return tensors
