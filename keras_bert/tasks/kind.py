"""What a kind of task has to tell: its model, its rows, its examples, its predictions, its scores."""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_bert.data.examples import Examples
from keras_bert.data.labelled import read_table
from keras_bert.data.packed_examples import PackedExamples

KINDS = {}  # {name: class}, of every kind whose module is imported


@dataclasses.dataclass(frozen=True)
class Reading:
    """How rows become tokens.

    Args:
        tokenizer: Of the model.
        max_length: Most tokens of a row or a window.
        stride: Tokens from one window to the next.
        type_vocab_size: Of the encoder.
        length: T of every batch; None for the longest row of each.
        seed: Of the order of examples.
        packed: Whether rows of `length` hold several examples.
        replicas: That share a batch.
    """

    tokenizer: object
    max_length: int
    stride: int
    type_vocab_size: int = 2
    length: int | None = None
    seed: int = 0
    packed: bool = False
    replicas: int = 1

    def examples(self, rows, labels, count=None):
        """Examples of some Rows; `count` rows belong to each, if not one."""
        if self.packed and labels is not None:
            return PackedExamples(
                rows.inputs, labels, self.tokenizer, self.length, self.seed, self.replicas
            )
        return Examples(rows.inputs, labels, self.tokenizer.pad_token_id, count, self.length, self.seed)


class Kind:
    """A kind of task, and a task of it. Declaring a subclass makes the kind known by its name.

    Args:
        task: A Task.
        label_names: Names of its labels, in the order of the logits; None where it has none.
    """

    own_data = None  # the Task of a user's own data, named like the kind
    model = None  # the class
    has_one_label = False  # for each text or word: what class weights and their like are for

    def __init_subclass__(cls):
        if "own_data" not in vars(cls):
            raise TypeError(
                f"A kind must have a task of its own, `own_data`. Received: {cls.__name__}."
            )
        KINDS[cls.own_data.kind] = cls

    def __init__(self, task, label_names=None):
        self.task = task
        self.label_names = label_names

    @classmethod
    def read(cls, task, path, split):
        """The rows of a task's file, or of a data set of TFDS: a list of dicts.

        Args:
            task: A Task.
            path: A file, or "tfds:NAME".
            split: "train", "dev", "test", ...: of a TFDS data set.
        """
        # the test files of GLUE have a header, also CoLA's
        columns = task.columns if split != "test" else None
        rows = read_table(path, columns, task.tfds_split(split))
        needed = [task.text, task.text_pair, *task.choices]
        missing = [name for name in needed if name is not None and name not in rows[0]]
        if missing:
            raise ValueError(
                f"The table must have the columns {', '.join(filter(None, needed))}. Received: "
                f"{', '.join(rows[0])} in {path}."
            )
        return rows

    @classmethod
    def find_label_names(cls, task, rows):
        """The names of the labels that training data has, in the order of the logits; None without."""
        return None

    @property
    def model_options(self):
        """Arguments of the model's constructor."""
        return {} if self.label_names is None else {"label_names": self.label_names}

    def examples(self, rows, reading):
        """Examples with labels, for training."""
        raise NotImplementedError

    def predict(self, model, rows, reading, batch_size):
        """A readable result for each row, in its order."""
        raise NotImplementedError

    def score(self, rows, predictions):
        """{name: score} of predictions."""
        raise NotImplementedError

    def calibrate(self, model, rows, predictions):
        """Sets what of a model is chosen on development data, and gives the predictions with it.

        Returns:
            `predictions` themselves where there is nothing to choose.

        Args:
            model: Its attributes may change; not its weights.
            rows: With labels.
            predictions: As `predict` gives them.
        """
        return predictions

    def picture(self, rows, predictions):
        """What the predictions got right and wrong, to be drawn; None with nothing to draw.

        Returns:
            A Confusion, Scatter or Thresholds of tasks/pictures.py.

        Args:
            rows, predictions: As in `score`.
        """
        return None

    def mistakes(self, rows, predictions):
        """What went wrong, the worst first: a list of {"text", "truth", "prediction"} of str.

        Args:
            rows: With labels.
            predictions: As `predict` gives them.
        """
        raise NotImplementedError

    def have_labels(self, rows):
        """Whether rows can be scored."""
        return all(str(row.get(self.task.label, "")).strip() not in ("", "-1") for row in rows)

    def label_numbers(self, rows):
        """The number of each row's label, (N,) int32; of a word's, for tags."""
        numbers = {name: number for number, name in enumerate(self.label_names)}
        unknown = sorted({name for name in self.names(rows) if name not in numbers})
        if unknown:
            raise ValueError(
                f"Labels must be among {', '.join(self.label_names)}. Received: {', '.join(unknown)}."
            )
        return np.array([numbers[name] for name in self.names(rows)], "int32")

    def names(self, rows):
        """The label of each row, or word, by name."""
        return [name_of_label(self.task, row) for row in rows]

    def texts(self, rows):
        """The columns of texts: one, or two with pairs."""
        columns = [[row[self.task.text] for row in rows]]
        if self.task.text_pair is not None:
            columns.append([row[self.task.text_pair] for row in rows])
        return columns

    def joined_texts(self, rows):
        """The texts of each row in one string, for people."""
        return [" | ".join(row) for row in zip(*self.texts(rows), strict=True)]


def label_of(task, row):
    """What the column of the label holds in a row."""
    if task.label not in row:
        raise ValueError(
            f"Each row must have its label in the column {task.label!r}. Received: {sorted(row)}."
        )
    return row[task.label]


def name_of_label(task, row):
    """The one label of a row by name."""
    value = label_of(task, row)
    return task.labels.get(value, value) if task.labels else value


def predict_rows(model, examples, batch_size, reduce):
    """What a model gives for each row, in the rows' order: list of arrays (T, ...).

    Args:
        model: A task model.
        examples: Examples without labels.
        batch_size: Rows that are computed at once.
        reduce: Graph function of the outputs, to keep less of them.
    """

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.int64)],
        autograph=False,
    )
    def compute(numbers):
        return reduce(model(examples.batch_inputs(numbers), training=False))

    order, results = examples.by_length(), [None] * len(examples)
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        for number, row in zip(chosen, compute(tf.constant(chosen)).numpy(), strict=True):
            results[number] = row[: examples.lengths[number]]
    return results


def mistake(text, truth, prediction):
    """One of `Kind.mistakes`."""
    return {"text": text, "truth": truth, "prediction": prediction}
