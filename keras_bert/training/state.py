"""Saving and restoring model + optimizer + step, so that an interrupted run continues exactly.

The only code that does so. Each saved state is a directory of its own:

    step_00001500/  state.index  state.data-00000-of-00001  complete.json

`complete.json` is written last and at once; it lists the other files with their sizes. A directory that
does not hold what its list says (a run killed while saving, a torn copy) is never chosen. No rename of
directories is involved: on object stores that would copy every byte, one file after the other.
"""

import json
import posixpath
import re

import tensorflow as tf

from keras_bert.files import read_text, write_atomically

_COMPLETE = "complete.json"
# what TensorFlow's readers say of bytes that do not fit their check sums
_DAMAGE = {tf.errors.DATA_LOSS, tf.errors.OUT_OF_RANGE, tf.errors.UNKNOWN}
_NAME = re.compile(r"step_(\d{8,})$")


class TrainingState:
    """The saved states of one run, in one directory.

    Args:
        directory: Where they lie; may be remote (`gs://...`).
        model: A built Keras model.
        optimizer: Its optimizer, built as well: an unbuilt one has no slots to restore into.
        keep: How many of the newest states to keep.
    """

    def __init__(self, directory, model, optimizer, keep=2):
        if not (model.built and optimizer.built):
            raise ValueError(
                "`model` and `optimizer` must be built before their state can be restored. "
                f"Received: model.built={model.built}, optimizer.built={optimizer.built}."
            )
        if keep < 1:
            raise ValueError(f"`keep` must be at least 1. Received: {keep}.")
        self.directory = str(directory)
        self.keep = keep
        # An optimizer's paths begin with a name that Keras counts up within a process: number them.
        slots = [variable.path.split("/", 1)[-1] for variable in optimizer.variables]
        self._checkpoint = tf.train.Checkpoint(
            model=_named(model.weights, [weight.path for weight in model.weights]),
            optimizer=_named(optimizer.variables, [f"{i}/{slot}" for i, slot in enumerate(slots)]),
        )

    def saved_steps(self):
        """Steps of the complete states, ascending."""
        if not tf.io.gfile.isdir(self.directory):
            return []
        names = [name.rstrip("/") for name in tf.io.gfile.listdir(self.directory)]
        return sorted(int(_NAME.match(name)[1]) for name in names if self._is_complete(name))

    def save(self, step, notes=None):
        """Writes the state of `step`, then removes all others but the newest before it, `keep` in all.

        Args:
            step: Number of optimizer steps made.
            notes: Anything that JSON can hold; `restore` gives it back.

        Raises:
            OSError: When it cannot be written, the disk being full for example; the states before it
                are still there.
        """
        path = self._path(step)
        try:
            self._remove(path)
            self._write(path, step, notes)
        except (tf.errors.OpError, OSError) as error:
            # a disk that is full should not stay so for the sake of half a state
            self._remove(path)
            saved = self.saved_steps()
            raise OSError(
                f"The state of step {step:,} could not be written to {path}: {_first_line(error)} "
                + (
                    f"The newest good state is that of step {saved[-1]:,}."
                    if saved
                    else "There is no other."
                )
            ) from error
        saved = [number for number in self.saved_steps() if number <= step]
        kept = {posixpath.basename(self._path(number)) for number in saved[-self.keep :]}
        # and what a killed run left half written, or damaged behind the state that was restored
        for name in tf.io.gfile.listdir(self.directory):
            if _NAME.match(name.rstrip("/")) and name.rstrip("/") not in kept:
                self._remove(posixpath.join(self.directory, name))

    def _write(self, path, step, notes):
        self._checkpoint.write(posixpath.join(path, "state"))
        sizes = {
            name: tf.io.gfile.stat(posixpath.join(path, name)).length
            for name in tf.io.gfile.listdir(path)
        }
        content = json.dumps({"step": step, "files": sizes, "notes": notes})
        write_atomically(posixpath.join(path, _COMPLETE), content)

    def _remove(self, path):
        if tf.io.gfile.isdir(path):
            tf.io.gfile.rmtree(path)

    def restore(self):
        """Loads the newest complete state.

        One whose bytes have changed since (TensorFlow keeps check sums) is passed over for the one
        before it, with a line that says so.

        Returns:
            (step, notes); (0, None), with nothing changed, when there is no complete state.

        Raises:
            ValueError: When the state belongs to another model or optimizer, or all are damaged.
        """
        steps = self.saved_steps()
        for step in reversed(steps):
            path = self._path(step)
            try:
                status = self._checkpoint.read(posixpath.join(path, "state")).expect_partial()
                status.assert_consumed()
            except tf.errors.OpError as error:
                if error.error_code not in _DAMAGE:
                    raise
                print(f"The state of step {step:,} is damaged and passed over: {_first_line(error)}")
                continue
            except (AssertionError, ValueError) as error:
                raise ValueError(
                    "The state must come from the same model and optimizer. "
                    f"Received: {path}. {_first_line(error)}"
                ) from error
            return step, json.loads(read_text(posixpath.join(path, _COMPLETE)))["notes"]
        if steps:
            raise ValueError(
                f"A saved state must be whole. Received: only damaged ones in {self.directory}."
            )
        return 0, None

    def _path(self, step):
        return posixpath.join(self.directory, f"step_{step:08d}")

    def _is_complete(self, name):
        path = posixpath.join(self.directory, name)
        if not _NAME.match(name):
            return False
        try:
            sizes = json.loads(read_text(posixpath.join(path, _COMPLETE)))["files"]
            found = {f: tf.io.gfile.stat(posixpath.join(path, f)).length for f in sizes}
        except (ValueError, KeyError, tf.errors.NotFoundError):
            return False
        return found == sizes


def _first_line(error):
    return str(error).strip().splitlines()[0]


def _named(variables, names):
    """{name: tf.Variable}, so that a state names its variables as the model does."""
    if len(set(names)) != len(names):
        raise ValueError("Every weight must have a path of its own. Received: repeated paths.")
    return {name: variable.value for name, variable in zip(names, variables, strict=True)}
