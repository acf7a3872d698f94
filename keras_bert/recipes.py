"""Recipes: every setting of a run as one frozen value, and the functions that assemble and run them."""

import argparse
import dataclasses
import itertools
import json
import posixpath
import tomllib
from typing import Literal

import keras
import tensorflow as tf

from keras_bert.config import EncoderConfig, check_field_types
from keras_bert.data.builtin import builtin_documents
from keras_bert.data.corpus import build_corpus
from keras_bert.data.pretraining import NextSentenceData
from keras_bert.data.sources import hold_out, text_documents, tfds_documents
from keras_bert.files import read_text, write_atomically
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.reports import (
    draw_history,
    evaluate_pretrainer,
    fill_in_a_fresh_process,
    mask_sentences,
)
from keras_bert.serving import export_saved_model
from keras_bert.text.masking import Masking
from keras_bert.text.sentences import split_lines, split_sentences
from keras_bert.text.vocabulary import train_vocabulary
from keras_bert.text.wordpiece import WordPieceTokenizer
from keras_bert.training.callbacks import Progress, SaveState
from keras_bert.training.optimizers import AdamW, WarmupLinearDecay
from keras_bert.training.state import TrainingState

HELD_OUT_MASKING_RATE = 0.15


@dataclasses.dataclass(frozen=True)
class PretrainRecipe:
    """Every setting of a pretraining run."""

    workdir: str = "runs/pretrain"
    """Directory for everything the run writes; a run that was interrupted goes on from it."""

    # --- text
    corpus: str = "builtin"
    """"builtin" (documentation on this machine), "tfds:NAME", or a text file, folder or glob."""
    text_layout: Literal["file", "blank_line", "sentence_per_line"] = "file"
    """How text files hold documents: one a file; separated by blank lines; or that with one sentence
    a line."""
    tfds_split: str = "train"
    """Split of a TFDS corpus."""
    tfds_field: str | None = None
    """Text feature of a TFDS corpus; None for the only one there is."""
    held_out_every: int = 33
    """Of a corpus of your own, each document whose number is a multiple of this is held out."""
    vocabulary: str | None = None
    """A vocab.txt; None trains one on the corpus."""
    vocab_size: int = 4000
    """Entries of a vocabulary that is trained."""
    lowercase: bool = True
    """Whether text is lower-cased and loses its accents."""

    # --- model
    preset: str = "bert_tiny"
    """Size of the encoder: bert_tiny, bert_mini, bert_small, bert_medium, bert_base, bert_large."""
    dropout: float = 0.0
    """Dropout everywhere in the encoder; little text seen once needs none."""
    initializer_range: float = 0.06
    """Standard deviation of the initial weights. 0.06 suits a width of 128; BERT's 0.02 suits 768."""
    hidden_act: str = "gelu"
    """Nonlinearity of the feed-forward layers."""
    layout: Literal["dense", "unpadded"] = "unpadded"
    """Whether padding is computed: dense has static shapes, unpadded is faster on CPU."""
    dtype: str = "float32"
    """Keras dtype policy: float32, mixed_bfloat16 or mixed_float16."""

    # --- examples
    max_length: int = 32
    """Tokens in a row."""
    max_predictions: int | None = None
    """Most predictions in a row; None for as many as the rate asks for in a full one."""
    masking_rate: float = 0.4
    """Share of tokens to predict in training. Held-out figures are always those of BERT's 15 %, so that
    runs can be compared."""
    masking: Masking = "token"
    """What is masked together: each token by itself, whole words, spans of up to 10 words (SpanBERT),
    or n-grams of up to 3 (ALBERT)."""
    short_rate: float = 0.1
    """Share of rows cut to a random shorter length."""

    # --- training
    batch_size: int = 32
    """Rows in a batch."""
    steps: int = 2500
    """Optimizer steps of the whole run."""
    learning_rate: float = 2e-3
    """Peak of the learning rate."""
    warmup_steps: int = 100
    """Steps until the peak; from there the rate falls linearly to 0."""
    weight_decay: float = 0.01
    """Decoupled weight decay; biases and norms are spared."""
    global_clipnorm: float = 1.0
    """Largest norm of all gradients together."""
    seed: int = 0
    """Of weights, order, pairs, masks and dropout."""

    # --- saving and looking
    save_every: int = 250
    """Steps between saved states; must divide `steps`."""
    keep: int = 2
    """How many saved states to keep."""
    evaluate_examples: int = 512
    """Held-out examples for the figures at each saved state."""
    final_examples: int = 4096
    """Held-out examples for the report; beyond one pass, pairs and masks are drawn anew."""

    def __post_init__(self):
        check_field_types(self)
        for name in (
            "steps",
            "save_every",
            "keep",
            "batch_size",
            "evaluate_examples",
            "final_examples",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {getattr(self, name)}.")
        if self.steps % self.save_every:
            raise ValueError(
                "`save_every` must divide `steps`, so that a run resumes at a boundary. "
                f"Received: save_every={self.save_every}, steps={self.steps}."
            )
        if self.held_out_every < 2:
            raise ValueError(f"`held_out_every` must be at least 2. Received: {self.held_out_every}.")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"`seed` must lie in [0, 2**32). Received: {self.seed}.")
        if not self.learning_rate > 0:
            raise ValueError(f"`learning_rate` must be positive. Received: {self.learning_rate}.")
        longest = self.encoder_config().max_length
        if self.max_length > longest:
            raise ValueError(
                "`max_length` must not exceed the position table of the preset. "
                f"Received: max_length={self.max_length}, {self.preset} has {longest}."
            )
        keras.dtype_policies.get(self.dtype)
        self.schedule()

    def encoder_config(self, **overrides):
        """The EncoderConfig of the run; its vocabulary's size and padding are known later."""
        fields = {
            "vocab_size": self.vocab_size,
            "hidden_act": self.hidden_act,
            "initializer_range": self.initializer_range,
            "hidden_dropout_prob": self.dropout,
            "attention_probs_dropout_prob": self.dropout,
        }
        return EncoderConfig.from_preset(self.preset, **{**fields, **overrides})

    def schedule(self):
        """The learning rate over steps."""
        return WarmupLinearDecay(self.learning_rate, self.warmup_steps, self.steps)


