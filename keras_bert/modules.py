"""modules.json: how a directory of sentence-transformers is made up of parts."""

import tensorflow as tf

from keras_bert.files import read_json

# The last part of a module's type; the later ones are of the library's first versions, and of SPLADE.
_ENCODERS = (
    "Transformer",
    "MLMTransformer",
    "BERT",
    "RoBERTa",
    "XLMRoBERTa",
    "CamemBERT",
    "ALBERT",
    "DistilBERT",
)


def transformer_directory(directory):
    """The part that holds the encoder and its tokenizer; the directory itself, if it has no parts.

    Raises:
        ValueError: When modules.json names no such part, or several.
    """
    path = tf.io.gfile.join(directory, "modules.json")
    if not tf.io.gfile.exists(path):
        return directory
    modules = read_json(path, list)
    try:
        kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
        paths = [
            module["path"] for module, kind in zip(modules, kinds, strict=True) if kind in _ENCODERS
        ]
    except (AttributeError, KeyError, TypeError):
        raise ValueError(
            f"modules.json must hold objects with `type` and `path`. Received: {str(modules)[:80]} in "
            f"{directory}."
        ) from None
    if len(paths) != 1:
        raise ValueError(
            f"modules.json must name one module of type Transformer. Received: {kinds} in {directory}."
        )
    return tf.io.gfile.join(directory, paths[0]) if paths[0] else directory
