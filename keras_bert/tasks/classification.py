"""One label for each text or pair."""

from keras_bert.models.classifier import BertClassifier
from keras_bert.tasks.kind import Kind, mistake, name_of_label
from keras_bert.tasks.pictures import Confusion
from keras_bert.tasks.scoring import score_labels
from keras_bert.tasks.task import Task
from keras_bert.text.features import text_rows


class Classification(Kind):
    """One label for each text or pair."""

    own_data = Task("classification")
    model = BertClassifier
    has_one_label = True

    @classmethod
    def find_label_names(cls, task, rows):
        """Those of the task; else those of the rows, numbers by their value, names by the alphabet."""
        if task.labels is not None:
            return list(task.labels.values())
        found = {name for row in rows for name in cls.labels_of(task, row)}
        return sorted(found, key=int if all(name.isdecimal() for name in found) else None)

    @classmethod
    def labels_of(cls, task, row):
        """The labels of a row by name."""
        return [name_of_label(task, row)]

    def examples(self, rows, reading):
        return reading.examples(self.rows(rows, reading), self.labels(rows))

    def rows(self, rows, reading):
        texts, *pairs = self.texts(rows)
        return text_rows(
            texts,
            pairs[0] if pairs else None,
            reading.tokenizer,
            reading.max_length,
            reading.type_vocab_size,
        )

    def labels(self, rows):
        return self.label_numbers(rows)

    def predict(self, model, rows, reading, batch_size):
        columns = self.texts(rows)
        return model.predict_text(*columns, batch_size=batch_size, max_length=reading.max_length)

    def score(self, rows, predictions):
        numbers = {name: number for number, name in enumerate(self.label_names)}
        predicted = [numbers[each["label"]] for each in predictions]
        return score_labels(self.label_numbers(rows), predicted, self.label_names)

    def picture(self, rows, predictions):
        return Confusion(self.names(rows), [each["label"] for each in predictions], self.label_names)

    def mistakes(self, rows, predictions):
        """Those that the model was surest of."""
        wrong = [
            (each["probabilities"][each["label"]], text, truth, each["label"])
            for text, truth, each in zip(
                self.joined_texts(rows), self.names(rows), predictions, strict=True
            )
            if each["label"] != truth
        ]
        return [mistake(text, truth, got) for _, text, truth, got in sorted(wrong, reverse=True)]
