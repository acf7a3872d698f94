"""One of several texts that goes on with another."""

import numpy as np

from keras_bert.models.multiple_choice import BertMultipleChoice
from keras_bert.tasks.kind import Kind, mistake
from keras_bert.tasks.task import Task
from keras_bert.text.features import choice_rows


class Choice(Kind):
    """One of several texts that goes on with another."""

    own_data = Task("choice", choices=("choices",))
    model = BertMultipleChoice

    def examples(self, rows, reading):
        contexts, choices = self.texts(rows)
        flat = choice_rows(
            contexts, choices, reading.tokenizer, reading.max_length, reading.type_vocab_size
        )
        return reading.examples(flat, self.labels(rows), len(choices[0]))

    def texts(self, rows):
        task, first = self.task, self.task.choices[0]
        choices = [
            list(row[first]) if len(task.choices) == 1 else [row[name] for name in task.choices]
            for row in rows
        ]
        if task.text_pair is not None:  # what each choice begins with
            choices = [
                [f"{row[task.text_pair]} {choice}".strip() for choice in each]
                for row, each in zip(rows, choices, strict=True)
            ]
        counts = {len(each) for each in choices}
        if len(counts) != 1:
            raise ValueError(
                f"Each row must have the same number of choices. Received: {sorted(counts)}."
            )
        return [row[task.text] for row in rows], choices

    def labels(self, rows):
        """Numbers from 0; letters from A."""
        count = len(self.texts(rows[:1])[1][0])
        values = [row[self.task.label] for row in rows]
        numbers = [int(v) if v.isdecimal() else ord(v.upper()) - ord("A") for v in values]
        wrong = [v for v, number in zip(values, numbers, strict=True) if not 0 <= number < count]
        if wrong:
            raise ValueError(
                f"The label of a choice must be 0 to {count - 1}, or a letter. Received: {wrong[:3]}."
            )
        return np.array(numbers, "int32")

    def predict(self, model, rows, reading, batch_size):
        contexts, choices = self.texts(rows)
        return model.predict_text(
            contexts, choices, batch_size=batch_size, max_length=reading.max_length
        )

    def score(self, rows, predictions):
        right = self.labels(rows) == [each["choice"] for each in predictions]
        return {"accuracy": float(np.mean(right))}

    def mistakes(self, rows, predictions):
        """Those that the model was surest of."""
        wrong = []
        contexts, choices = self.texts(rows)
        for context, each, truth, got in zip(
            contexts, choices, self.labels(rows), predictions, strict=True
        ):
            if got["choice"] != truth:
                sureness = got["probabilities"][got["choice"]]
                wrong.append((sureness, context, each[truth], each[got["choice"]]))
        wrong.sort(key=lambda each: -each[0])
        return [mistake(*each[1:]) for each in wrong]
