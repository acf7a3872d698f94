"""Checkpoints of objects of TensorFlow's Model Garden (tf-models-official, NLP)."""

import dataclasses
import functools
import itertools
import re

import tensorflow as tf

from keras_bert.checkpoints.google_config import (
    config_path,
    label_options,
    make_config,
    read_config,
)
from keras_bert.checkpoints.tensorflow_files import (
    OBJECTS,
    find_checkpoint,
    has_checkpoint,
    read_tensors,
)
from keras_bert.checkpoints.weights import HEADS, Checkpoint, Entry, Style, find_head
from keras_bert.files import read_text

_PARAMS = "params.yaml"
_GARDEN = Style("/kernel", "/bias", "/gamma", "/beta")
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# Parts of a path that lead to no weight: an optimizer and its slots, what `fit` counts, and counters.
_SKIPPED = {".OPTIMIZER_SLOT", "optimizer", "keras_api", "save_counter", "global_step"}
_POSITIONS = re.compile(r"(.*/)?(layer_with_weights-1|_position_embedding_layer)/embeddings")
_EMBEDDINGS = ("_embedding_layer", "_position_embedding_layer", "_type_embedding_layer")
_EMBEDDINGS += ("_embedding_norm_layer",)
_FUNCTIONAL = re.compile(r"layer_with_weights-(\d+)/")
# The paths of a head's layers, in a BertPretrainerV2 or in a functional model behind the encoder.
_HEADS = (
    (re.compile(r"[^/]+\.\.pooler_dense/"), "pooler_dense/"),
    (re.compile(r"classification_heads/0/dense/"), "pooler_dense/"),
    (re.compile(r"classification_heads/0/out_proj/"), "sentence/"),
    (re.compile(r"layer_with_weights-1/dense/"), "pooler_dense/"),
    (re.compile(r"layer_with_weights-1/out_proj/"), "classifier/"),
    (re.compile(r"layer_with_weights-1/layer_with_weights-0/"), "span/"),
    (re.compile(r"layer_with_weights-1/"), "token_classifier/"),
)
_LABELLED = ("classifier", "token_classifier")
_FIELDS = {  # of params.yaml, where it has another name for a key of bert_config.json
    "num_layers": "num_hidden_layers",
    "hidden_activation": "hidden_act",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    "embedding_width": "embedding_size",
}
# What params.yaml must say of an encoder, or not say; and what chooses outputs, not their values.
_REQUIRED = {"norm_first": False, "output_range": None}
_HEAD_REQUIRED = {"activation": "tanh", "cls_token_idx": 0}
_IGNORED = {"return_all_encoder_outputs", "return_attention_scores", "return_word_embeddings"}


def is_here(directory):
    """Whether a directory holds a checkpoint of objects beside its config."""
    if _config_path(directory) is None or not has_checkpoint(directory):
        return False
    return OBJECTS in read_tensors(find_checkpoint(directory))


def open_directory(directory):
    """Opens a directory as a Checkpoint.

    It may be of a BertEncoder, a BertEncoderV2 or an AlbertEncoder, alone or inside of a
    BertPretrainerV2, BertClassifier, BertTokenClassifier or BertSpanLabeler. Which one is told by the
    paths that lead to the weights; the names of the tensors here are those of a BertEncoderV2.

    Raises:
        ValueError: When the architecture is none of these, or files are missing or damaged.
    """
    path = _config_path(directory)
    config = _read_params(path) if path.endswith(_PARAMS) else read_config(path)
    tensors = {
        name.removesuffix(_VALUE): tensor
        for name, tensor in read_tensors(find_checkpoint(directory)).items()
        if name != OBJECTS and not _SKIPPED & set(name.split("/"))
    }
    place = _encoder_place(tensors, directory)
    renamed = {}
    for name, tensor in tensors.items():
        new = _rename(name, place, config)
        if new in renamed:
            raise ValueError(
                f"A checkpoint must hold each weight once. Received: {new} twice, in {directory}."
            )
        renamed[new] = tensor
    labelled = next((name for name in _LABELLED if f"{name}/bias" in renamed), "")
    names = functools.partial(table, has_own_pooler="pooler_dense/kernel" in renamed)
    return Checkpoint(
        path=directory,
        kind="Model Garden",
        config=config,
        head=find_head(renamed, config, names),
        tensors=renamed,
        table=names,
        head_options=label_options(renamed[f"{labelled}/bias"].shape[0]) if labelled else {},
        duplicates={"masked_lm/embedding_table": "encoder/_embedding_layer/embeddings"},
    )


