"""Pretraining runs: what a recipe's settings are assembled into, trained, reported and exported."""

import dataclasses
import functools
import itertools
import json
import posixpath
import time

import keras
import tensorflow as tf

from keras_bert.checkpoints.formats import local_directory, open_checkpoint
from keras_bert.data.corpus import build_corpus
from keras_bert.data.pretraining import PretrainingData
from keras_bert.data.record_data import RecordData
from keras_bert.data.service import through_service
from keras_bert.data.sources import open_corpus, sentence_splitter
from keras_bert.drawings import draw_history
from keras_bert.files import read_text, write_atomically
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.models.resizing import cut_vocabulary, resize_vocabulary
from keras_bert.recipes import FREE_FIELDS
from keras_bert.reports import (
    fill_in_a_fresh_process,
    mask_sentences,
    report_pretrainer,
)
from keras_bert.serving import export_saved_model
from keras_bert.text.pretrained import load_tokenizer
from keras_bert.text.vocabulary import extend_vocabulary, train_vocabulary
from keras_bert.text.wordpiece import WordPieceTokenizer
from keras_bert.training.callbacks import OnBest, Progress
from keras_bert.training.distribution import make_strategy
from keras_bert.training.trainer import Trainer

HELD_OUT_MASKING_RATE = 0.15  # Devlin et al. 2018, section 3.1


def pretrain(recipe):
    """Runs a recipe from text to a SavedModel that fills masks; goes on where it was interrupted.

    Writes into `recipe.workdir`: recipe.json, the tokenizer, states/, logs/ (TensorBoard),
    history.json, loss.png, model.keras, pretrained/ (for `from_pretrained`, and for transformers),
    saved_model/<version>/ and, last, report.json. A run that has
    its report is finished: the report is returned. On several hosts all of them call it, with one
    `workdir` that they share; the chief writes.

    Returns:
        The report, a dict: held-out figures, the unigram entropy of the same targets, filled masks.

    Raises:
        Interrupted: After SIGTERM or SIGINT; the same recipe goes on.
    """
    strategy = make_strategy(recipe.strategy, recipe.tpu)  # before anything else of TensorFlow
    prepare_workdir(recipe)
    report_path = _path(recipe, "report.json")
    if tf.io.gfile.exists(report_path):
        print(f"{recipe.workdir} holds a finished run; this is its report.")
        return json.loads(read_text(report_path))
    run = PretrainRun(recipe, strategy)
    run.train()
    print(f"\nEvaluating on {recipe.final_examples:,} held-out examples ...")
    phase = run.phases[-1]
    figures = run.evaluate(phase, recipe.final_examples)
    if run.trainer.is_chief:
        report = report_pretrainer(figures, phase.held_out, phase.batch_size, recipe.final_examples)
        write_atomically(_path(recipe, "history.json"), json.dumps(run.trainer.history, indent=1))
        draw_history(run.trainer.history, report["unigram_entropy"], _path(recipe, "loss.png"))
        model = run.trainer.strategy_free_copy()
        _save(model, _path(recipe, "model.keras"))
        report["pretrained"] = _save_pretrained(model, _path(recipe, "pretrained"))
        report["saved_model"] = export_saved_model(model, run.tokenizer, _path(recipe, "saved_model"))
        report["filled"] = fill_in_a_fresh_process(report["saved_model"], run.masked_sentences(5))
        write_atomically(report_path, json.dumps(report, indent=1))
    run.trainer.wait_for_all()
    return json.loads(read_text(report_path))


