"""Files of weights that are read tensor by tensor: one, or several with an index."""

import functools
import os
import shlex
import tempfile

import tensorflow as tf

from keras_bert.checkpoints.weights import Tensor
from keras_bert.files import read_json

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"


def has_tensors(directory):
    """Whether a directory holds files of weights."""
    return any(tf.io.gfile.exists(tf.io.gfile.join(directory, name)) for name in (WEIGHTS, _INDEX))


def read_tensors(directory):
    """{name as stored: Tensor} of all files of weights."""
    single, index = (tf.io.gfile.join(directory, name) for name in (WEIGHTS, _INDEX))
    if tf.io.gfile.exists(single):
        return _read_safetensors(single)
    if not tf.io.gfile.exists(index):
        raise _no_weights(directory)
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(each, str) for each in places.values()):
        raise ValueError(
            f"`weight_map` must be an object of file names. Received: {str(places)[:80]} in {index}."
        )
    tensors = {}
    for file in sorted(set(places.values())):
        if os.path.basename(file) != file:
            raise ValueError(f"`weight_map` must name files beside it. Received: {file!r} in {index}.")
        stored = _read_safetensors(tf.io.gfile.join(directory, file))
        listed = {name for name, place in places.items() if place == file}
        if set(stored) != listed:
            raise ValueError(
                f"{file} must hold the tensors that {_INDEX} lists for it. "
                f"Received: {sorted(set(stored) ^ listed)[:5]} in one of them alone."
            )
        tensors |= stored
    return tensors


def remove_shards(directory):
    """Removes what an index names, and the index, where a whole file has taken their place."""
    index = tf.io.gfile.join(directory, _INDEX)
    if not tf.io.gfile.exists(index):
        return
    files = {os.path.basename(name) for name in read_json(index).get("weight_map", {}).values()}
    for name in [*sorted(files - {WEIGHTS}), _INDEX]:
        path = tf.io.gfile.join(directory, name)
        if tf.io.gfile.exists(path):
            tf.io.gfile.remove(path)


def _read_safetensors(path):
    import safetensors

    if not tf.io.gfile.exists(path):
        raise ValueError(f"The file of weights must exist. Received: {path}.")
    try:
        file = _map(path)
        described = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(
            f"The file must be a whole safetensors file. Received: {path}: {error}."
        ) from None
    # Mapped anew for each tensor, a file takes the memory of one; a remote one keeps its only map.
    remap = (lambda: _map(path)) if os.path.exists(path) else (lambda: file)
    return {
        name: Tensor(
            tuple(each.get_shape()),
            _DTYPES.get(each.get_dtype(), each.get_dtype()),
            functools.partial(_read_tensor, remap, name),
        )
        for name, each in described.items()
    }


def _read_tensor(remap, name):
    return remap().get_tensor(name)


def _map(path):
    """Maps a file into memory, so that no more of it is read than is asked for."""
    from safetensors import safe_open

    if os.path.exists(path):
        return safe_open(path, framework="numpy")
    with tempfile.TemporaryDirectory() as folder:  # a remote one
        local = os.path.join(folder, "weights")
        tf.io.gfile.copy(path, local)
        return safe_open(local, framework="numpy")  # what is mapped stays when its name is gone


def _no_weights(directory):
    names = sorted(tf.io.gfile.listdir(directory))
    pickles = [name for name in names if name.endswith((".bin", ".pt", ".pth"))]
    if pickles:
        return ValueError(
            f"The weights must be a {WEIGHTS}: a pickle such as {pickles[0]} can run any code when it "
            "is read. Where you trust it, this writes a directory that can be read: "
            f"{conversion_command(directory)} Received: {directory}."
        )
    return ValueError(
        f"The directory must hold {WEIGHTS}, or several with an index (pickles are not read, nor "
        f"downloaded). Received: {directory} with {names}."
    )


def conversion_command(directory, target="converted"):
    """A shell command that turns pickles into safetensors; it needs transformers and torch."""
    code = (
        f"import transformers as t; d, to = {os.fspath(directory)!r}, {os.fspath(target)!r}; "
        "name = (t.AutoConfig.from_pretrained(d).architectures or ['AutoModel'])[0]; "
        "getattr(t, name).from_pretrained(d).save_pretrained(to); "
        "t.AutoTokenizer.from_pretrained(d).save_pretrained(to)"
    )
    return f"python -c {shlex.quote(code)}"
