"""Which of several texts goes on with a context (Devlin et al. 2018, section 4.4)."""

import keras
import tensorflow as tf
from keras import ops

from keras_bert.models.columns import read_labels, refuse
from keras_bert.models.signatures import choice_signatures
from keras_bert.models.task_models import TaskModel, label_figures
from keras_bert.text.offsets import row_ids


@keras.saving.register_keras_serializable(package="keras_bert")
class BertMultipleChoice(TaskModel):
    """Scores each of several continuations of a text (section 4.4).

    Shapes (B rows, C choices, T tokens):
        inputs   a dict of what BertEncoder takes, each (B, C, T)
        returns  (B, C)  float32  logits; -1e9 for a choice without tokens, which is none
        labels   (B,)    int, the right choice; -1 to ignore

    Args:
        config: An EncoderConfig with `use_pooler`.
        **kwargs: See TaskModel.
    """

    head = "multiple_choice"
    needs_pooler = True
    text_columns = row_columns = {"context": 1, "choices": 2}  # noqa: RUF012
    text_signatures = choice_signatures

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.choice = self.dense(1, "choice")

    def call(self, inputs, training=None, seed=None):
        rows, choices, length = ops.shape(inputs["token_ids"])
        flat = {name: ops.reshape(value, (-1, length)) for name, value in inputs.items()}
        encoded, seed = self.encode(flat, training, seed, pooled_only=True)
        scores = self.choice(self.drop(encoded["pooled_output"], seed))
        is_choice = ops.any(ops.cast(inputs["padding_mask"], "bool"), axis=-1)
        return ops.where(is_choice, ops.cast(ops.reshape(scores, (rows, choices)), "float32"), -1e9)

    def text_outputs(self, tokenizer, context, choices, max_length=None):
        """Graph function behind `predict_text` and the export.

        Shapes (B rows, C choices):
            context  (B,)    string
            choices  (B, C)  string, dense or ragged
            returns  choice (B,) int32, probabilities (B, C) float32, dense or ragged as the choices
        """
        ragged = choices
        if not isinstance(choices, tf.RaggedTensor):
            ragged = tf.RaggedTensor.from_tensor(choices)
        inputs = self.choice_inputs(tokenizer, context, ragged, max_length)
        logits = self.logits_of_rows(inputs, [tf.shape(inputs["token_ids"])[1]])
        if ragged is not choices:  # a batch of no rows has as many choices as it says
            logits = tf.reshape(logits, tf.shape(choices))
        results = self.named_results(logits)
        if ragged is choices:
            lengths = choices.row_lengths()
            results["probabilities"] = tf.RaggedTensor.from_tensor(results["probabilities"], lengths)
        return results

    def named_results(self, logits):
        """What `text_outputs` returns, of logits (B, C)."""
        return {
            "choice": tf.argmax(logits, axis=-1, output_type=tf.int32),
            "probabilities": tf.nn.softmax(logits),
        }

    def choice_inputs(self, tokenizer, context, choices, max_length=None, count=None):
        """The batch for contexts and their choices, in the graph; a row with fewer has empty ones.

        Shapes (B rows, C = count, or the most choices of a row, T tokens):
            context  (B,)          string
            choices  (B, choices)  ragged string
            returns  a dict of (B, C, T) int32
        """
        repeated = tf.gather(context, row_ids(choices))
        flat = self.text_inputs(tokenizer, repeated, choices.values, max_length)
        length = tf.shape(flat["token_ids"])[1]
        inputs = {}
        for name, value in flat.items():
            padding = tokenizer.pad_token_id if name == "token_ids" else 0
            # a ragged dimension and a dense one: the longest row is that of all
            filled = choices.with_values(value).to_tensor(padding, shape=[None, count, None])
            inputs[name] = tf.reshape(filled, [tf.shape(context)[0], tf.shape(filled)[1], length])
        return inputs

    def readable(self, row, max_length=None):
        return {"choice": int(row["choice"]), "probabilities": row["probabilities"].tolist()}

    def predict_text(self, contexts, choices, batch_size=8, max_length=None):
        """Which of its choices goes on with each context.

        Args:
            contexts: List of str.
            choices: List of lists of str; one context may have more than another.
            batch_size, max_length: As in `BertClassifier.predict_text`.

        Returns:
            For each context a dict: "choice", its number from 0, and "probabilities".
        """
        return self.predict_columns([contexts, choices], batch_size, max_length=max_length)

    def read_y(self, y):
        return read_labels(y)

    def numbered(self, labels, columns):
        """Numbers (N,) int32 of the right choices; refused with number and row."""
        if labels.shape.rank != 1 or not labels.dtype.is_integer:
            raise ValueError(
                "Labels must be the numbers of the right choices, (N,). "
                f"Received: {labels.dtype.name} of shape {labels.shape}."
            )
        numbers, counts = tf.cast(labels, tf.int64), columns["choices"].row_lengths()
        must = "Labels must be the number of a choice of their row, from 0, or -1 to ignore."
        refuse((numbers < -1) | (numbers >= counts), must, labels)
        return tf.cast(numbers, tf.int32)

    def token_rows(self, columns, labels, most):
        context, choices = columns["context"], columns["choices"]
        x = self.choice_inputs(self.tokenizer, context, choices, count=most.get("choices"))
        return x, labels, None

    def element_figures(self, name, labels, outputs):
        return label_figures(labels, outputs)
