"""Directories of `transformers`: config.json beside model.safetensors, read and written."""

import itertools
import json

import numpy as np
import tensorflow as tf

from keras_bert.checkpoints.huggingface_config import (
    foreign_settings,
    make_settings,
    read_config,
    read_head,
)
from keras_bert.checkpoints.huggingface_names import duplicates, modern, table, weight_prefix
from keras_bert.checkpoints.safetensors_files import WEIGHTS, has_tensors, read_tensors, remove_shards
from keras_bert.checkpoints.weights import FLOATS, Checkpoint, collect
from keras_bert.files import read_json, write_atomically
from keras_bert.modules import transformer_directory

# Buffers of the library's modules, which older versions stored.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


def is_here(directory):
    """Whether a directory holds a config.json of this format, with weights beside it."""
    return has_config(directory) and has_tensors(directory)


def has_config(directory):
    """Whether a directory holds a config.json of this format."""
    path = tf.io.gfile.join(directory, "config.json")
    return tf.io.gfile.exists(path) and "model_type" in read_json(path)


def open_directory(directory):
    """Opens a directory as a Checkpoint.

    Raises:
        ValueError: When the architecture is not of the BERT family, or files are missing or damaged.
    """
    config_path = tf.io.gfile.join(directory, "config.json")
    settings = read_json(config_path)
    config = read_config(settings, config_path)
    tensors = read_tensors(directory)
    prefix = f"{weight_prefix(config.model_type)}."
    renamed = {}
    for name, tensor in tensors.items():
        name = modern(name.removeprefix(prefix))
        if name in _BUFFERS:
            continue
        if name in renamed:
            raise ValueError(
                f"A directory must hold each tensor once. Received: {name} twice, in {directory}."
            )
        renamed[name] = tensor
    head, options = read_head(settings, config, config_path)
    return Checkpoint(
        path=directory,
        kind="Hugging Face",
        config=config,
        head=head,
        tensors=renamed,
        table=table,
        head_options=options,
        foreign=foreign_settings(settings),
        duplicates=duplicates(config.model_type),
    )


def write_directory(directory, config, head, weights, head_options=None, foreign=None, dtype=None):
    """Writes config.json and model.safetensors, which `transformers`' Auto classes load.

    Args:
        directory: Local or remote path; files of these names are replaced.
        config: The encoder's.
        head: A key of `HEADS`.
        weights: {path below the model: keras Variable}
        head_options: As `Checkpoint.head_options`.
        foreign: As `Checkpoint.foreign`.
        dtype: Type to store floats in, such as "bfloat16"; None keeps that of the weights.

    Raises:
        ValueError: When the library has no such model.
    """
    import safetensors.numpy

    if dtype is not None and dtype not in FLOATS:
        raise ValueError(f"`dtype` must be one of {', '.join(FLOATS)}. Received: {dtype!r}.")
    if transformer_directory(directory) != directory:
        raise ValueError(
            "The directory must not have its model in another part, which modules.json names: save "
            f"into {transformer_directory(directory)}. Received: {directory}."
        )
    settings = make_settings(config, head, head_options or {}, foreign or {})
    prefix = "" if head == "encoder" else f"{weight_prefix(config.model_type)}."
    encoder = itertools.chain.from_iterable(table(config, "encoder").values())
    of_encoder = {entry.theirs for entry in encoder}
    arrays = {
        prefix + name if name in of_encoder else name: array if dtype is None else _cast(array, dtype)
        for name, array in collect(weights, table(config, head)).items()
    }
    settings["dtype"] = str(next(iter(arrays.values())).dtype)
    tf.io.gfile.makedirs(directory)
    content = safetensors.numpy.save(arrays, metadata={"format": "pt"})
    write_atomically(tf.io.gfile.join(directory, WEIGHTS), content)
    remove_shards(directory)  # of a checkpoint that was here before
    # last: a directory with a config is complete
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    write_atomically(tf.io.gfile.join(directory, "config.json"), text)


def _cast(array, dtype):
    """An array of floats as another type, refused where that type has no room for a value."""
    cast = array.astype(tf.as_dtype(dtype).as_numpy_dtype)
    if not np.isfinite(cast.astype("float32")).all() and np.isfinite(array.astype("float32")).all():
        raise ValueError(f"The weights must lie in the range of {dtype}. Received: larger ones.")
    return cast
