"""Releases of google-research/bert and google-research/albert: TF1 variables by name."""

import itertools

from keras_bert.checkpoints.google_config import config_path, label_options, read_config
from keras_bert.checkpoints.tensorflow_files import (
    OBJECTS,
    find_checkpoint,
    has_checkpoint,
    read_tensors,
)
from keras_bert.checkpoints.weights import HEADS, Checkpoint, Entry, Style, find_head

_TF1 = Style("/kernel", "/bias", "/gamma", "/beta")
# The last part of an optimizer's slot: Adam's and LAMB's of the two libraries, and TensorFlow's own.
_SLOTS = (
    "adam_m",
    "adam_v",
    "Adam",
    "Adam_1",
    "AdamWeightDecayOptimizer",
    "AdamWeightDecayOptimizer_1",
)
_COUNTERS = ("global_step", "beta1_power", "beta2_power")


def is_here(directory):
    """Whether a directory holds a checkpoint of TF1 beside its config."""
    if config_path(directory) is None or not has_checkpoint(directory):
        return False
    return OBJECTS not in read_tensors(find_checkpoint(directory))


def open_directory(directory):
    """Opens a directory as a Checkpoint.

    Raises:
        ValueError: When the architecture is none of the two, or files are missing or damaged.
    """
    tensors = {
        name: tensor
        for name, tensor in read_tensors(find_checkpoint(directory)).items()
        if name not in _COUNTERS and name.rsplit("/", 1)[-1] not in _SLOTS
    }
    config, options = read_config(config_path(directory)), {}
    _check_groups(config, directory)
    if "output_weights" in tensors:
        # run_classifier.py has this rate in the code, whatever the config says
        options = {**label_options(tensors["output_weights"].shape[0]), "classifier_dropout": 0.1}
    return Checkpoint(
        path=directory,
        kind="TF1",
        config=config,
        head=find_head(tensors, config, table),
        tensors=tensors,
        table=table,
        head_options=options,
    )


def table(config, head):
    """Names of the variables: {component: entries}.

    Where the libraries have no such model, its components have names that no file holds.
    """
    is_albert = config.model_type == "albert"
    names = _albert_names if is_albert else _bert_names
    blocks = (_TF1.block(index, names(index)) for index in range(config.groups))
    components = {
        "encoder": [*_embeddings(config), *itertools.chain.from_iterable(blocks)],
        "pooler": _TF1.dense("encoder/pooler", "bert/pooler/dense"),
        "masked_lm": [
            *_TF1.dense("masked_lm/dense", "cls/predictions/transform/dense"),
            *_TF1.norm("masked_lm/norm", "cls/predictions/transform/LayerNorm"),
            Entry("masked_lm/bias", "cls/predictions/output_bias"),
        ],
        "sentence": _scores("sentence", "cls/seq_relationship/"),
        "classifier": _scores("classifier", ""),
        "token_classifier": _scores("token_classifier", "token_classifier/"),
        "span": _scores("span", "cls/squad/"),
        "choice": _scores("choice", "choice/"),
        "discriminator": [
            *_TF1.dense("discriminator/dense", "discriminator_predictions/dense"),
            *_TF1.dense("discriminator/scores", "discriminator_predictions/dense_1"),
        ],
    }
    return {name: components[name] for name in ("encoder", *HEADS[head])}


def _embeddings(config):
    tables = {"word_table": "word", "position_table": "position", "segment_table": "token_type"}
    entries = [
        Entry(f"encoder/embeddings/{ours}", f"bert/embeddings/{theirs}_embeddings")
        for ours, theirs in tables.items()
    ]
    entries += _TF1.norm("encoder/embeddings/norm", "bert/embeddings/LayerNorm")
    if config.embedding_width != config.hidden_size:
        theirs = "bert/encoder/embedding_hidden_mapping_in"
        entries += _TF1.dense("encoder/embeddings/projection", theirs)
    return entries


def _bert_names(index):
    names = ("attention/self/query", "attention/self/key", "attention/self/value")
    names += ("attention/output/dense", "attention/output/LayerNorm")
    names += ("intermediate/dense", "output/dense", "output/LayerNorm")
    return [f"bert/encoder/layer_{index}/{name}" for name in names]


def _albert_names(index):
    names = ("attention_1/self/query", "attention_1/self/key", "attention_1/self/value")
    names += ("attention_1/output/dense", "LayerNorm")
    names += ("ffn_1/intermediate/dense", "ffn_1/intermediate/output/dense", "LayerNorm_1")
    return [f"bert/encoder/transformer/group_{index}/inner_group_0/{name}" for name in names]


def _check_groups(config, directory):
    """Refuses the few numbers of groups for which ALBERT's sum in floats makes no equal runs."""
    layers, groups = config.num_hidden_layers, config.groups
    theirs = [int(layer / layers * groups) for layer in range(layers)]
    if config.model_type == "albert" and theirs != [
        layer * groups // layers for layer in range(layers)
    ]:
        raise ValueError(
            "`num_hidden_groups` must be one for which google-research/albert shares weights in equal "
            f"runs of layers. Received: {groups} groups of {layers} layers, the layers in groups "
            f"{theirs}, in {directory}."
        )


def _scores(ours, place):
    """The last layer of a head; unlike others, its kernel is (out, in)."""
    return [
        Entry(f"{ours}/kernel", f"{place}output_weights", transposed=True),
        Entry(f"{ours}/bias", f"{place}output_bias"),
    ]