def table(config, head, has_own_pooler=False):
    """Names of the tensors: {component: entries}.

    Where the library has no such model, its components have names that no file holds.

    Args:
        config, head: As `Checkpoint.table` takes them.
        has_own_pooler: Whether a head reads a pooler of its own: that of the encoder is then there,
            but nothing trained it.
    """
    blocks = (_block(config, index) for index in range(config.groups))
    pooler = _GARDEN.dense("encoder/pooler", "encoder/_pooler_layer")
    if has_own_pooler:
        # known, but no weight of ours
        pooler = [dataclasses.replace(entry, ours="") for entry in pooler]
        pooler += _GARDEN.dense("encoder/pooler", "pooler_dense")
    components = {
        "encoder": [*_embeddings(config), *itertools.chain.from_iterable(blocks)],
        "pooler": pooler,
        "masked_lm": [
            *_GARDEN.dense("masked_lm/dense", "masked_lm/dense"),
            *_GARDEN.norm("masked_lm/norm", "masked_lm/layer_norm"),
            Entry("masked_lm/bias", "masked_lm/output_bias.Sbias"),
        ],
        **{
            name: _GARDEN.dense(name, name)
            for name in ("sentence", "classifier", "token_classifier", "span", "choice")
        },
        "discriminator": [
            *_GARDEN.dense("discriminator/dense", "discriminator/dense"),
            *_GARDEN.dense("discriminator/scores", "discriminator/scores"),
        ],
    }
    return {name: components[name] for name in ("encoder", *HEADS[head])}


def _embeddings(config):
    tables = ("word_table", "position_table", "segment_table")
    entries = [
        Entry(f"encoder/embeddings/{ours}", f"encoder/{theirs}/embeddings")
        for ours, theirs in zip(tables, _EMBEDDINGS[:3], strict=True)
    ]
    entries += _GARDEN.norm("encoder/embeddings/norm", "encoder/_embedding_norm_layer")
    if config.embedding_width != config.hidden_size:
        theirs = "encoder/_embedding_projection"
        entries += _GARDEN.dense("encoder/embeddings/projection", theirs)
    return entries


def _block(config, index):
    """The entries of a block; the attention's tensors have an axis of heads H, each K wide."""
    names = [f"_attention_layer/_{name}_dense" for name in ("query", "key", "value", "output")]
    names += ["_attention_layer_norm", "_intermediate_dense", "_output_dense", "_output_layer_norm"]
    names = [f"encoder/_transformer_layers/{index}/{name}" for name in names]
    heads, width = config.num_attention_heads, config.hidden_size
    split = (heads, width // heads)
    shapes = {f"{names[3]}/kernel": (*split, width)}
    for name in names[:3]:
        shapes |= {f"{name}/kernel": (width, *split), f"{name}/bias": split}
    return [
        dataclasses.replace(entry, shape=shapes.get(entry.theirs))
        for entry in _GARDEN.block(index, names)
    ]


def _encoder_place(names, directory):
    """The path of the encoder's object, with a slash behind it; it is where the position table lies."""
    places = sorted({match[1] or "" for match in map(_POSITIONS.fullmatch, names) if match})
    if len(places) != 1:
        raise ValueError(
            "The checkpoint must hold the position table of one BertEncoder, BertEncoderV2 or "
            f"AlbertEncoder. Received: {places} in {directory}, with {sorted(names)[:5]}, ..."
        )
    return places[0]


def _rename(name, place, config):
    """A tensor's path as it is in a BertEncoderV2, or in a model of one head."""
    if name.startswith(place):
        name = name.removeprefix(place)
        layers = [*_EMBEDDINGS]
        if config.embedding_width != config.hidden_size:
            layers.append("_embedding_projection")
        layers += [f"_transformer_layers/{index}" for index in range(config.groups)]
        layers.append("_pooler_layer")
        match = _FUNCTIONAL.match(name)
        if match and int(match[1]) < len(layers):
            name = f"{layers[int(match[1])]}/{name[match.end() :]}"
        # an older block had the same layer under this name too
        return "encoder/" + name.replace(
            "/_attention_output_dense/", "/_attention_layer/_output_dense/"
        )
    name = name.removeprefix("model/")
    for pattern, head in _HEADS:
        match = pattern.match(name)
        if match:
            return head + name[match.end() :]
    return name


def _config_path(directory):
    path = tf.io.gfile.join(directory, _PARAMS)
    return config_path(directory) or (path if tf.io.gfile.exists(path) else None)


def _read_params(path):
    """The EncoderConfig of what the library's trainer writes beside its checkpoints."""
    import yaml

    try:
        model = yaml.safe_load(read_text(path))["task"]["model"]
        kind = model["encoder"]["type"]
        settings = model["encoder"].get(kind) or {}
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"The file must be YAML with `task.model.encoder`. Received: {path}: {error!r}."
        ) from None
    if kind not in ("bert", "albert"):
        raise ValueError(f"`type` of the encoder must be bert or albert. Received: {kind!r} in {path}.")
    for key, value in _REQUIRED.items():
        if settings.get(key, value) != value:
            raise ValueError(f"`{key}` must be {value}. Received: {settings[key]!r} in {path}.")
    for head in model.get("cls_heads") or []:
        for key, value in _HEAD_REQUIRED.items():
            if head.get(key, value) != value:
                raise ValueError(
                    f"`{key}` of a head must be {value!r}. Received: {head[key]!r} in {path}."
                )
    activation = settings.get("hidden_activation", "gelu")
    if model.get("mlm_activation", activation) != activation:
        raise ValueError(
            "`mlm_activation` must be that of the encoder. "
            f"Received: {model['mlm_activation']!r} beside {activation!r} in {path}."
        )
    settings = {
        _FIELDS.get(key, key): value
        for key, value in settings.items()
        if key not in _REQUIRED and key not in _IGNORED
    }
    return make_config(settings, kind, path)
