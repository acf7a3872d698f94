"""Which of several texts goes on with a context (Devlin et al. 2018, section 4.4)."""

import keras
import tensorflow as tf
from keras import ops

from keras_bert.models.signatures import choice_signatures
from keras_bert.models.task_models import TaskModel, label_figures


@keras.saving.register_keras_serializable(package="keras_bert")
class BertMultipleChoice(TaskModel):
    """Scores each of several continuations of a text (section 4.4).

    Shapes (B rows, C choices, T tokens):
        inputs   a dict of what BertEncoder takes, each (B, C, T)
        returns  (B, C)  float32  logits
        labels   (B,)    int, the right choice; -1 to ignore

    Args:
        config: An EncoderConfig with `use_pooler`.
        **kwargs: See TaskModel.
    """

    head = "multiple_choice"
    needs_pooler = True
    text_signatures = choice_signatures

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.choice = self.dense(1, "choice")

    def call(self, inputs, training=None, seed=None):
        rows, choices, length = ops.shape(inputs["token_ids"])
        flat = {name: ops.reshape(value, (-1, length)) for name, value in inputs.items()}
        encoded, seed = self.encode(flat, training, seed)
        scores = self.choice(self.drop(encoded["pooled_output"], seed))
        return ops.cast(ops.reshape(scores, (rows, choices)), "float32")

    def text_outputs(self, tokenizer, context, choices, max_length=None):
        """Graph function behind `predict_text` and the export.

        Shapes (B rows, C choices):
            context  (B,)    string
            choices  (B, C)  string
            returns  choice (B,) int32, probabilities (B, C)
        """
        count = tf.shape(choices)[1]
        pairs = tf.repeat(context, count), tf.reshape(choices, [-1])
        flat = self.text_inputs(tokenizer, *pairs, max_length)
        length = tf.shape(flat["token_ids"])[1]
        inputs = {name: tf.reshape(value, [-1, count, length]) for name, value in flat.items()}
        return self.named_results(self.logits_of_rows(inputs, [count]))

    def named_results(self, logits):
        """What `text_outputs` returns, of logits (B, C)."""
        return {
            "choice": tf.argmax(logits, axis=-1, output_type=tf.int32),
            "probabilities": tf.nn.softmax(logits),
        }

    def readable(self, row, max_length=None):
        return {"choice": int(row["choice"]), "probabilities": row["probabilities"].tolist()}

    def predict_text(self, contexts, choices, batch_size=8, max_length=None):
        """Which of its choices goes on with each context.

        Args:
            contexts: List of str.
            choices: List of lists of str, all of one length.
            batch_size, max_length: As in `BertClassifier.predict_text`.

        Returns:
            For each context a dict: "choice", its number from 0, and "probabilities".
        """
        return self.predict_columns([contexts, choices], batch_size, max_length=max_length)

    def element_figures(self, name, labels, outputs):
        return label_figures(labels, outputs)
