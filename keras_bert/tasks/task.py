"""What a data set is: where its texts and labels lie in its files, and what measures it."""

import dataclasses
import posixpath

import tensorflow as tf

from keras_bert.data.labelled import TFDS, tfds_splits


@dataclasses.dataclass(frozen=True)
class Task:
    """What a data set is, in the words of its files.

    Args:
        kind: A key of `tasks.kinds.KINDS`.
        text, text_pair: Columns of the texts; of a context and of what comes before each choice.
        label: Column of the label, the number, or (parted by commas) the labels.
        choices: Columns of the choices, or the one that lists them.
        columns: Names of the columns, where files have no header.
        labels: {label in the files: its name}, in the order of the logits; None takes the labels that
            the training data has, in their order.
        files: {split: file in the data set's folder}.
        tfds: Its name in TensorFlow Datasets; splits of other names are in `tfds_splits`.
        metric: The score that chooses the best epoch.
    """

    kind: str
    text: str = "text"
    text_pair: str | None = None
    label: str = "label"
    choices: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    tfds: str | None = None
    tfds_splits: dict[str, str] = dataclasses.field(default_factory=lambda: {"dev": "validation"})
    metric: str = "accuracy"

    def tfds_split(self, split):
        """The name of a split in TensorFlow Datasets."""
        return self.tfds_splits.get(split, split)


def path_of(task, folder, split):
    """The file of a split in a data set's folder, None where the task has no such split there."""
    if folder.startswith(TFDS):
        splits = tfds_splits(folder.removeprefix(TFDS))
        return folder if task.tfds_split(split) in splits else None
    if split not in task.files:
        return None
    path = posixpath.join(folder, task.files[split])
    return path if tf.io.gfile.exists(path) else None
