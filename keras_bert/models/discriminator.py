"""Which tokens were replaced: ELECTRA (Clark et al. 2020)."""

import keras
from keras import ops

from keras_bert.layers.heads import DiscriminatorHead
from keras_bert.losses import binary_cross_entropy
from keras_bert.metrics import binary_accuracy
from keras_bert.models.task_models import TaskModel


@keras.saving.register_keras_serializable(package="keras_bert")
class BertDiscriminator(TaskModel):
    """Scores every token as replaced or not: ELECTRA's discriminator (Clark et al. 2020, section 2).

    Shapes (B rows, T tokens):
        inputs   a dict, as BertEncoder takes it
        returns  (B, T)  float32  logit of "replaced"
        labels   (B, T)  int: 0 = original, 1 = replaced, -1 to ignore

    Args:
        config: An EncoderConfig.
        **kwargs: See TaskModel.
    """

    head = "replaced_token_detection"
    needs_pooler = False
    head_options = ()

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.discriminator = DiscriminatorHead(
            config.hidden_act, config.initializer_range, dtype=self.dtype_policy, name="discriminator"
        )
        self.discriminator.build((None, None, config.hidden_size))

    def call(self, inputs, training=None, seed=None):
        encoded, _ = self.encode(inputs, training, seed)
        return self.discriminator(encoded["sequence_output"])

    def element_figures(self, name, labels, outputs):
        labels = ops.maximum(labels, 0)  # ignored ones have no weight
        return {
            "loss": binary_cross_entropy(labels, outputs),
            "accuracy": binary_accuracy(labels, outputs),
        }