# What may differ when a run goes on: nothing of this reaches the weights.
FREE_FIELDS = {"workdir", "keep", "evaluate_examples", "final_examples"}


def parse_flags(recipe_class, argv=None, description=None):
    """Builds a recipe from its defaults, then `--recipe FILE.toml`, then flags."""
    import tyro

    files = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    files.add_argument("--recipe")
    known, flags = files.parse_known_args(argv)
    default = read_recipe(recipe_class, known.recipe) if known.recipe else recipe_class()
    return tyro.cli(recipe_class, args=flags, default=default, description=description)


def read_recipe(recipe_class, path):
    """Reads a TOML file of fields; unknown ones are an error."""
    try:
        values = tomllib.loads(read_text(path, "The recipe"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"The recipe must be TOML. Received: {path}: {error}.") from None
    names = [field.name for field in dataclasses.fields(recipe_class)]
    unknown = [name for name in values if name not in names]
    if unknown:
        raise ValueError(
            f"A recipe must only hold fields of {recipe_class.__name__}. Received: {unknown} in {path}."
        )
    return recipe_class(**values)


def pretrain(recipe):
    """Runs a recipe from text to a SavedModel that fills masks; goes on where it was interrupted.

    Writes into `recipe.workdir`: recipe.json, vocab.txt, states/, logs/ (TensorBoard), history.json,
    loss.png, model.keras, saved_model/<version>/ and, last, report.json. A run that has its report is
    finished: the report is returned.

    Returns:
        The report, a dict: held-out figures, the unigram entropy of the same targets, filled masks.
    """
    prepare_workdir(recipe)
    report_path = _path(recipe, "report.json")
    if tf.io.gfile.exists(report_path):
        print(f"{recipe.workdir} holds a finished run; this is its report.")
        return json.loads(read_text(report_path))
    keras.utils.set_random_seed(recipe.seed)
    tokenizer = make_tokenizer(recipe)
    data, held_out = (make_examples(recipe, tokenizer, split) for split in ("train", "held_out"))
    model = make_pretrainer(recipe, tokenizer)
    model.masked_lm.start_from_counts(data.word_counts())
    history = _fit(recipe, model, data, held_out)
    print(f"\nEvaluating on {recipe.final_examples:,} held-out examples ...")
    report = evaluate_pretrainer(model, held_out, recipe.batch_size, recipe.final_examples)
    write_atomically(_path(recipe, "history.json"), json.dumps(history, indent=1))
    draw_history(history, report["unigram_entropy"], _path(recipe, "loss.png"))
    _save(model, _path(recipe, "model.keras"))
    exported = export_saved_model(model, tokenizer, _path(recipe, "saved_model"))
    report["saved_model"] = exported
    documents = list(itertools.islice(_documents(recipe, "held_out"), 500))
    masked = mask_sentences(_splitter(recipe)(tf.constant(documents)), tokenizer, count=5)
    report["filled"] = fill_in_a_fresh_process(exported, masked)
    write_atomically(report_path, json.dumps(report, indent=1))
    return report


def _path(recipe, name):
    return posixpath.join(recipe.workdir, name)


def prepare_workdir(recipe):
    """Makes the directory with the resolved recipe in it, or checks that the run there has the same.

    Raises:
        ValueError: When the directory holds a run of other settings.
    """
    path, values = _path(recipe, "recipe.json"), dataclasses.asdict(recipe)
    try:
        tf.io.gfile.makedirs(recipe.workdir)
        if not tf.io.gfile.exists(path):
            write_atomically(path, json.dumps(values, indent=1) + "\n")
    except tf.errors.OpError as error:
        raise ValueError(
            f"`workdir` must be a directory that can be written to. Received: {recipe.workdir} "
            f"({error.message})."
        ) from error
    before = json.loads(read_text(path))
    changed = {
        name: (before[name], value)
        for name, value in values.items()
        if name not in FREE_FIELDS and before.get(name, value) != value
    }
    if changed and not any(tf.io.gfile.exists(_path(recipe, name)) for name in ("vocab.txt", "states")):
        write_atomically(path, json.dumps(values, indent=1) + "\n")  # nothing came of the run before
        return
    if changed:
        listed = ", ".join(f"{name} was {old!r}, is {new!r}" for name, (old, new) in changed.items())
        raise ValueError(
            "A run must go on with the settings it began with. "
            f"Received in {recipe.workdir}: {listed}. "
            "Choose another --workdir, or remove this one."
        )


def _documents(recipe, split):
    if recipe.corpus == "builtin":
        return builtin_documents(split)
    if recipe.corpus.startswith("tfds:"):
        name = recipe.corpus.removeprefix("tfds:")
        documents = tfds_documents(name, recipe.tfds_split, recipe.tfds_field)
    else:
        documents = text_documents(recipe.corpus, recipe.text_layout)
    return hold_out(documents, recipe.held_out_every, split)


def make_tokenizer(recipe):
    """The tokenizer of a run: of the vocabulary given, the one that it trained before, or a new one."""
    path = _path(recipe, "vocab.txt")
    if tf.io.gfile.exists(path):
        return WordPieceTokenizer(path, lowercase=recipe.lowercase)
    words = recipe.vocabulary
    if words is None:
        print(f"Training a vocabulary of {recipe.vocab_size:,} entries ...")
        words = train_vocabulary(
            _documents(recipe, "train"), recipe.vocab_size, lowercase=recipe.lowercase
        )
    tokenizer = WordPieceTokenizer(words, lowercase=recipe.lowercase)
    tokenizer.save_pretrained(recipe.workdir)
    return tokenizer


def make_examples(recipe, tokenizer, split):
    """The NextSentenceData of a split, "train" or "held_out"."""
    try:
        corpus = build_corpus(_documents(recipe, split), tokenizer, _splitter(recipe))
        data = NextSentenceData(
            corpus,
            tokenizer,
            recipe.max_length,
            recipe.max_predictions if split == "train" else None,
            recipe.masking_rate if split == "train" else HELD_OUT_MASKING_RATE,
            recipe.masking,
            recipe.short_rate,
            recipe.seed,
        )
    except ValueError as error:
        if recipe.corpus == "builtin":
            raise
        raise ValueError(
            f"The {split} split of {recipe.corpus}: {error} "
            f"(Every {recipe.held_out_every}th document is held out: see --held-out-every.)"
        ) from error
    print(
        f"{split}: {corpus.documents:,} documents, {corpus.sentences:,} sentences, "
        f"{len(corpus.tokens):,} tokens, {len(data):,} examples; "
        f"{data.documents_left_out:,} documents of one sentence left out"
    )
    return data


def _splitter(recipe):
    by_line = recipe.corpus != "builtin" and recipe.text_layout == "sentence_per_line"
    return split_lines if by_line else split_sentences


def make_pretrainer(recipe, tokenizer):
    """A compiled BertPretrainer for a recipe."""
    config = recipe.encoder_config(
        vocab_size=tokenizer.vocabulary_size, pad_token_id=tokenizer.pad_token_id
    )
    model = BertPretrainer(config, recipe.layout, tokenizer, dtype=recipe.dtype)
    model.compile(AdamW(recipe.schedule(), recipe.weight_decay, global_clipnorm=recipe.global_clipnorm))
    return model


def _fit(recipe, model, data, held_out):
    """Trains from the newest saved state on; an epoch is `save_every` steps."""
    state = TrainingState(_path(recipe, "states"), model, model.optimizer, recipe.keep)
    step, notes = state.restore()
    fingerprint = data.fingerprint()
    if step and notes["data"] != fingerprint:
        raise ValueError(
            f"A run must go on with the text and vocabulary it began with. Received: others than those "
            f"of step {step} in {recipe.workdir}. Choose another --workdir, or remove this one."
        )
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # under loss scaling
    decayed = [v.path for v in model.trainable_variables if optimizer.decays(v.path)]
    print(f"{model.count_params():,} parameters; weight decay on: {', '.join(decayed)}")
    if step:
        print(f"Going on from step {step:,}.")
    shown = {
        "masked_lm_loss": "masked LM loss",
        "masked_lm_accuracy": "accuracy",
        "sentence_accuracy": "sentence accuracy",
        "val_masked_lm_loss": "held-out loss",
    }
    tokens = recipe.batch_size * recipe.max_length * data.fill_rate()
    saver = SaveState(state, notes["history"] if step else [], {"data": fingerprint})
    model.fit(
        data.training_batches(recipe.batch_size, start_step=step),
        initial_epoch=step // recipe.save_every,
        epochs=recipe.steps // recipe.save_every,
        steps_per_epoch=recipe.save_every,
        validation_data=held_out.evaluation_batches(recipe.batch_size, recipe.evaluate_examples),
        callbacks=[
            Progress(recipe.steps, tokens, shown),
            keras.callbacks.TensorBoard(_path(recipe, "logs"), write_graph=False),
            saver,
        ],
        shuffle=False,  # the batches are shuffled already
        verbose=0,
    )
    return saver.history


def _save(model, path):
    draft = path.replace(".keras", ".draft.keras")
    model.save(draft)
    tf.io.gfile.rename(draft, path, overwrite=True)
