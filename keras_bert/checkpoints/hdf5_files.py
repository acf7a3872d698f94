"""Files of weights that Keras 3 writes (`*.weights.h5`), read tensor by tensor."""

import contextlib
import functools
import os
import re

import tensorflow as tf

from keras_bert.checkpoints.weights import Tensor


def read_file(path):
    """{name: Tensor} of one file; the layers of attention have the names of today's Keras.

    Raises:
        ValueError: When the file is missing or damaged.
    """
    import h5py

    tensors = {}

    def add(name, item):
        # states of an optimizer and of dropout are no weights
        if not isinstance(item, h5py.Dataset) or re.search("(^|/)(optimizer|seed_generator)/", name):
            return
        if item.external or item.is_virtual:
            raise ValueError(f"A tensor must lie in its own file. Received: {name} in {path}.")
        # of two bytes of no type: bfloat16 is none of HDF5's
        dtype = "bfloat16" if item.dtype == "V2" else str(item.dtype)
        # Keras 3.0 went by the private names of these layers
        known = re.sub("/_(query|key|value|output)_dense/", r"/\1_dense/", name)
        tensors[known] = Tensor(item.shape, dtype, functools.partial(_read, path, name, dtype))

    with _opened(path) as file:
        file.visititems(add)
    return tensors


def _read(path, name, dtype):
    with _opened(path) as file:
        return file[name][()].view(tf.as_dtype(dtype).as_numpy_dtype)


@contextlib.contextmanager
def _opened(path):
    """An HDF5 file, local or remote, whose damage is a ValueError."""
    import h5py

    if not tf.io.gfile.exists(path):
        raise ValueError(f"The file of weights must exist. Received: {path}.")
    try:
        with contextlib.ExitStack() as stack:
            local = path
            if not os.path.exists(path):
                local = stack.enter_context(tf.io.gfile.GFile(path, "rb"))
            yield stack.enter_context(h5py.File(local, "r"))
    except (OSError, RuntimeError, KeyError) as error:
        raise ValueError(f"The file must be a whole HDF5 file. Received: {path}: {error}.") from None
