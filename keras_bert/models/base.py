"""What every model around the encoder shares: its config in and out, and losses by default."""

import keras

from keras_bert.config import EncoderConfig


class BertModel(keras.Model):
    """A model made of an encoder and heads.

    Args:
        config: An EncoderConfig.
        encoder: The BertEncoder, built from the same config.
        tokenizer: Tokenizer for the strings-in functions. It stays out of `.keras` files, which hold
            the model alone.
    """

    def __init__(self, config, encoder, tokenizer=None, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.encoder = encoder
        self.supports_jit = encoder.supports_jit
        self.tokenizer = tokenizer

    def default_losses(self):
        """{output name: loss}"""
        raise NotImplementedError

    def default_metrics(self):
        """{output name: [metrics]}, for `weighted_metrics`"""
        raise NotImplementedError

    def compile(self, optimizer="adamw", loss=None, weighted_metrics=None, **kwargs):
        """`keras.Model.compile`, with the model's own losses and metrics where none are given."""
        super().compile(
            optimizer=optimizer,
            loss=self.default_losses() if loss is None else loss,
            weighted_metrics=self.default_metrics() if weighted_metrics is None else weighted_metrics,
            **kwargs,
        )
        # Built now, a checkpoint can be restored before the first step, and `fit` traces once.
        self.optimizer.build(self.trainable_variables)

    def compile_from_config(self, config):
        """What loading calls; Keras's own would not call a `compile` that is overridden."""
        self.compile(**keras.saving.deserialize_keras_object(config))

    def get_config(self):
        own = {"config": self.config.to_dict(), "layout": self.encoder.layout}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "config": EncoderConfig.from_dict(config["config"])})
