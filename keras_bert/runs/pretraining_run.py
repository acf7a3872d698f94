"""Pretraining runs: what a recipe's settings are assembled into, trained, reported and exported."""

import dataclasses
import functools
import itertools
import json
import posixpath

import keras
import tensorflow as tf

from keras_bert.data.corpus import build_corpus
from keras_bert.data.pretraining import PretrainingData
from keras_bert.data.record_data import RecordData
from keras_bert.data.service import through_service
from keras_bert.data.sources import open_corpus, sentence_splitter
from keras_bert.files import read_json, write_atomically
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.models.resizing import resize_vocabulary
from keras_bert.runs.drawings import draw_history
from keras_bert.runs.pretraining_report import (
    fill_in_a_fresh_process,
    mask_sentences,
    report_pretrainer,
)
from keras_bert.runs.starting_point import check_rules, copy_weights, read_checkpoint
from keras_bert.runs.workdir import in_workdir, prepare_workdir
from keras_bert.serving.export import export_saved_model
from keras_bert.text.pretrained import load_tokenizer
from keras_bert.text.vocabulary_training import extend_vocabulary, train_vocabulary
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
    report_path = in_workdir(recipe, "report.json")
    if tf.io.gfile.exists(report_path):
        print(f"{recipe.workdir} holds a finished run; this is its report.")
        return read_json(report_path)
    run = PretrainRun(recipe, strategy)
    run.train()
    print(f"\nEvaluating on {recipe.final_examples:,} held-out examples ...")
    phase = run.phases[-1]
    figures = run.evaluate(phase, recipe.final_examples)
    if run.trainer.is_chief:
        report = report_pretrainer(figures, phase.held_out, phase.batch_size, recipe.final_examples)
        write_atomically(in_workdir(recipe, "history.json"), json.dumps(run.trainer.history, indent=1))
        model = run.trainer.strategy_free_copy()
        _save(model, in_workdir(recipe, "model.keras"))
        report["pretrained"] = _save_pretrained(model, in_workdir(recipe, "pretrained"))
        report["saved_model"] = export_saved_model(
            model, run.tokenizer, in_workdir(recipe, "saved_model")
        )
        report["filled"] = fill_in_a_fresh_process(report["saved_model"], run.masked_sentences(5))
        drawing = in_workdir(recipe, "loss.png")
        draw_history(run.trainer.history, report["unigram_entropy"], report["filled"], drawing)
        write_atomically(report_path, json.dumps(report, indent=1))
    run.trainer.wait_for_all()
    return read_json(report_path)


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
        self.source = read_checkpoint(recipe.init_from) if recipe.init_from else None
        self.tokenizer = self._make_tokenizer()
        if self.source is not None and self.source.tokenizer.vocabulary != self.tokenizer.vocabulary:
            self.source = resize_vocabulary(self.source, self.source.tokenizer, self.tokenizer)
        self.config = self._make_config()
        self.phases = self._make_phases()
        self.model = self._make_model()
        self.trainer = self.make_trainer(in_workdir(recipe, "states"))

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
            keras.callbacks.TensorBoard(in_workdir(recipe, "logs"), write_graph=False),
        ]
        if recipe.export_best:
            best = OnBest("val_loss", self._export_best, trainer.history)
            callbacks.append(best)
        return callbacks

    def _export_best(self):
        model = self.trainer.strategy_free_copy()
        export_saved_model(model, self.tokenizer, in_workdir(self.recipe, "best"))

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
        if tf.io.gfile.exists(in_workdir(recipe, "tokenizer_config.json")):
            return load_tokenizer(recipe.workdir)
        if recipe.records:
            tokenizer = load_tokenizer(recipe.records)
            if self.source is not None:
                check_rules(self.source.tokenizer, tokenizer)
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
                f"(One document in {recipe.held_out_every} is held out: see --held-out-every.)"
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
            copy_weights(self.source, model)
        return model


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
