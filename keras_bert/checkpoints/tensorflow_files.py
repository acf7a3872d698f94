"""Checkpoints of TensorFlow, of variables by name (TF1) or of objects (TF2), read tensor by tensor."""

import functools
import os

import numpy as np
import tensorflow as tf

from keras_bert.checkpoints.weights import Tensor

OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"  # is in every checkpoint of objects, and in no other
_INDEX = ".index"


def has_checkpoint(directory):
    """Whether a directory holds files of a checkpoint."""
    return any(name.endswith(_INDEX) for name in tf.io.gfile.listdir(directory))


def find_checkpoint(directory):
    """The path of a directory's checkpoint, without suffix: the only one, or else the latest.

    Raises:
        ValueError: When there are several, and no file `checkpoint` that names one of them.
    """
    names = sorted(
        name.removesuffix(_INDEX) for name in tf.io.gfile.listdir(directory) if name.endswith(_INDEX)
    )
    if len(names) != 1:
        state = tf.train.get_checkpoint_state(directory)
        # the path in it is of the machine that wrote it
        latest = os.path.basename(state.model_checkpoint_path) if state else None
        if latest not in names:
            raise ValueError(
                "The directory must hold one checkpoint, or a file `checkpoint` that names the latest. "
                f"Received: {directory} with {names}, of which the latest is {latest}."
            )
        names = [latest]
    return tf.io.gfile.join(directory, names[0])


def read_tensors(path):
    """{name as stored: Tensor} of a checkpoint, `path` without suffix.

    Raises:
        ValueError: When the index is damaged, or the files of data are shorter than what it lists.
    """
    try:
        reader = tf.train.load_checkpoint(path)
        shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"The index must be a whole one of TensorFlow. Received: {path}{_INDEX}: {error}."
        ) from None
    # a lower bound: the index does not say how long strings are
    sizes = {name: kind.size for name, kind in types.items() if kind != tf.string}
    needed = sum(int(np.prod(shapes[name])) * size for name, size in sizes.items())
    found = sum(tf.io.gfile.stat(file).length for file in tf.io.gfile.glob(f"{path}.data-*"))
    if found < needed:
        raise ValueError(
            f"The files of data must hold the {needed} bytes or more that the index lists. "
            f"Received: {found} bytes in {path}.data-*."
        )
    return {
        name: Tensor(
            tuple(shapes[name]), types[name].name, functools.partial(_read, reader, name, path)
        )
        for name in shapes
    }


def _read(reader, name, path):
    try:
        return reader.get_tensor(name)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"The files of data must hold every tensor as it was written. Received: {name} in {path}: "
            f"{error}."
        ) from None
