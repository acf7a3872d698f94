"""modules.json: how a directory of sentence-transformers is made up of parts."""

import tensorflow as tf

from keras_bert.files import read_json


def transformer_directory(directory):
    """The part that holds the encoder and its tokenizer; the directory itself, if it has no parts.

    Raises:
        ValueError: When modules.json names no such part, or several.
    """
    path = tf.io.gfile.join(directory, "modules.json")
    if not tf.io.gfile.exists(path):
        return directory
    modules = read_json(path, list)
    paths = [module["path"] for module in modules if module["type"].endswith(".Transformer")]
    if len(paths) != 1:
        raise ValueError(
            "modules.json must name one module of type Transformer. "
            f"Received: {[module['type'] for module in modules]} in {directory}."
        )
    return tf.io.gfile.join(directory, paths[0]) if paths[0] else directory
