"""The directory of a run: one run's, with the settings that it began with."""

import dataclasses
import json
import posixpath

import tensorflow as tf

from keras_bert.files import read_json, write_atomically


def in_workdir(recipe, name):
    """The path of a file or folder in a run's directory."""
    return posixpath.join(recipe.workdir, name)


def prepare_workdir(recipe):
    """Makes the directory with the resolved recipe in it, or checks that the run there has the same.

    Args:
        recipe: A recipe with `workdir`, `free_fields` (names of those that may differ) and `begun`
            (what a run that has begun has in its directory).

    Raises:
        ValueError: When the directory holds a run of other settings.
    """
    path, values = in_workdir(recipe, "recipe.json"), dataclasses.asdict(recipe)
    values = json.loads(json.dumps(values))  # as they are read again
    try:
        tf.io.gfile.makedirs(recipe.workdir)
        if not tf.io.gfile.exists(path):
            write_atomically(path, json.dumps(values, indent=1) + "\n")
    except tf.errors.OpError as error:
        raise ValueError(
            f"`workdir` must be a directory that can be written to. Received: {recipe.workdir} "
            f"({error.message})."
        ) from error
    before = read_json(path)
    changed = {
        name: (before[name], value)
        for name, value in values.items()
        if name not in recipe.free_fields and before.get(name, value) != value
    }
    if changed and not any(tf.io.gfile.exists(in_workdir(recipe, name)) for name in recipe.begun):
        write_atomically(path, json.dumps(values, indent=1) + "\n")  # nothing came of the run before
        return
    if changed:
        listed = ", ".join(f"{name} was {old!r}, is {new!r}" for name, (old, new) in changed.items())
        raise ValueError(
            "A run must go on with the settings it began with. "
            f"Received in {recipe.workdir}: {listed}. "
            "Choose another --workdir, or remove this one."
        )
