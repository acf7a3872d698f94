"""Reading and writing small files, local or remote (`gs://...`): whole, or not at all."""

import json
import os
import uuid

import tensorflow as tf


def read_text(path, what="The file"):
    """The UTF-8 content of a file; `what` names it in errors.

    Raises:
        ValueError: When there is no such file, or it is not UTF-8 (with the first bad byte's place).
    """
    path = os.fspath(path)
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise ValueError(f"{what} must be an existing file. Received: {path}.")
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{what} must be UTF-8. "
            f"Received: {path} with {content[error.start : error.end]!r} at byte {error.start}."
        ) from None


def read_json(path, kind=dict):
    """What a JSON file holds: an object, as a dict, or what else `kind` says.

    Raises:
        ValueError: As `read_text` does, or when the file holds something else.
    """
    path = os.fspath(path)
    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"The file must be JSON. Received: {path}, {error}.") from None
    if not isinstance(content, kind):
        raise ValueError(
            f"The JSON of the file must be a {kind.__name__}. "
            f"Received: a {type(content).__name__} in {path}."
        )
    return content


def write_atomically(path, content):
    """Writes text (as UTF-8) or bytes so that `path` never holds half of it."""
    path = os.fspath(path)
    draft = f"{path}.{uuid.uuid4().hex}"
    try:
        with tf.io.gfile.GFile(draft, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
        tf.io.gfile.rename(draft, path, overwrite=True)
    except tf.errors.OpError:
        if tf.io.gfile.exists(draft):
            tf.io.gfile.remove(draft)
        raise
