"""What every model around the encoder shares: its config in and out, its losses and its figures."""

import keras

from keras_bert.config import EncoderConfig
from keras_bert.losses import weighted_mean


def check_vocabulary(tokenizer, config):
    """Refuses a tokenizer that is not of this model: its ids would point at rows of other pieces."""
    if tokenizer.vocabulary_size != config.vocab_size:
        raise ValueError(
            "The tokenizer must have one entry for each row of the model's word table. Received: "
            f"{tokenizer.vocabulary_size} entries, {config.vocab_size} rows."
        )


class BertModel(keras.Model):
    """A model made of an encoder and heads, with losses and metrics of its own.

    Compiled without a `loss`, it minimises the sum of `element_figures`'s losses, each a mean over the
    sample weights, and reports every figure as a sum over the data set divided by the sum of weights.
    Both come from one computation. (Keras's own `loss` entry is a mean of batch means.)

    Args:
        config: An EncoderConfig.
        encoder: The BertEncoder, built from the same config.
        tokenizer: Tokenizer for the strings-in functions. It stays out of `.keras` files, which hold
            the model alone.
    """

    def __init__(self, config, encoder, tokenizer=None, **kwargs):
        super().__init__(**kwargs)
        if tokenizer is not None:
            check_vocabulary(tokenizer, config)
        self.config = config
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.figures = {}

    def element_figures(self, name, labels, outputs):
        """Figures of the output `name`, one number for each element; "loss" is what training minimises.

        Returns:
            {"loss": (...), another figure: (...), ...}
        """
        raise NotImplementedError

    def compile(self, optimizer, **kwargs):
        """`keras.Model.compile`; `loss` and metrics are only needed to replace the model's own."""
        super().compile(optimizer=optimizer, **kwargs)
        # Built now, a checkpoint can be restored before the first step, and `fit` traces once.
        self.optimizer.build(self.trainable_variables)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if self.loss is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        total = 0.0
        for name, outputs in y_pred.items():
            weights = None if sample_weight is None else sample_weight[name]
            figures = self.element_figures(name, y[name], outputs)
            total += weighted_mean(figures["loss"], weights)
            for figure, values in figures.items():
                self._mean(f"{name}_{figure}").update_state(values, weights)
        return total

    def _mean(self, name):
        if name not in self.figures:
            self.figures[name] = keras.metrics.Mean(name=name)
        return self.figures[name]

    def compile_from_config(self, config):
        """What loading calls; Keras's own would not call a `compile` that is overridden."""
        self.compile(**keras.saving.deserialize_keras_object(config))

    def get_config(self):
        own = {"config": self.config.to_dict(), "layout": self.encoder.layout}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "config": EncoderConfig.from_dict(config["config"])})
