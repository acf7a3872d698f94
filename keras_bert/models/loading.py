"""From a checkpoint of any library to a model, and back to one that `transformers` loads."""

import dataclasses
import os
import warnings

import keras

from keras_bert.checkpoints.formats import local_directory, open_checkpoint
from keras_bert.checkpoints.huggingface import write_directory
from keras_bert.checkpoints.keras_hub import write_preset
from keras_bert.checkpoints.weights import check_sizes, load
from keras_bert.text.pretrained import has_tokenizer, load_tokenizer
from keras_bert.text.wordpiece import WordPieceTokenizer


class PretrainedModel(keras.Model):
    """What a model with an encoder inside, or an encoder itself, is read from and written to.

    A subclass has `config`, `tokenizer` and `head`, a key of `checkpoints.weights.HEADS`.
    """

    needs_pooler = None  # whether the model needs the encoder's pooler; None: as the checkpoint has one

    @classmethod
    def from_pretrained(cls, path, tokenizer="load", new_head=False, dropout=None, **options):
        """Reads a checkpoint of transformers, sentence-transformers, keras-hub, Model Garden, or a TF1
        release of google-research/bert or /albert; its files say which.

        Weights are converted to the type of the model's variables (float32, or what `dtype` says).
        A head that the checkpoint does not hold keeps its initial weights, of which a warning tells.

        Args:
            path: Local or remote (`gs://...`) directory, or `hf://owner/name[@revision]`, which needs
                a network.
            tokenizer: "load": that of the directory, if there is one; or a tokenizer; or None. Cased
                models whose files do not say so need `load_tokenizer(path, lowercase=False)`.
            new_head: Whether the head is to be a new one, whatever the checkpoint holds.
            dropout: Of states and attention in training; None for the checkpoint's.
            **options: Arguments of the constructor, such as `layout`, `dtype` or `num_labels`. Those of
                the head need not be given where the checkpoint says them.

        Raises:
            ValueError: When the architecture is none of the BERT family, when tensors are missing,
                unknown or misshapen (all of them are listed), or when files are damaged.
        """
        path = local_directory(path)
        checkpoint = open_checkpoint(path)
        check_sizes(checkpoint)
        needs_pooler = checkpoint.has_pooler() if cls.needs_pooler is None else cls.needs_pooler
        config = dataclasses.replace(checkpoint.config, use_pooler=needs_pooler)
        if dropout is not None:
            rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
            config = dataclasses.replace(config, **rates)
        if tokenizer == "load":
            tokenizer = _load_tokenizer(path)
        taken = {
            name: value for name, value in checkpoint.head_options.items() if name in cls.head_options
        }
        stored = taken.get("label_names", ())
        given = options.get("num_labels") or len(options.get("label_names") or ())
        if new_head or given:
            taken.pop("label_names", None)
        if new_head or given not in (0, len(stored)):
            taken.pop("problem_type", None)  # of other labels
        model = cls(config, **{**taken, **options})
        if tokenizer is not None:
            check_vocabulary(tokenizer, config, may_be_smaller=True)
            model.tokenizer = tokenizer
        report = load(weights_by_path(model), checkpoint, model.head, new_head)
        # a head that was asked for is no surprise
        new = [each for each in report.new if not new_head or each == "pooler"]
        new = [component.replace("_", " ") for component in new]
        if new:
            warnings.warn(
                f"{checkpoint.path} holds no {' and no '.join(new)} for this model: newly initialised, "
                "to be trained before use.",
                stacklevel=2,
            )
        model.foreign_config = dict(checkpoint.foreign)
        model.load_report = report
        return model

    def save_pretrained(self, directory, dtype=None):
        """Writes config.json, model.safetensors and the tokenizer: what `transformers` loads.

        Files of these names are replaced, each one whole or not at all.

        Args:
            directory: Local or remote (`gs://...`) path.
            dtype: Type to store the weights in, such as "bfloat16"; None keeps that of the variables.

        Raises:
            ValueError: When `transformers` has no such model; see `EncoderConfig.model_type`.
        """
        options = {name: getattr(self, name) for name in self.head_options}
        write_directory(
            os.fspath(directory),
            self.config,
            self.head,
            weights_by_path(self),
            options,
            getattr(self, "foreign_config", {}),
            dtype,
        )
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(directory)

    def save_keras_hub(self, directory):
        """Writes a preset of keras-hub, which must be installed: `BertBackbone.from_preset` loads it.

        Only an encoder of BERT can be written; that of another model is its `encoder`. Of a tokenizer
        it holds the vocabulary and the casing; keras-hub's own keeps accents of uncased text.

        Args:
            directory: Local path, new or empty; it holds all of the preset or nothing.

        Raises:
            ValueError: When keras-hub has no such model (the differing fields are named), or the
                tokenizer is not a WordPieceTokenizer.
        """
        tokenizer = None
        if self.tokenizer is not None:
            if not isinstance(self.tokenizer, WordPieceTokenizer):
                raise ValueError(
                    "`tokenizer` must be a WordPieceTokenizer, or None, for keras-hub's BERT. "
                    f"Received: {type(self.tokenizer).__name__}."
                )
            settings = self.tokenizer.get_config()
            tokenizer = (settings["vocabulary"], settings["lowercase"])
        write_preset(os.fspath(directory), self.config, weights_by_path(self), tokenizer)

    head_options = ()


def check_vocabulary(tokenizer, config, may_be_smaller=False):
    """Refuses a tokenizer that is not of this model: its ids would point at rows of other pieces.

    Args:
        may_be_smaller: Whether rows behind the last entry may belong to none: released tables are
            longer than their vocabularies where that makes a round number.
    """
    size, rows = tokenizer.vocabulary_size, config.vocab_size
    if size > rows or (size < rows and not may_be_smaller):
        raise ValueError(
            "The tokenizer must have one entry for each row of the model's word table. Received: "
            f"{size} entries, {rows} rows."
        )


def _load_tokenizer(directory):
    if not has_tokenizer(directory):
        return None
    try:
        return load_tokenizer(directory)
    except ValueError as error:
        raise ValueError(f"{error} (`tokenizer=None` reads the model alone.)") from None


def weights_by_path(model):
    """{path below the model: variable} of all weights that checkpoints hold."""
    prefix = "" if hasattr(model, "encoder") else f"{model.name}/"
    weights = {}
    for weight in model.weights:
        path = weight.path.removeprefix(prefix)
        weights[path if not prefix else f"encoder/{path}"] = weight
    return {path: weight for path, weight in weights.items() if not path.endswith("dropout_seed")}