def dry_run(recipe):
    """A few steps, a save, a restore and an evaluation for each row length, and what they took.

    Returns:
        A dict for each phase: max_length, batch_size, seconds (of the last step, without tracing),
        peak_memory_gib, loss and held_out_loss.
    """
    folder = posixpath.join(recipe.workdir, "dry_run")
    strategy = make_strategy(recipe.strategy, recipe.tpu)
    if tf.io.gfile.exists(folder):
        if recipe.strategy == "multi_worker":
            raise ValueError(f"{folder} must not exist yet: what is in it is a dry run's. Remove it.")
        tf.io.gfile.rmtree(folder)
    recipe = dataclasses.replace(recipe, workdir=folder, dry_run=False)
    prepare_workdir(recipe)
    reports = []
    run = PretrainRun(recipe, strategy)
    for phase in run.phases:
        states = _path(recipe, f"states_{phase.max_length}")
        first = dataclasses.replace(phase, start=0)
        run.trainer = run.make_trainer(states)
        run.trainer.fit(first.training_batches, 1, 1)
        run.trainer.wait_for_all()  # the chief saves
        run.trainer = run.make_trainer(states)  # with another's restored state
        if run.trainer.restore() != 1:
            raise RuntimeError(f"The state of step 1 must be found again in {states}. Received: none.")
        seconds = []
        timer = keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda *_, seconds=seconds, **__: seconds.append(time.perf_counter()),
            on_train_batch_end=lambda *_, seconds=seconds, **__: seconds.append(time.perf_counter()),
        )
        history = run.trainer.fit(first.training_batches, 3, 1, callbacks=[timer])
        figures = run.evaluate(first, phase.batch_size)
        reports.append(
            {
                "max_length": phase.max_length,
                "batch_size": phase.batch_size,
                "seconds": seconds[-1] - seconds[-2],
                "peak_memory_gib": history[-1]["peak_memory_gib"],
                "loss": history[-1]["loss"],
                "held_out_loss": figures["loss"],
            }
        )
    run.trainer.wait_for_all()
    if run.trainer.is_chief:
        tf.io.gfile.rmtree(folder)
    return reports


@dataclasses.dataclass(frozen=True)
class Phase:
    """Steps `start` to `end` of a run, on rows of one length."""

    data: PretrainingData | RecordData
    held_out: PretrainingData | RecordData
    max_length: int
    batch_size: int
    start: int
    end: int
    service: str | None = None

    def training_batches(self, step, context):
        """`make_batches` of the Trainer."""
        if self.service is None:
            return self.data.training_batches(self.batch_size, step - self.start, context)
        rows = self.batch_size // context.num_replicas_in_sync
        return through_service(self.data.training_batches(rows), self.service, "pretrain")

    def describe(self, step):
        """The examples of a step, in words."""
        if self.service is not None:
            return "examples unknown, of a tf.data service"
        return self.data.describe(step - self.start, self.batch_size)


