"""A yes or no for each label of a text or pair."""

import numpy as np

from keras_bert.tasks.classification import Classification
from keras_bert.tasks.kind import label_of, mistake
from keras_bert.tasks.pictures import Thresholds
from keras_bert.tasks.scoring import score_label_sets
from keras_bert.tasks.task import Task


class MultiLabel(Classification):
    """A yes or no for each label."""

    own_data = Task("multi_label", metric="f1_micro")
    has_one_label = False

    @classmethod
    def labels_of(cls, task, row):
        value = label_of(task, row)
        values = value if isinstance(value, list) else [part.strip() for part in value.split(",")]
        return [part for part in values if part]

    @property
    def model_options(self):
        return {**super().model_options, "problem_type": "multi_label"}

    def labels(self, rows):
        return self._sets([self.labels_of(self.task, row) for row in rows])

    def score(self, rows, predictions):
        return score_label_sets(self.labels(rows), self._sets([each["labels"] for each in predictions]))

    def picture(self, rows, predictions):
        """F1 of all answers over the probability from which on a label is taken."""
        truths = self.labels(rows).astype(bool)
        chances = np.array([list(each["probabilities"].values()) for each in predictions])
        thresholds = np.linspace(0, 1, 101)[1:-1]
        scores = [score_label_sets(truths, chances > threshold) for threshold in thresholds]
        curves = {name: [each[name] for each in scores] for name in ("f1_micro", "f1_macro")}
        return Thresholds(thresholds, curves, 0.5, "probability from which on a label is taken")

    def mistakes(self, rows, predictions):
        """Those with most wrong labels."""
        wrong = []
        for row, text, each in zip(rows, self.joined_texts(rows), predictions, strict=True):
            truth, got = set(self.labels_of(self.task, row)), set(each["labels"])
            if truth != got:
                wrong.append((len(truth ^ got), text, sorted(truth), sorted(got)))
        wrong.sort(key=lambda each: -each[0])
        return [mistake(text, ", ".join(t), ", ".join(g)) for _, text, t, g in wrong]

    def _sets(self, names):
        numbers = {name: number for number, name in enumerate(self.label_names)}
        sets = np.zeros((len(names), len(numbers)), "int32")
        for row, of_row in enumerate(names):
            for name in of_row:
                if name not in numbers:
                    raise ValueError(
                        f"Labels must be among {', '.join(self.label_names)}. Received: {name}."
                    )
                sets[row, numbers[name]] = 1
        return sets
