"""A number for each text or pair."""

import numpy as np

from keras_bert.tasks.classification import Classification
from keras_bert.tasks.kind import mistake, name_of_label
from keras_bert.tasks.pictures import Scatter
from keras_bert.tasks.scoring import score_numbers
from keras_bert.tasks.task import Task


class Regression(Classification):
    """A number for each text or pair."""

    own_data = Task("regression", metric="correlation")
    has_one_label = False

    @classmethod
    def find_label_names(cls, task, rows):
        return None

    @property
    def model_options(self):
        return {"num_labels": 1, "problem_type": "regression"}

    def labels(self, rows):
        try:
            return np.array([float(name_of_label(self.task, row)) for row in rows], "float32")
        except ValueError as error:
            raise ValueError(f"Each label must be a number. Received: {error}.") from None

    def score(self, rows, predictions):
        return score_numbers(self.labels(rows), [each["score"] for each in predictions])

    def picture(self, rows, predictions):
        return Scatter(self.labels(rows), [each["score"] for each in predictions])

    def mistakes(self, rows, predictions):
        """Those that are farthest off."""
        rated = zip(self.joined_texts(rows), self.labels(rows), predictions, strict=True)
        ordered = sorted(rated, key=lambda each: -abs(each[1] - each[2]["score"]))
        return [mistake(text, f"{t:.2f}", f"{each['score']:.2f}") for text, t, each in ordered]