class PretrainRun:
    """The parts of a run: tokenizer, data, model, Trainer."""

    def __init__(self, recipe, strategy):
        self.recipe = recipe
        self.strategy = strategy
        keras.utils.set_random_seed(recipe.seed)
        self.source = _read_checkpoint(recipe.init_from) if recipe.init_from else None
        self.tokenizer = self._make_tokenizer()
        if self.source is not None and self.source.tokenizer.vocabulary != self.tokenizer.vocabulary:
            self.source = resize_vocabulary(self.source, self.source.tokenizer, self.tokenizer)
        self.config = self._make_config()
        self.phases = self._make_phases()
        self.model = self._make_model()
        self.trainer = self.make_trainer(_path(recipe, "states"))

    def make_trainer(self, state_dir):
        recipe = self.recipe
        return Trainer(
            self.model,
            accumulate=recipe.accumulate,
            steps_per_call=recipe.steps_per_call,
            jit_compile=recipe.jit_compile,
            seed=recipe.seed,
            on_nonfinite=recipe.on_nonfinite,
            state_dir=state_dir,
            keep=recipe.keep,
        )

    def train(self):
        """Trains from the newest saved state on; an epoch is `save_every` steps."""
        recipe, trainer = self.recipe, self.trainer
        step = trainer.restore()
        fingerprint = [phase.data.fingerprint() for phase in self.phases]
        if step and trainer.notes["data"] != fingerprint:
            raise ValueError(
                "A run must go on with the text and vocabulary it began with. Received: others than "
                f"those of step {step} in {recipe.workdir}. "
                "Choose another --workdir, or remove this one."
            )
        trainer.notes = {"data": fingerprint}
        optimizer = trainer.step.optimizer
        decayed = [v.path for v in self.model.trainable_variables if optimizer.decays(v.path)]
        replicas = self.strategy.num_replicas_in_sync
        print(
            f"{self.model.count_params():,} parameters, {replicas} replica(s); "
            f"weight decay on: {', '.join(decayed)}"
        )
        if step:
            print(f"Going on from step {step:,}.")
        for phase in self.phases:
            trainer.fit(
                phase.training_batches,
                phase.end,
                recipe.save_every,
                functools.partial(
                    phase.held_out.evaluation_batches, phase.batch_size, recipe.evaluate_examples
                ),
                self._callbacks(),
                phase.describe,
            )

    def evaluate(self, phase, examples):
        """Exact held-out figures."""
        batches = functools.partial(phase.held_out.evaluation_batches, phase.batch_size, examples)
        return self.trainer.evaluate(batches)

    def masked_sentences(self, count):
        """Held-out sentences with a hidden word each."""
        recipe = self.recipe
        documents = list(itertools.islice(self._documents("held_out"), 500))
        split = sentence_splitter(recipe.corpus, recipe.text_layout)
        return mask_sentences(split(tf.constant(documents)), self.tokenizer, count)

    def _callbacks(self):
        recipe, trainer = self.recipe, self.trainer
        if not trainer.is_chief:
            return []
        shown = {
            "masked_lm_loss": "masked LM loss",
            "masked_lm_accuracy": "accuracy",
            "sentence_accuracy": "sentence accuracy",
            "val_masked_lm_loss": "held-out loss",
        }
        callbacks = [
            Progress(recipe.steps, shown),
            keras.callbacks.TensorBoard(_path(recipe, "logs"), write_graph=False),
        ]
        if recipe.export_best:
            best = OnBest("val_loss", self._export_best, trainer.history)
            callbacks.append(best)
        return callbacks

    def _export_best(self):
        model = self.trainer.strategy_free_copy()
        export_saved_model(model, self.tokenizer, _path(self.recipe, "best"))

    def _documents(self, split):
        recipe = self.recipe
        return open_corpus(
            recipe.corpus,
            split,
            recipe.text_layout,
            recipe.tfds_split,
            recipe.text_field,
            recipe.held_out_every,
        )

    def _make_tokenizer(self):
        """The tokenizer of a run: the one it has begun with, a given one, or a new one."""
        recipe = self.recipe
        if tf.io.gfile.exists(_path(recipe, "tokenizer_config.json")):
            return load_tokenizer(recipe.workdir)
        if recipe.records:
            tokenizer = load_tokenizer(recipe.records)
            if self.source is not None:
                _check_rules(self.source.tokenizer, tokenizer)
        elif self.source is not None:
            tokenizer = self._extended(self.source.tokenizer)
        elif recipe.tokenizer and tf.io.gfile.isdir(recipe.tokenizer):
            tokenizer = load_tokenizer(recipe.tokenizer)
        elif recipe.tokenizer:
            tokenizer = WordPieceTokenizer(recipe.tokenizer, lowercase=recipe.lowercase)
        else:
            print(f"Training a vocabulary of {recipe.vocab_size:,} entries ...")
            words = train_vocabulary(self._documents("train"), recipe.vocab_size, recipe.lowercase)
            tokenizer = WordPieceTokenizer(words, lowercase=recipe.lowercase)
        tokenizer.save_pretrained(recipe.workdir)
        return tokenizer

    def _extended(self, tokenizer):
        count = self.recipe.new_entries
        if not count:
            return tokenizer
        print(f"Extending the vocabulary by {count:,} entries ...")
        words = extend_vocabulary(tokenizer, self._documents("train"), count)
        return type(tokenizer).from_config({**tokenizer.get_config(), "vocabulary": words})

    def _make_config(self):
        recipe, tokenizer = self.recipe, self.tokenizer
        if self.source is None:
            return recipe.encoder_config(
                vocab_size=tokenizer.vocabulary_size, pad_token_id=tokenizer.pad_token_id
            )
        return dataclasses.replace(
            self.source.config,
            use_pooler=self.source.config.use_pooler or recipe.has_sentence_head,
            hidden_dropout_prob=recipe.dropout,
            attention_probs_dropout_prob=recipe.dropout,
        )

    def _make_phases(self):
        recipe = self.recipe
        middle = recipe.steps - recipe.final_steps
        phases = [(recipe.records, recipe.max_length, recipe.max_predictions, recipe.batch_size)]
        if recipe.final_steps:
            size = recipe.final_batch_size or recipe.batch_size
            phases.append(
                (recipe.final_records, recipe.final_length, recipe.final_max_predictions, size)
            )
        made = []
        for (records, length, predictions, size), start, end in zip(
            phases, (0, middle), (middle, recipe.steps), strict=False
        ):
            data, held_out = (
                self._make_data(split, records, length, predictions if split == "train" else None)
                for split in ("train", "held_out")
            )
            longest = self.config.max_length
            if data.max_length > longest:
                raise ValueError(
                    "Rows must not be longer than the model's position table. "
                    f"Received: rows of {data.max_length} tokens, {longest} positions."
                )
            made.append(Phase(data, held_out, data.max_length, size, start, end, recipe.data_service))
        return made

    def _make_data(self, split, records, max_length, max_predictions):
        recipe = self.recipe
        masking = {
            "max_predictions": max_predictions,
            "masking_rate": recipe.masking_rate if split == "train" else HELD_OUT_MASKING_RATE,
            "masking": recipe.masking,
            "seed": recipe.seed,
            "type_vocab_size": self.config.type_vocab_size,
        }
        if records:
            return RecordData(
                posixpath.join(records, split),
                self.tokenizer,
                recipe.objective,
                max_length,
                block_shards=recipe.block_shards,
                **masking,
            )
        try:
            data = PretrainingData(
                self._corpus(split),
                self.tokenizer,
                recipe.objective,
                max_length,
                short_rate=recipe.short_rate,
                **masking,
            )
        except ValueError as error:
            if recipe.corpus == "builtin":
                raise
            raise ValueError(
                f"The {split} split of {recipe.corpus}: {error} "
                f"(Every {recipe.held_out_every}th document is held out: see --held-out-every.)"
            ) from error
        print(
            f"{split}: {len(data):,} examples of {max_length} tokens; "
            f"{data.documents_left_out:,} documents too short for one"
        )
        return data

    @functools.cache  # noqa: B019 - a run has two corpora and lives as long as they do
    def _corpus(self, split):
        recipe = self.recipe
        split_text = sentence_splitter(recipe.corpus, recipe.text_layout)
        corpus = build_corpus(self._documents(split), self.tokenizer, split_text)
        print(
            f"{split}: {corpus.documents:,} documents, {corpus.sentences:,} sentences, "
            f"{len(corpus.tokens):,} tokens"
        )
        return corpus

    def _make_model(self):
        recipe = self.recipe
        with self.strategy.scope():
            model = BertPretrainer(
                self.config,
                recipe.layout,
                self.tokenizer,
                sentence_head=recipe.has_sentence_head,
                dtype=recipe.dtype,
            )
            model.compile(recipe.make_optimizer(self.config))
        model.encoder.remat = recipe.remat
        if self.source is None:
            model.masked_lm.start_from_counts(self.phases[0].data.word_counts())
        else:
            _copy_weights(self.source, model)
        return model


