"""A label for each token or word, and entities (Devlin et al. 2018, section 5.3)."""

import keras
from keras import ops

from keras_bert.models.signatures import tagger_signatures
from keras_bert.models.tagging import find_entities, tag_words
from keras_bert.models.task_models import LabelModel
from keras_bert.text.entities import are_entity_tags


@keras.saving.register_keras_serializable(package="keras_bert")
class BertTokenClassifier(LabelModel):
    """Scores labels for every token: names of things, parts of speech.

    Shapes (B rows, T tokens, C labels):
        inputs   a dict, as BertEncoder takes it
        returns  (B, T, C)  float32  logits
        labels   (B, T)     int, -1 to ignore

    Args:
        config: An EncoderConfig.
        num_labels: C; may be left out where `label_names` are given.
        label_names: Their names, in the order of the logits.
        **kwargs: See TaskModel.
    """

    head = "token_classification"
    needs_pooler = False
    text_signatures = tagger_signatures

    def __init__(self, config, num_labels=None, label_names=None, **kwargs):
        super().__init__(config, num_labels, label_names, **kwargs)
        self.token_classifier = self.dense(self.num_labels, "token_classifier")

    def call(self, inputs, training=None, seed=None):
        encoded, seed = self.encode(inputs, training, seed)
        x = self.drop(encoded["sequence_output"], seed)
        return ops.cast(self.token_classifier(x), "float32")

    def text_outputs(self, tokenizer, text, max_length=None, stride=None):
        """Graph function behind `predict_text` and the export.

        Returns:
            See `tag_words`, each with "word_" in front; and, where labels are of entities, those of
            `find_entities`.
        """
        words = tag_words(self, tokenizer, text, *self.window(max_length, stride))
        out = {f"word_{name}": value for name, value in words.items()}
        if are_entity_tags(self.label_names):
            out |= find_entities(text, words, self.label_names)
        return out

    def readable(self, row, max_length=None, stride=None):
        if "texts" not in row:
            fields = zip(
                row["word_labels"],
                row["word_starts"].tolist(),
                row["word_ends"].tolist(),
                row["word_probabilities"].tolist(),
                strict=True,
            )
            return [
                {"label": self.label_names[label], "start": start, "end": end, "score": score}
                for label, start, end, score in fields
            ]
        fields = zip(
            *(row[name] for name in ("texts", "labels", "starts", "ends", "scores")), strict=True
        )
        return [
            {
                "text": text.decode(),
                "label": label.decode(),
                "start": int(start),
                "end": int(end),
                "score": float(score),
            }
            for text, label, start, end, score in fields
        ]

    def predict_text(self, texts, batch_size=32, max_length=None, stride=None):
        """The entities of texts of any length; or, of labels that are not of entities, each word's.

        Args:
            texts: List of str.
            batch_size: Texts that are computed at once; it changes no result.
            max_length: Most tokens of a window; None for as many as the model can read.
            stride: Tokens between the beginnings of two windows; None for a quarter of one.

        Returns:
            For each text a list of dicts: "text" (a slice of the text), "label", "start" and "end" in
            characters, "score". Words have no "text".
        """
        return self.predict_columns([texts], batch_size, max_length=max_length, stride=stride)

    def element_figures(self, name, labels, outputs):
        return self.label_figures(labels, outputs)
