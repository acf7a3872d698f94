"""A label, labels or numbers for a whole text or a pair (Devlin et al. 2018, section 4.1)."""

import keras
import tensorflow as tf
from keras import ops

from keras_bert.losses import binary_cross_entropy, squared_error
from keras_bert.metrics import binary_accuracy
from keras_bert.models.signatures import classifier_signatures
from keras_bert.models.task_models import LabelModel

PROBLEM_TYPES = ("single_label", "multi_label", "regression")


@keras.saving.register_keras_serializable(package="keras_bert")
class BertClassifier(LabelModel):
    """Scores labels for whole texts or pairs, or predicts numbers, from the first token's state.

    Shapes (B rows, T tokens, C labels):
        inputs   a dict, as BertEncoder takes it
        returns  (B, C)  float32  logits; with "regression", the numbers themselves
        labels   (B,) int, -1 to ignore, for "single_label"; (B, C) of 0 and 1 for "multi_label";
                 (B,) or (B, C) float for "regression"

    Args:
        config: An EncoderConfig with `use_pooler`.
        num_labels: C; may be left out where `label_names` are given.
        problem_type: "single_label" (cross-entropy), "multi_label" (a yes or no for each label) or
            "regression" (squared error). None: "regression" for a single label, else "single_label".
        label_names: Their names, in the order of the logits.
        **kwargs: See TaskModel.
    """

    head = "sequence_classification"
    needs_pooler = True
    head_options = ("label_names", "classifier_dropout", "problem_type")
    text_signatures = classifier_signatures

    def __init__(self, config, num_labels=None, problem_type=None, label_names=None, **kwargs):
        super().__init__(config, num_labels, label_names, **kwargs)
        if problem_type is None:
            problem_type = "regression" if self.num_labels == 1 else "single_label"
        if problem_type == "single_label" and self.num_labels == 1:
            raise ValueError(
                '`problem_type` must be "regression" or "multi_label" for a single label: there is '
                "nothing to choose from. Received: 'single_label'."
            )
        if problem_type not in PROBLEM_TYPES:
            raise ValueError(
                f"`problem_type` must be one of {', '.join(PROBLEM_TYPES)}. Received: {problem_type!r}."
            )
        self.problem_type = problem_type
        self.classifier = self.dense(self.num_labels, "classifier")

    def call(self, inputs, training=None, seed=None):
        encoded, seed = self.encode(inputs, training, seed)
        x = self.drop(encoded["pooled_output"], seed)
        return ops.cast(self.classifier(x), "float32")

    def text_outputs(self, tokenizer, text, text_pair=None, max_length=None):
        """Graph function behind `predict_text` and the export.

        Shapes (B texts or pairs, C labels):
            text, text_pair  (B,)  string; what is too long loses the end of its longer text
            returns  for "single_label"  label (B,) string, probabilities (B, C)
                     for "multi_label"   probabilities (B, C)
                     for "regression"    score (B,), or (B, C) with several numbers
        """
        inputs = self.text_inputs(tokenizer, text, text_pair, max_length)
        return self.named_results(self.logits_of_rows(inputs, [self.num_labels]))

    def named_results(self, logits):
        """What `text_outputs` returns, of logits (B, C)."""
        if self.problem_type == "regression":
            return {"score": logits[:, 0] if self.num_labels == 1 else logits}
        if self.problem_type == "multi_label":
            return {"probabilities": tf.sigmoid(logits)}
        names = tf.constant(self.label_names)
        return {
            "label": tf.gather(names, tf.argmax(logits, axis=-1)),
            "probabilities": tf.nn.softmax(logits),
        }

    def readable(self, row, max_length=None):
        if self.problem_type == "regression":
            return {"score": row["score"].tolist()}
        probabilities = dict(zip(self.label_names, row["probabilities"].tolist(), strict=True))
        if self.problem_type == "multi_label":
            labels = [name for name, value in probabilities.items() if value > 0.5]
            return {"labels": labels, "probabilities": probabilities}
        return {"label": row["label"].decode(), "probabilities": probabilities}

    def predict_text(self, texts, pairs=None, batch_size=32, max_length=None):
        """Labels, or numbers, for texts or pairs of them.

        Args:
            texts: List of str.
            pairs: List of str, the second text of each pair.
            batch_size: Rows that are computed at once; it changes no result.
            max_length: Most tokens of a row; None for as many as the model can read.

        Returns:
            For each text a dict: "label" and "probabilities" by name; for "multi_label" "labels", those
            above one half, and "probabilities"; for "regression" "score".
        """
        columns = [texts] if pairs is None else [texts, pairs]
        return self.predict_columns(columns, batch_size, max_length=max_length)

    def element_figures(self, name, labels, outputs):
        if self.problem_type == "single_label":
            return self.label_figures(labels, outputs)
        if self.problem_type == "regression":
            return {"loss": squared_error(labels, ops.reshape(outputs, ops.shape(labels)))}
        return {
            "loss": binary_cross_entropy(labels, outputs),
            "accuracy": binary_accuracy(labels, outputs),
        }