def _path(recipe, name):
    return posixpath.join(recipe.workdir, name)


def prepare_workdir(recipe, free=FREE_FIELDS, begun=("tokenizer_config.json", "states")):
    """Makes the directory with the resolved recipe in it, or checks that the run there has the same.

    Args:
        recipe: A recipe with `workdir`.
        free: Names of the fields that may differ.
        begun: What a run that has begun has left in the directory.

    Raises:
        ValueError: When the directory holds a run of other settings.
    """
    path, values = _path(recipe, "recipe.json"), dataclasses.asdict(recipe)
    values = json.loads(json.dumps(values))  # as they are read again
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
        if name not in free and before.get(name, value) != value
    }
    if changed and not any(tf.io.gfile.exists(_path(recipe, name)) for name in begun):
        write_atomically(path, json.dumps(values, indent=1) + "\n")  # nothing came of the run before
        return
    if changed:
        listed = ", ".join(f"{name} was {old!r}, is {new!r}" for name, (old, new) in changed.items())
        raise ValueError(
            "A run must go on with the settings it began with. "
            f"Received in {recipe.workdir}: {listed}. "
            "Choose another --workdir, or remove this one."
        )


def _read_checkpoint(path):
    """The BertPretrainer of a finished run or of a released checkpoint, with its tokenizer."""
    path = local_directory(path)
    finished = posixpath.join(path, "model.keras")
    if tf.io.gfile.exists(finished):
        model = keras.models.load_model(finished, compile=False)
        model.tokenizer = load_tokenizer(path)
        return model
    try:
        has_sentence_head = open_checkpoint(path).head == "pretraining"
    except ValueError as error:
        raise ValueError(
            "`init_from` must be the directory of a finished run (with model.keras) or a checkpoint: "
            f"{error}"
        ) from None
    model = BertPretrainer.from_pretrained(path, sentence_head=has_sentence_head)
    if model.tokenizer is None:
        raise ValueError(f"`init_from` must hold a tokenizer. Received: {path}.")
    rows, entries = model.config.vocab_size, model.tokenizer.vocabulary_size
    if entries < rows:
        print(f"The word table has {rows:,} rows for {entries:,} entries: the others are left behind.")
        model = cut_vocabulary(model)
    return model


