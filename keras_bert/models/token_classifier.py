"""A label for each token or word, and entities (Devlin et al. 2018, section 5.3)."""

import keras
import tensorflow as tf
from keras import ops

from keras_bert.models.columns import read_labels, refuse
from keras_bert.models.signatures import tagger_signatures
from keras_bert.models.tagging import find_entities, tag_words
from keras_bert.models.task_models import ROW_FIELDS, LabelModel
from keras_bert.text.entities import are_entity_tags
from keras_bert.text.features import first_pieces
from keras_bert.text.normalization import drop_invalid_bytes
from keras_bert.text.offsets import row_ids
from keras_bert.text.windows import best_slots, window_rows


@keras.saving.register_keras_serializable(package="keras_bert")
class BertTokenClassifier(LabelModel):
    """Scores labels for every token: names of things, parts of speech.

    Shapes (B rows, T tokens, C labels):
        inputs   a dict, as BertEncoder takes it
        returns  (B, T, C)  float32  logits
        labels   (B, T)     int, -1 to ignore

    Of strings, `fit` takes sentences that are cut into words, with a tag for each: lists of words and
    lists of tags, or dicts of "words" and "tags". A word's first piece speaks for it; a sentence longer
    than `max_length` is read in windows, where a word counts in the one that has most context.

    Args:
        config: An EncoderConfig.
        num_labels: C; may be left out where `label_names` are given.
        label_names: Their names, in the order of the logits.
        **kwargs: See TaskModel.
    """

    head = "token_classification"
    needs_pooler = False
    row_columns = {"words": 2}  # noqa: RUF012
    label_columns = ("tags",)
    predicts_rows = False
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

    def read_y(self, y):
        return read_labels(y["tags"] if isinstance(y, dict) else y, "tags", ragged=True)

    def numbered(self, labels, columns):
        """Numbers (N, words) ragged int32 of tags; refused with tag and sentence."""
        lengths = columns["words"].row_lengths()
        if not isinstance(labels, tf.RaggedTensor):
            labels = tf.RaggedTensor.from_tensor(labels, lengths)
        counts = labels.row_lengths()
        both = tf.stack([counts, lengths], axis=1)
        refuse(counts != lengths, "Sentences must have a tag for each word.", both)
        return labels.with_values(self.number(labels.values, row_ids(labels)))

    def token_rows(self, columns, labels, most):
        words = columns["words"]
        words = words.with_values(drop_invalid_bytes(words.values))
        pieces = self.tokenizer.tokenize_with_offsets(
            tf.strings.reduce_join(words, axis=-1, separator=" ")
        )
        max_length, stride = self.window(None, None)
        rows = window_rows(
            {"token_ids": pieces["token_ids"]},
            tokenizer=self.tokenizer,
            max_length=max_length,
            stride=stride,
            type_vocab_size=self.config.type_vocab_size,
        )
        lengths = pieces["token_ids"].row_lengths()
        row, place = best_slots(rows["texts"], rows["starts"], rows["sizes"], lengths)
        first = first_pieces(words, pieces["char_starts"])
        numbers = tf.boolean_mask(labels.values, first >= 0)
        first = tf.boolean_mask(first, first >= 0)
        slots = tf.stack([tf.gather(row, first), tf.gather(place, first) + 1], axis=1)
        y = tf.tensor_scatter_nd_update(-tf.ones_like(rows["token_ids"]), slots, numbers)
        return {name: rows[name] for name in ROW_FIELDS}, y, rows["texts"]

    def _padded_labels(self, y):
        return self._filled(y, -1)

    def element_figures(self, name, labels, outputs):
        return self.label_figures(labels, outputs)
