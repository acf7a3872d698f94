"""All kinds of tasks, one line each: importing its file makes a kind known."""

from keras_bert.tasks.answers import Answers as Answers
from keras_bert.tasks.choices import Choice as Choice
from keras_bert.tasks.classification import Classification as Classification
from keras_bert.tasks.kind import KINDS
from keras_bert.tasks.multi_label import MultiLabel as MultiLabel
from keras_bert.tasks.regression import Regression as Regression
from keras_bert.tasks.tags import Tagging as Tagging


def kind_of(task, training_rows):
    """The Kind of a task, with the labels that its training data has."""
    kind = KINDS[task.kind]
    return kind(task, kind.find_label_names(task, training_rows))


def read_split(task, path, split):
    """The rows of a task's file, or of a data set of TFDS, as its kind has them: see `Kind.read`."""
    return KINDS[task.kind].read(task, path, split)
