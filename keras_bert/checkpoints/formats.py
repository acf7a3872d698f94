"""Which format a path holds, and the reader for it."""

import os

import tensorflow as tf

from keras_bert.checkpoints import huggingface, keras_hub, model_garden, tf1
from keras_bert.modules import transformer_directory

HUB = "hf://"


def open_checkpoint(path):
    """Opens what a path holds as a Checkpoint, whichever library wrote it.

    Args:
        path: A directory, local or remote (`gs://...`), or `hf://owner/name[@revision]`, which is
            downloaded from the Hugging Face Hub into its cache.

    Raises:
        ValueError: When nothing there is of a known format.
    """
    path = local_directory(path)
    if not tf.io.gfile.isdir(path):
        raise ValueError(f"The checkpoint must be an existing directory. Received: {path}.")
    path = transformer_directory(path)
    try:
        for reader in (huggingface, keras_hub, tf1, model_garden):
            if reader.is_here(path):
                return reader.open_directory(path)
        if huggingface.has_config(path):
            return huggingface.open_directory(path)  # which says what is missing
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            "The files of a checkpoint must have the form that its library gives them. "
            f"Received: {path}, where reading ends with {type(error).__name__}: {error}."
        ) from error
    names = sorted(tf.io.gfile.listdir(path))
    raise ValueError(
        "The directory must be of transformers or sentence-transformers (config.json with a "
        "`model_type`), a preset of keras-hub (with a `registered_name`), or of google-research/bert, "
        "google-research/albert or Model Garden (a checkpoint, *.index, beside bert_config.json, "
        "albert_config.json or params.yaml). "
        f"Received: {path} with {names}."
    )


def local_directory(path):
    """The directory that a path names, downloaded if need be."""
    path = os.fspath(path)
    return _download(path.removeprefix(HUB)) if path.startswith(HUB) else path


def _download(name):
    from huggingface_hub import errors, snapshot_download

    name, _, revision = name.partition("@")
    # no pickles, and no other library's weights
    wanted = ["*.json", "*.txt", "*.model", "*.spm", "*.safetensors", "*.weights.h5"]
    try:
        return snapshot_download(name, revision=revision or None, allow_patterns=wanted)
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, errors.HFValidationError) as error:
        raise ValueError(
            f"The Hub, or its cache here, must have the model. Received: {HUB}{name}, "
            f"{str(error).strip().splitlines()[0]}"
        ) from None
