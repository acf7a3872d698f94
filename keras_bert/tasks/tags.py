"""A tag for each word of sentences that are cut into words: entities, parts of speech."""

import tensorflow as tf

from keras_bert.data.labelled import read_tagged
from keras_bert.models.token_classifier import BertTokenClassifier
from keras_bert.tasks.kind import Kind, mistake, predict_rows
from keras_bert.tasks.pictures import Confusion
from keras_bert.tasks.scoring import score_tags
from keras_bert.tasks.task import Task
from keras_bert.text.entities import are_entity_tags, entities
from keras_bert.text.features import word_rows


class Tagging(Kind):
    """A tag for each word of sentences that are cut into words."""

    own_data = Task("tagging", metric="f1")
    model = BertTokenClassifier
    has_one_label = True

    @classmethod
    def read(cls, task, path, split):
        return read_tagged(path, task.tfds_split(split), task.text, task.label)

    @classmethod
    def find_label_names(cls, task, rows):
        """Those of the rows, "O" first; and to each I-, a B- that can begin its entity."""
        tags = {tag for row in rows for tag in row["tags"]}
        tags |= {f"B-{tag[2:]}" for tag in tags if tag.startswith("I-")}
        return sorted(tags, key=lambda tag: (tag != "O", tag[2:], tag))

    def have_labels(self, rows):
        return True

    def examples(self, rows, reading):
        words = self.rows(rows, reading)
        return reading.examples(words, words.label(self.label_numbers(rows)))

    def rows(self, rows, reading):
        return word_rows(
            [row["words"] for row in rows],
            reading.tokenizer,
            reading.max_length,
            reading.stride,
            reading.type_vocab_size,
        )

    def predict(self, model, rows, reading, batch_size):
        """The tags of each sentence; a word of which the tokenizer leaves nothing is outside."""
        words = self.rows(rows, reading)
        best = predict_rows(model, reading.examples(words, None), batch_size, _best_label)
        outside = self.label_names.index("O") if "O" in self.label_names else 0
        numbers = iter(words.read(best, outside))
        return [[self.label_names[next(numbers)] for _ in row["words"]] for row in rows]

    def score(self, rows, predictions):
        return score_tags([row["tags"] for row in rows], predictions)

    def picture(self, rows, predictions):
        predicted = [tag for tags in predictions for tag in tags]
        return Confusion(self.names(rows), predicted, self.label_names)

    def mistakes(self, rows, predictions):
        """Sentences with most wrong tags."""
        wrong = []
        for row, tags in zip(rows, predictions, strict=True):
            count = sum(a != b for a, b in zip(row["tags"], tags, strict=True))
            if count:
                truth, got = (_marked(row["words"], each) for each in (row["tags"], tags))
                wrong.append((count, " ".join(row["words"]), truth, got))
        wrong.sort(key=lambda each: -each[0])
        return [mistake(*each[1:]) for each in wrong]

    def names(self, rows):
        return [tag for row in rows for tag in row["tags"]]


def _best_label(logits):
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


def _marked(words, tags):
    """The entities of a sentence in words; of other tags, each word with its tag."""
    found = entities(tags) if are_entity_tags(tags) else []
    if found or set(tags) == {"O"}:
        return ", ".join(f"{' '.join(words[a:b])} ({kind})" for kind, a, b in found) or "(none)"
    return " ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True))
