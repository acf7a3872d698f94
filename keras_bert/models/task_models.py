"""Models with one light head: for texts, tokens, spans and choices (Devlin et al. 2018, section 4)."""

import keras
from keras import ops

from keras_bert.hashing import fold
from keras_bert.layers.dropout import dropout
from keras_bert.layers.embeddings import initializer
from keras_bert.layers.heads import DiscriminatorHead
from keras_bert.losses import binary_cross_entropy, sparse_cross_entropy, squared_error
from keras_bert.metrics import binary_accuracy, sparse_accuracy
from keras_bert.models.base import BertModel
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.pretrainer import BertPretrainer

PROBLEM_TYPES = ("single_label", "multi_label", "regression")


class TaskModel(BertModel):
    """An encoder, dropout, and dense layers that a subclass adds.

    Args:
        config: An EncoderConfig.
        layout: How the encoder lays out tokens, "dense" or "unpadded".
        tokenizer: The tokenizer whose ids the model reads.
        classifier_dropout: Dropout on what the head reads; None for the config's
            `hidden_dropout_prob`.
    """

    head_options = ("classifier_dropout",)

    def __init__(self, config, layout="dense", tokenizer=None, classifier_dropout=None, **kwargs):
        encoder = BertEncoder(config, layout, dtype=kwargs.get("dtype"))
        super().__init__(config, encoder, tokenizer, **kwargs)
        self.classifier_dropout = classifier_dropout
        self.built = True

    def encode(self, inputs, training, seed):
        """What the encoder gives, and the seed of the call, which is None outside of training."""
        seed = self.encoder.resolve_seed(training, seed)
        return self.encoder(inputs, training=training, seed=seed), seed

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

    def label_weights(self, y, sample_weight=None):
        """As of every model, and 0 where an integer label is -1."""
        weights = super().label_weights(y, sample_weight)
        for name, labels in self.named(y).items():
            if "int" in keras.backend.standardize_dtype(labels.dtype):
                ignored = ops.equal(labels, -1)
                weights[name] = ops.where(ignored, 0.0, weights[name])
        return weights

    def get_config(self):
        own = {name: getattr(self, name) for name in self.head_options}
        return {**super().get_config(), **own}


class LabelModel(TaskModel):
    """A task model whose labels have names."""

    head_options = ("label_names", "classifier_dropout")

    def __init__(self, config, num_labels=None, label_names=None, **kwargs):
        super().__init__(config, **kwargs)
        if num_labels is None and label_names is None:
            raise ValueError("`num_labels` or `label_names` must be given. Received: neither.")
        if label_names is None:
            label_names = [f"LABEL_{i}" for i in range(num_labels)]
        self.label_names = tuple(label_names)
        self.num_labels = len(self.label_names)
        if num_labels not in (None, self.num_labels) or not self.num_labels:
            raise ValueError(
                "`label_names` must have `num_labels` names, at least one. "
                f"Received: {self.num_labels} names, num_labels={num_labels}."
            )


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
            "regression" (squared error).
        label_names: Their names, in the order of the logits.
        **kwargs: See TaskModel.
    """

    head = "sequence_classification"
    needs_pooler = True
    head_options = ("label_names", "classifier_dropout", "problem_type")

    def __init__(
        self, config, num_labels=None, problem_type="single_label", label_names=None, **kwargs
    ):
        super().__init__(config, num_labels, label_names, **kwargs)
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

    def element_figures(self, name, labels, outputs):
        if self.problem_type == "single_label":
            return label_figures(labels, outputs)
        labels = ops.reshape(labels, ops.shape(outputs))
        if self.problem_type == "regression":
            return {"loss": ops.mean(squared_error(labels, outputs), axis=-1)}
        return {
            "loss": ops.mean(binary_cross_entropy(labels, outputs), axis=-1),
            "accuracy": ops.mean(binary_accuracy(labels, outputs), axis=-1),
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class BertTokenClassifier(LabelModel):
    """Scores labels for every token: names of things, parts of speech.

    Shapes (B rows, T tokens, C labels):
        inputs   a dict, as BertEncoder takes it
        returns  (B, T, C)  float32  logits
        labels   (B, T)     int, -1 to ignore

    Args:
        config: An EncoderConfig.
        num_labels: C; may be left out where `label_names` are given.
        label_names: Their names, in the order of the logits.
        **kwargs: See TaskModel.
    """

    head = "token_classification"
    needs_pooler = False

    def __init__(self, config, num_labels=None, label_names=None, **kwargs):
        super().__init__(config, num_labels, label_names, **kwargs)
        self.token_classifier = self.dense(self.num_labels, "token_classifier")

    def call(self, inputs, training=None, seed=None):
        encoded, seed = self.encode(inputs, training, seed)
        x = self.drop(encoded["sequence_output"], seed)
        return ops.cast(self.token_classifier(x), "float32")

    def element_figures(self, name, labels, outputs):
        return label_figures(labels, outputs)


@keras.saving.register_keras_serializable(package="keras_bert")
class BertQuestionAnswering(TaskModel):
    """Scores every token as the first and as the last of the answer (section 4.2).

    Shapes (B rows, T tokens):
        inputs   a dict, as BertEncoder takes it: the question, then the text
        returns  a dict of float32 logits, -1e9 at padding, so that they can be no answer
            start_positions  (B, T)
            end_positions    (B, T)
        labels   a dict of the same names: (B,) int, the tokens; -1 to ignore

    Args:
        config: An EncoderConfig.
        **kwargs: See TaskModel.
    """

    head = "question_answering"
    needs_pooler = False

    def __init__(self, config, classifier_dropout=0.0, **kwargs):  # the paper has none here
        super().__init__(config, classifier_dropout=classifier_dropout, **kwargs)
        self.span = self.dense(2, "span")

    def call(self, inputs, training=None, seed=None):
        encoded, seed = self.encode(inputs, training, seed)
        scores = ops.cast(self.span(self.drop(encoded["sequence_output"], seed)), "float32")
        is_token = ops.cast(inputs["padding_mask"], "bool")[..., None]
        starts, ends = ops.unstack(ops.where(is_token, scores, -1e9), 2, axis=-1)
        return {"start_positions": starts, "end_positions": ends}

    def element_figures(self, name, labels, outputs):
        return label_figures(labels, outputs)


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

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.choice = self.dense(1, "choice")

    def call(self, inputs, training=None, seed=None):
        rows, choices, length = ops.shape(inputs["token_ids"])
        flat = {name: ops.reshape(value, (-1, length)) for name, value in inputs.items()}
        encoded, seed = self.encode(flat, training, seed)
        scores = self.choice(self.drop(encoded["pooled_output"], seed))
        return ops.cast(ops.reshape(scores, (rows, choices)), "float32")

    def element_figures(self, name, labels, outputs):
        return label_figures(labels, outputs)


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


@keras.saving.register_keras_serializable(package="keras_bert")
class BertMaskedLM(BertPretrainer):
    """A BertPretrainer without a sentence head: fills masks, and nothing else."""

    needs_pooler = False

    def __init__(self, config, **kwargs):
        super().__init__(config, **{**kwargs, "sentence_head": False})


def label_figures(labels, logits):
    """Figures of integer labels, of which ignored ones, -1, have no weight."""
    labels = ops.maximum(labels, 0)
    return {
        "loss": sparse_cross_entropy(labels, logits),
        "accuracy": sparse_accuracy(labels, logits),
    }
