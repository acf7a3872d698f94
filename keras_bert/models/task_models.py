"""What models with one light head share: encoder, dropout, dense layer, labels to ignore."""

import keras
import tensorflow as tf
from keras import ops

from keras_bert.hashing import fold
from keras_bert.layers.dropout import dropout
from keras_bert.layers.embeddings import initializer
from keras_bert.losses import sparse_cross_entropy
from keras_bert.metrics import sparse_accuracy
from keras_bert.models.base import BertModel
from keras_bert.models.columns import label_numbers
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.grouping import in_groups
from keras_bert.models.inputs import StringInputs
from keras_bert.models.texts import TextModel
from keras_bert.text.pairing import combine

ROW_FIELDS = ("token_ids", "padding_mask", "segment_ids")  # what an encoder takes


class TaskModel(StringInputs, TextModel, BertModel):
    """An encoder, dropout, and dense layers that a subclass adds.

    With a tokenizer it takes strings: `fit`, `evaluate`, `predict` (see StringInputs), `predict_text`.

    Args:
        config: An EncoderConfig.
        layout: How the encoder lays out tokens, "dense" or "unpadded".
        tokenizer: The tokenizer whose ids the model reads.
        classifier_dropout: Dropout on what the head reads; None for the config's
            `hidden_dropout_prob`.
        max_length: Most tokens of a row that strings become; None for as many as the model can read.
        padding: Of the rows in `fit`, `evaluate` and `predict`: "longest", to the longest of each
            batch, or "max_length", of one shape for XLA and TPUs.
    """

    head_options = ("classifier_dropout",)

    def __init__(
        self,
        config,
        layout="dense",
        tokenizer=None,
        classifier_dropout=None,
        max_length=None,
        padding="longest",
        **kwargs,
    ):
        encoder = BertEncoder(config, layout, dtype=kwargs.get("dtype"))
        super().__init__(config, encoder, tokenizer, **kwargs)
        if padding not in ("longest", "max_length"):
            raise ValueError(f'`padding` must be "longest" or "max_length". Received: {padding!r}.')
        self.classifier_dropout = classifier_dropout
        self.max_length = max_length
        self.padding = padding
        self.longest(max_length)
        self.built = True

    def encode(self, inputs, training, seed, pooled_only=False):
        """What the encoder gives, and the seed of the call, which is None outside of training.

        Args:
            pooled_only: Whether "pooled_output" is all that is wanted: the last block then computes
                nothing but the first tokens.
        """
        seed = self.encoder.resolve_seed(training, seed)
        positions = ops.cast(inputs["token_ids"][:, :0], "int32") if pooled_only else None
        return self.encoder(inputs, training=training, seed=seed, positions=positions), seed

    def dense(self, units, name):
        """A dense layer on states, built."""
        config = self.config
        layer = keras.layers.Dense(
            units,
            kernel_initializer=initializer(config.initializer_range),
            dtype=self.dtype_policy,
            name=name,
        )
        layer.build((None, config.hidden_size))
        return layer

    def drop(self, x, seed):
        """Dropout before the head."""
        rate = self.classifier_dropout
        if rate is None:
            rate = self.config.hidden_dropout_prob
        # the encoder takes the numbers up to that of its last layer
        seed = None if seed is None else fold(seed, 1 + self.config.num_hidden_layers)
        return dropout(x, rate, seed, site=4)

    def text_inputs(self, tokenizer, text, text_pair, max_length):
        """The batch for texts, or pairs, in the graph."""
        pair = None if text_pair is None else tokenizer.tokenize(text_pair)
        return combine(
            tokenizer.tokenize(text),
            pair,
            tokenizer=tokenizer,
            max_length=self.longest(max_length),
            padding="longest",
            type_vocab_size=self.config.type_vocab_size,
        )

    def logits_of_rows(self, inputs, shape):
        """The model's logits (B, *shape), in groups of rows of like length."""

        def function(x):
            return {"logits": self(x, training=False)}

        return in_groups(function, inputs, {"logits": tf.zeros([0, *shape])})["logits"]

    def longest(self, max_length):
        """`max_length`, or that of the model, or what it can read; refused where that is less."""
        max_length = self.max_length if max_length is None else max_length
        if max_length is not None and not 0 < max_length <= self.config.max_length:
            raise ValueError(
                f"`max_length` must be at most {self.config.max_length}, what the position table of "
                f"the model has room for. Received: {max_length}."
            )
        return max_length or self.config.max_length

    def window(self, max_length, stride):
        """Tokens of a window, and from one to the next: a quarter of it where nothing is said."""
        max_length = self.longest(max_length)
        return max_length, max(1, max_length // 4) if stride is None else stride

    def label_weights(self, y, sample_weight=None):
        """As of every model, and 0 where an integer label is -1."""
        weights = super().label_weights(y, sample_weight)
        for name, labels in self.named(y).items():
            if "int" in keras.backend.standardize_dtype(labels.dtype):
                ignored = ops.equal(labels, -1)
                weights[name] = ops.where(ignored, 0.0, weights[name])
        return weights

    def get_config(self):
        names = (*self.head_options, "max_length", "padding")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


class LabelModel(TaskModel):
    """A task model whose labels have names.

    Args:
        config: An EncoderConfig.
        num_labels: How many labels; may be left out where `label_names` are given.
        label_names: Their names, in the order of the logits.
        label_smoothing, focal_gamma: As in `sparse_cross_entropy`, of the loss in training.
        class_weights: A factor of the loss for each label; None for 1.
        **kwargs: See TaskModel.
    """

    head_options = ("label_names", "classifier_dropout")
    loss_options = ("label_smoothing", "focal_gamma", "class_weights")

    def __init__(
        self,
        config,
        num_labels=None,
        label_names=None,
        label_smoothing=0.0,
        focal_gamma=0.0,
        class_weights=None,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        if num_labels is None and label_names is None:
            raise ValueError("`num_labels` or `label_names` must be given. Received: neither.")
        if isinstance(label_names, str) or not all(isinstance(n, str) for n in label_names or ()):
            raise ValueError(f"`label_names` must be a list of strings. Received: {label_names!r}.")
        if label_names is None:
            label_names = [f"LABEL_{i}" for i in range(num_labels)]
        self.label_names = tuple(label_names)
        self.num_labels = len(self.label_names)
        if num_labels not in (None, self.num_labels) or not self.num_labels:
            raise ValueError(
                "`label_names` must have `num_labels` names, at least one. "
                f"Received: {self.num_labels} names, num_labels={num_labels}."
            )
        if len(set(self.label_names)) < self.num_labels:
            raise ValueError(f"`label_names` must differ. Received: {self.label_names}.")
        if class_weights is not None and len(class_weights) != self.num_labels:
            raise ValueError(
                "`class_weights` must have a factor for each label. "
                f"Received: {len(class_weights)} for {self.num_labels} labels."
            )
        if not 0 <= label_smoothing < 1 or focal_gamma < 0:
            raise ValueError(
                "`label_smoothing` must lie in [0, 1) and `focal_gamma` not be negative. "
                f"Received: {label_smoothing} and {focal_gamma}."
            )
        self.label_smoothing = label_smoothing
        self.focal_gamma = focal_gamma
        self.class_weights = None if class_weights is None else tuple(map(float, class_weights))

    def class_factors(self, class_weight):
        factors = [1.0] * self.num_labels
        for label, factor in class_weight.items():
            number = self.label_names.index(label) if label in self.label_names else label
            if number not in range(self.num_labels):
                raise ValueError(
                    f"Labels of `class_weight` must be among {', '.join(self.label_names)}, or 0 to "
                    f"{self.num_labels - 1}. Received: {label!r}."
                )
            factors[number] = float(factor)
        return tf.constant(factors)

    def weigh(self, labels, factors):
        """The weight of each label in a batch, in the graph."""
        return tf.gather(factors, tf.maximum(labels, 0))

    def number(self, labels, rows=None):
        """Numbers of labels, (N,) int32; see `label_numbers`."""
        return label_numbers(labels, self.label_names, rows)

    def label_figures(self, labels, logits):
        """Figures of integer labels, the loss with the model's options."""
        figures = label_figures(
            labels, logits, smoothing=self.label_smoothing, focal_gamma=self.focal_gamma
        )
        if self.class_weights is not None:
            factors = ops.convert_to_tensor(self.class_weights, "float32")
            figures["loss"] *= ops.take(factors, ops.maximum(labels, 0), axis=0)
        return figures

    def get_config(self):
        own = {name: getattr(self, name) for name in self.loss_options}
        return {**super().get_config(), **own}


def label_figures(labels, logits, **loss_options):
    """Figures of integer labels, of which ignored ones, -1, have no weight."""
    labels = ops.maximum(labels, 0)
    return {
        "loss": sparse_cross_entropy(labels, logits, **loss_options),
        "accuracy": sparse_accuracy(labels, logits),
    }
