"""A label, labels or numbers for a whole text or a pair (Devlin et al. 2018, section 4.1)."""

import keras
import tensorflow as tf
from keras import ops

from keras_bert.losses import binary_cross_entropy, soft_cross_entropy, squared_error
from keras_bert.metrics import binary_accuracy, sparse_accuracy
from keras_bert.models.columns import read_labels, refuse
from keras_bert.models.signatures import classifier_signatures
from keras_bert.models.task_models import LabelModel
from keras_bert.text.offsets import row_ids

PROBLEM_TYPES = ("single_label", "multi_label", "regression")


@keras.saving.register_keras_serializable(package="keras_bert")
class BertClassifier(LabelModel):
    """Scores labels for whole texts or pairs, or predicts numbers, from the first token's state.

    Shapes (B rows, T tokens, C labels):
        inputs   a dict, as BertEncoder takes it; of packed rows, what follows is (B, E, ...)
        returns  (B, C)  float32  logits; with "regression", the numbers themselves
        labels   (B,) int, -1 to ignore, for "single_label", or (B, C) float, one-hot or shares that sum
                 to 1; (B, C) of 0 and 1 for "multi_label"; (B,) or (B, C) float for "regression"

    Of strings (`fit(texts, labels)`), also names (B,), and for "multi_label" lists of names.

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
    text_columns = row_columns = {"text": 1, "text_pair": 1}  # noqa: RUF012
    optional_columns = ("text_pair",)
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
        encoded, seed = self.encode(inputs, training, seed, pooled_only=True)
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

    def read_y(self, y):
        return read_labels(y)

    def numbered(self, labels, columns):
        """Labels of a user as the loss takes them; refused with label and row."""
        count = self.num_labels
        if self.problem_type == "regression":
            if labels.dtype == tf.string or labels.shape.rank not in (1, 2 if count > 1 else 1):
                forms = "(N,)" if count == 1 else f"(N, {count})"
                raise _wrong_form(f"numbers {forms}", labels)
            numbers = tf.cast(labels, tf.float32)
            rows = tf.reshape(numbers, [tf.shape(numbers)[0], -1])
            finite = tf.reduce_all(tf.math.is_finite(rows), axis=1)
            refuse(~finite, "Labels must be finite numbers.", labels)
            return numbers
        if self.problem_type == "multi_label":
            return self._several(labels)
        if labels.shape.rank == 1:
            return self.number(labels)
        if isinstance(labels, tf.RaggedTensor) or labels.dtype == tf.string:
            raise _wrong_form(f"(N,), or one-hot rows (N, {count})", labels)
        self._check_width(labels)
        shares = tf.cast(labels, tf.float32)
        is_share = tf.reduce_all(shares >= 0, axis=1) & (
            tf.abs(tf.reduce_sum(shares, axis=1) - 1) < 1e-3
        )
        refuse(~is_share, "Rows of labels must be shares that sum to 1.", labels)
        return shares

    def _several(self, labels):
        """(N, C) float32 of 0 and 1, or between, of such rows or of lists of names."""
        if not isinstance(labels, tf.RaggedTensor):
            if labels.dtype == tf.string:
                raise _wrong_form("lists of names, or rows of 0 and 1", labels)
            self._check_width(labels)
            values = tf.cast(labels, tf.float32)
            is_wrong = tf.reduce_any(~((values >= 0) & (values <= 1)), axis=1)
            refuse(is_wrong, "Rows of labels must lie between 0 and 1.", labels)
            return values
        if labels.dtype != tf.string:
            raise _wrong_form(f"lists of names, or rows (N, {self.num_labels}) of 0 and 1", labels)
        rows = row_ids(labels)
        places = tf.stack([rows, self.number(labels.values, rows)], axis=1)
        shape = tf.stack([tf.cast(labels.nrows(), tf.int32), self.num_labels])
        return tf.minimum(tf.scatter_nd(places, tf.ones_like(rows, tf.float32), shape), 1.0)

    def _check_width(self, labels):
        if labels.shape.rank != 2 or labels.shape[1] not in (None, self.num_labels):
            raise _wrong_form(f"(N, {self.num_labels})", labels)

    def token_rows(self, columns, labels, most):
        x = self.text_inputs(self.tokenizer, columns["text"], columns.get("text_pair"), None)
        return x, labels, None

    def class_factors(self, class_weight):
        if self.problem_type != "single_label":
            raise ValueError(
                f"`class_weight` must be None unless each text has one label. Received: {class_weight} "
                f'for "{self.problem_type}".'
            )
        return super().class_factors(class_weight)

    def weigh(self, labels, factors):
        if _are_shares(labels):
            return tf.linalg.matvec(labels, factors)
        return super().weigh(labels, factors)

    def label_weights(self, y, sample_weight=None):
        """As of every task model; a one-hot row, or one of shares, counts once."""
        y = self.named(y)
        if self.problem_type == "single_label":
            y = {
                name: ops.argmax(labels, axis=-1) if _are_shares(labels) else labels
                for name, labels in y.items()
            }
        return super().label_weights(y, sample_weight)

    def element_figures(self, name, labels, outputs):
        if self.problem_type == "single_label":
            if _are_shares(labels):
                options = {name: getattr(self, name) for name in self.loss_options}
                options["smoothing"] = options.pop("label_smoothing")
                return {
                    "loss": soft_cross_entropy(labels, outputs, **options),
                    "accuracy": sparse_accuracy(ops.argmax(labels, axis=-1), outputs),
                }
            return self.label_figures(labels, outputs)
        if self.problem_type == "regression":
            return {"loss": squared_error(labels, ops.reshape(outputs, ops.shape(labels)))}
        return {
            "loss": binary_cross_entropy(labels, outputs),
            "accuracy": binary_accuracy(labels, outputs),
        }


def _are_shares(labels):
    """Whether labels are rows of shares, one-hot ones among them; whole numbers are of packed rows."""
    return len(labels.shape) == 2 and "float" in keras.backend.standardize_dtype(labels.dtype)


def _wrong_form(form, labels):
    return ValueError(f"Labels must be {form}. Received: {labels.dtype.name} of shape {labels.shape}.")
