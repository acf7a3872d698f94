"""What every model around the encoder shares: its config in and out, its losses and its figures."""

import inspect

import keras
from keras import ops

from keras_bert.config import EncoderConfig
from keras_bert.models.defaults import default_optimizer, set_default_rate, steps_of
from keras_bert.models.loading import PretrainedModel, check_vocabulary


class BertModel(PretrainedModel):
    """A model made of an encoder and heads, with losses and metrics of its own.

    Compiled without a `loss`, it minimises the sum of `element_figures`'s losses, each a mean over the
    sample weights, and reports every figure as a sum over the data set divided by the sum of weights.
    Both come from one computation. (Keras's own `loss` entry is a mean of batch means.) The `Trainer`
    takes the same sums, and divides them by those of all replicas.

    Args:
        config: An EncoderConfig.
        encoder: The BertEncoder, built from the same config.
        tokenizer: Tokenizer for the strings-in functions. A `.keras` file brings it with it.
    """

    default_rate = 5e-5  # highest learning rate where `compile` is given no optimizer

    def __init__(self, config, encoder, tokenizer=None, **kwargs):
        super().__init__(**kwargs)
        if tokenizer is not None:
            check_vocabulary(tokenizer, config)
        self.config = config
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.figures = {}

    output_name = "labels"  # what figures call an output that is not one of several in a dict

    def named(self, value):
        """Labels, weights or outputs as a dict."""
        return value if isinstance(value, dict) else {self.output_name: value}

    def element_figures(self, name, labels, outputs):
        """Figures of the output `name`, one number for each element; "loss" is what training minimises.

        Returns:
            {"loss": (...), another figure: (...), ...}
        """
        raise NotImplementedError

    def label_weights(self, y, sample_weight=None):
        """How much each label counts, {name of the output: (...) float32}, of the labels' shapes.

        A sample weight of fewer axes than its labels is that of all of them: of a row, for example.
        """
        y = self.named(y)
        ones = {name: ops.ones_like(labels, "float32") for name, labels in y.items()}
        if sample_weight is None:
            return ones
        sample_weight = self.named(sample_weight)
        missing = sorted(set(y) - set(sample_weight))
        if missing:
            raise ValueError(
                f"`sample_weight` must have a weight for every label. Received: none for {missing}."
            )
        weights = {}
        for name, each in ones.items():
            given = ops.cast(sample_weight[name], "float32")
            axes = len(each.shape) - len(given.shape)
            weights[name] = ops.reshape(given, (*ops.shape(given), *[1] * axes)) * each
        return weights

    def weighted_figures(self, y, y_pred, shares):
        """Each figure of a batch, as the sum of its elements times their shares.

        Where the shares are the weights divided by their sum over the batch, these are means; divided
        by the sum over the batches of all replicas, they add up to the mean of those.

        Args:
            y: {name: labels}.
            y_pred: {name: outputs of the model}.
            shares: {name: (...)}, one for each element.

        Returns:
            {name: {"loss": (), another figure: (), ...}}
        """
        y, y_pred = self.named(y), self.named(y_pred)
        missing = sorted(set(y_pred) - set(y))
        if missing:
            raise ValueError(
                "The labels must hold one entry for each output of the model. "
                f"Received: labels for {sorted(y)}, none for {missing}."
            )
        return {
            name: {
                figure: ops.sum(values * shares[name])
                for figure, values in self.element_figures(name, y[name], outputs).items()
            }
            for name, outputs in y_pred.items()
        }

    def compile(self, optimizer="auto", **kwargs):
        """`keras.Model.compile`; `loss` and metrics are only needed to replace the model's own.

        Args:
            optimizer: "auto": AdamW with decay 0.01 and gradients clipped to a norm of 1. Its rate
                rises to `default_rate` over a tenth of the steps of each `fit` and falls to 0 with the
                last; where `fit` does not know its steps, and elsewhere, it is constant.
            **kwargs: Further arguments of `keras.Model.compile`.
        """
        if isinstance(optimizer, str) and optimizer == "auto":
            optimizer = default_optimizer(self.default_rate)
        super().compile(optimizer=optimizer, **kwargs)
        # Built now, a checkpoint can be restored before the first step, and `fit` traces once.
        self.optimizer.build(self.trainable_variables)

    def fit(self, *args, **kwargs):
        """`keras.Model.fit`, with the learning rate of `compile()`'s default over its steps."""
        if self.compiled:
            call = inspect.signature(super().fit).bind(*args, **kwargs)
            call.apply_defaults()
            given = call.arguments
            steps = given["steps_per_epoch"] or steps_of(
                given["x"], given["batch_size"], given["validation_split"]
            )
            set_default_rate(self, steps, given["epochs"], given["initial_epoch"])
        return super().fit(*args, **kwargs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if self.loss is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        weights = self.label_weights(y, sample_weight)
        # Sums, not means times their weights: what is counted stays a whole number.
        sums = self.weighted_figures(y, y_pred, weights)
        totals = {name: ops.sum(values) for name, values in weights.items()}
        for name, values in sums.items():
            for figure, value in values.items():
                self._update(f"{name}_{figure}", value, totals[name])
        # 0, with finite gradients, where all weights are 0
        return sum(ops.divide_no_nan(values["loss"], totals[name]) for name, values in sums.items())

    def _update(self, name, total, weight):
        if name not in self.figures:
            self.figures[name] = keras.metrics.Mean(name=name)
        self.figures[name].total.assign_add(total)
        self.figures[name].count.assign_add(weight)

    def compile_from_config(self, config):
        """What loading calls; Keras's own would not call a `compile` that is overridden."""
        self.compile(**keras.saving.deserialize_keras_object(config))

    def get_config(self):
        own = {"config": self.config.to_dict(), "layout": self.encoder.layout}
        if self.tokenizer is not None:
            own["tokenizer"] = keras.saving.serialize_keras_object(self.tokenizer)
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config):
        config = {**config, "config": EncoderConfig.from_dict(config["config"])}
        tokenizer = keras.saving.deserialize_keras_object(config.pop("tokenizer", None))
        model = cls(**config)
        if tokenizer is not None:
            check_vocabulary(tokenizer, model.config, may_be_smaller=True)
            model.tokenizer = tokenizer
        return model