def _check_rules(old_tokenizer, new_tokenizer):
    """Refuses records whose tokenizer reads text otherwise; a longer vocabulary is fine."""
    old, new = (
        {**tokenizer.get_config(), "vocabulary": None, "class": type(tokenizer).__name__}
        for tokenizer in (old_tokenizer, new_tokenizer)
    )
    changed = [
        f"{name} was {old[name]!r}, is {new.get(name)!r}" for name in old if old[name] != new.get(name)
    ]
    if changed:
        raise ValueError(
            "The tokenizer of `records` must cut text as that of `init_from` does. "
            f"Received: {', '.join(changed)}."
        )


def _copy_weights(source, model):
    """Copies weights by path; a head that one of them lacks is named."""
    values = {weight.path: weight for weight in source.weights}
    missing = [weight.path for weight in model.weights if weight.path not in values]
    wanted = {weight.path for weight in model.weights}
    unused = [path for path in values if path not in wanted]
    heads = ("encoder/pooler", "sentence")
    if not all(path.startswith(heads) for path in missing + unused):
        raise ValueError(
            "The model of `init_from` must have the same encoder. "
            f"Received: without {missing}, with {unused} beside."
        )
    for weight in model.weights:
        if weight.path in values:
            weight.assign(values[weight.path].numpy())
    if missing:
        print(f"Newly initialised: {', '.join(missing)}")
    if unused:
        print(f"Left behind: {', '.join(unused)}")


def _save_pretrained(model, directory):
    """Writes what `transformers` loads, where it has such a model; returns the directory, or None."""
    try:
        model.save_pretrained(directory)
    except ValueError as error:
        print(f"Not written for transformers: {error}")
        return None
    return directory


def _save(model, path):
    draft = path.replace(".keras", ".draft.keras")
    model.save(draft)
    tf.io.gfile.rename(draft, path, overwrite=True)
