"""Fine-tuning runs: a pretrained directory and labelled data to a measured, saved, readable result."""

import dataclasses
import json
import posixpath
from typing import Literal

import keras
import numpy as np
import tensorflow as tf

from keras_bert.checkpoints.formats import local_directory, open_checkpoint
from keras_bert.files import read_text, write_atomically
from keras_bert.kinds import Reading, kind_of
from keras_bert.reports import write_task_report
from keras_bert.runs import prepare_workdir
from keras_bert.tasks import TASKS, TFDS, of_tfds, path_of, read_split
from keras_bert.training.callbacks import OnBest, Progress, StopWhenStale
from keras_bert.training.distribution import make_strategy
from keras_bert.training.optimizers import AdamW, layer_decay
from keras_bert.training.schedules import WarmupDecay
from keras_bert.training.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class FinetuneRecipe:
    """Every setting of a fine-tuning run; refused at birth when inconsistent."""

    # --- what
    task: str = "classification"
    """A task of the table (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad1, squad2,
    conll2003, swag), or a kind for data of your own: classification, regression, multi_label, tagging,
    answers, choice."""
    init: str = ""
    """The pretrained directory, or hf://owner/name: whatever `from_pretrained` reads."""
    workdir: str = "runs/finetune"
    """Where everything is written."""
    data: str | None = None
    """Folder of the task's files; tfds for the task's data set of TensorFlow Datasets, tfds:NAME for
    another one. Or name the files by the next flags."""
    train: str | None = None
    """File of the training data."""
    dev: str | None = None
    """File that chooses the best epoch."""
    test: str | None = None
    """File that is predicted, and scored if it has labels, at the end."""
    text: str | None = None
    """Column of the text, where the task's is not it."""
    text_pair: str | None = None
    """Column of the second text of pairs."""
    label: str | None = None
    """Column of the label."""
    columns: tuple[str, ...] | None = None
    """Names of the columns, where files have no header."""

    # --- how texts are read
    max_length: int = 128
    """Most tokens of a row, or of a window over a long text."""
    stride: int = 32
    """Tokens from one window to the next (tagging, answers)."""

    # --- training
    epochs: int = 3
    """Passes over the training data."""
    batch_size: int = 32
    """Examples in a batch, over all replicas and micro-batches."""
    learning_rate: float = 5e-5
    """Its peak."""
    warmup_rate: float = 0.1
    """Share of the steps in which it rises."""
    schedule: Literal["linear", "cosine", "polynomial"] = "linear"
    """How it falls after that."""
    weight_decay: float = 0.01
    """Of AdamW."""
    global_clipnorm: float = 1.0
    """Largest norm of all gradients together; 0 for no limit."""
    layer_decay: float = 1.0
    """Rate of a block in units of that of the block above it."""
    freeze_layers: int = 0
    """How many of the lowest blocks, and the embeddings below them, stay as they are."""
    dropout: float | None = None
    """Dropout in the encoder; None for the checkpoint's."""
    label_smoothing: float = 0.0
    """Share of the truth that is spread over all labels."""
    focal_gamma: float = 0.0
    """Power of the focal loss."""
    balance: bool = False
    """Whether rare labels count as much as frequent ones in the loss."""
    patience: int | None = None
    """Epochs without a better score after which training stops; None for never."""
    metric: str | None = None
    """The score that chooses the best epoch; None for the task's."""
    seeds: int = 1
    """How many runs, of which mean and spread are told."""
    seed: int = 0
    """The first of their seeds."""

    # --- machines
    accumulate: int = 1
    """Micro-batches that a batch is worked through in."""
    layout: Literal["dense", "unpadded"] = "unpadded"
    """Whether padding is computed: unpadded is faster on CPU and GPU; dense rows are all of
    `max_length`, for XLA."""
    jit_compile: bool = False
    """Whether XLA compiles the step; with layout dense."""
    dtype: str = "float32"
    """Keras dtype policy: float32, mixed_bfloat16 or mixed_float16."""
    strategy: Literal["none", "mirrored"] = "none"
    """One device, or all that are here."""

    def __post_init__(self):
        if self.task not in TASKS:
            raise ValueError(f"`task` must be one of {', '.join(TASKS)}. Received: {self.task!r}.")
        for name in ("epochs", "batch_size", "seeds", "accumulate", "max_length", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {getattr(self, name)}.")
        if not 0 <= self.warmup_rate <= 1:
            raise ValueError(f"`warmup_rate` must lie in [0, 1]. Received: {self.warmup_rate}.")
        if self.jit_compile and self.layout != "dense":
            raise ValueError(
                "`layout` must be dense for XLA, which needs static shapes. "
                f"Received: layout={self.layout}, jit_compile=True."
            )

    def resolve_task(self):
        """The Task, with the columns that flags name."""
        task = TASKS[self.task]
        if self._data and self._data.startswith(TFDS):
            task = of_tfds(self.task, task)
        given = {
            name: getattr(self, name)
            for name in ("text", "text_pair", "label", "columns", "metric")
            if getattr(self, name) is not None
        }
        return dataclasses.replace(task, **given)

    @property
    def _data(self):
        """`data`, with the name of the task's own data set."""
        if self.data != TFDS.removesuffix(":"):
            return self.data
        name = TASKS[self.task].tfds
        if name is None:
            raise ValueError(
                f"`data` must name a data set, tfds:NAME: the task {self.task} has none of its own. "
                "Received: tfds."
            )
        return TFDS + name

    def paths(self, task):
        """{split: file} of all splits that there are.

        Raises:
            ValueError: When there is no training or no development data.
        """
        found = {"train": self.train, "dev": self.dev, "test": self.test}
        if self._data:
            for split in {**found, **task.files}:
                found[split] = found.get(split) or path_of(task, self._data, split)
        for split in ("train", "dev"):
            if found[split] is None:
                raise ValueError(
                    f"`{split}` must be given, or be in `data` as {task.files.get(split, 'a file')}. "
                    f"Received: data={self.data}, {split}=None."
                )
        return {split: path for split, path in found.items() if path}


# What may differ when a run goes on.
_FREE_FIELDS = {"workdir", "seeds", "accumulate", "strategy", "jit_compile", "layout"}


def finetune(recipe):
    """Trains and measures a task model for each seed; goes on where it was interrupted.

    Writes into `recipe.workdir`: recipe.json, metrics.json, report.md with its drawings, and for each
    seed a folder with states/, logs/ (TensorBoard), best/ (the model of the best epoch, as
    `save_pretrained` writes it), predictions of each split and metrics.json.

    Returns:
        What metrics.json holds: for each split each score's mean, its standard deviation over the seeds
        and its values, and the folder of the best model.

    Raises:
        Interrupted: After SIGTERM or SIGINT; the same recipe goes on.
    """
    if not recipe.init:
        raise ValueError("`init` must name a pretrained directory. Received: nothing.")
    prepare_workdir(recipe, _FREE_FIELDS, [f"seed_{recipe.seed}"])
    run = FinetuneRun(recipe)
    results = [run.of_seed(recipe.seed + number) for number in range(recipe.seeds)]
    metrics = {"metric": run.task.metric, "seconds_per_epoch": _mean(results, "seconds_per_epoch")}
    for split in results[0]["scores"]:
        metrics[split] = {
            name: _spread([result["scores"][split][name] for result in results])
            for name in results[0]["scores"][split]
        }
    best = max(results, key=lambda result: result["scores"]["dev"][run.task.metric])
    metrics["best"] = best["best"]
    write_atomically(_path(recipe.workdir, "metrics.json"), json.dumps(metrics, indent=1) + "\n")
    predictions = _read_lines(_path(posixpath.dirname(best["best"]), "predictions_dev.jsonl"))
    drawn = run.kind.draw(run.rows["dev"], predictions, _path(recipe.workdir, "dev.png"))
    mistakes = run.kind.mistakes(run.rows["dev"], predictions)
    write_task_report(recipe, run.task.metric, metrics, results, mistakes, "dev.png" if drawn else None)
    return metrics


class FinetuneRun:
    """What all seeds of a recipe share: the rows, and how they are read."""

    def __init__(self, recipe):
        self.recipe = recipe
        self.strategy = make_strategy(recipe.strategy)
        self.task = recipe.resolve_task()
        self.rows = {
            split: read_split(self.task, path, split) for split, path in recipe.paths(self.task).items()
        }
        self.kind = kind_of(self.task, self.rows["train"])
        self.init = local_directory(recipe.init)

    def of_seed(self, seed):
        """The result of one seed: a dict of scores for each split, history, seconds_per_epoch, best."""
        folder = _path(self.recipe.workdir, f"seed_{seed}")
        finished = _path(folder, "metrics.json")
        if tf.io.gfile.exists(finished):
            return json.loads(read_text(finished))
        trainer, best = self.train(seed, folder)
        model = self.kind.model.from_pretrained(best, layout=self.recipe.layout, tokenizer="load")
        reading = self._reading(model, seed)
        scores = {}
        for split in ["dev", *sorted(self.rows.keys() - {"train", "dev"})]:
            rows = self.rows[split]
            predictions = self.kind.predict(model, rows, reading, self.recipe.batch_size)
            if split == "dev":
                found, predictions = predictions, self.kind.calibrate(model, rows, predictions)
                if predictions is not found:
                    model.save_pretrained(best)  # with what was chosen
            _write_lines(_path(folder, f"predictions_{split}.jsonl"), predictions)
            if self._has_labels(rows):
                scores[split] = self.kind.score(rows, predictions)
        result = {
            "scores": scores,
            "history": trainer.history,
            "seconds_per_epoch": float(np.mean([row["seconds"] for row in trainer.history])),
            "best": best,
        }
        write_atomically(finished, json.dumps(result, indent=1) + "\n")
        return result

    def train(self, seed, folder):
        """The trainer of a seed when it is done, and the folder of the best epoch's model."""
        recipe, kind, best = self.recipe, self.kind, _path(folder, "best")
        keras.utils.set_random_seed(seed)
        with self.strategy.scope():
            model = self._make_model()
            reading = self._reading(model, seed)
            examples = {name: kind.examples(self.rows[name], reading) for name in ("train", "dev")}
            steps = examples["train"].steps_per_epoch(recipe.batch_size)
            total = steps * recipe.epochs
            schedule = WarmupDecay(
                recipe.learning_rate, round(recipe.warmup_rate * total), total, recipe.schedule
            )
            factors = () if recipe.layer_decay == 1 else layer_decay(model.config, recipe.layer_decay)
            model.compile(
                AdamW(
                    schedule,
                    recipe.weight_decay,
                    global_clipnorm=recipe.global_clipnorm or None,
                    rate_factors=factors,
                )
            )
        trainer = Trainer(
            model,
            recipe.accumulate,
            jit_compile=recipe.jit_compile,
            seed=seed,
            state_dir=_path(folder, "states"),
            keep=1,
        )
        trainer.restore()
        monitor = f"val_{self.task.metric}"

        def scores():
            predictions = kind.predict(model, self.rows["dev"], reading, recipe.batch_size)
            return kind.score(self.rows["dev"], predictions)

        shown = {"loss": "loss", "val_loss": "dev loss", monitor: f"dev {self.task.metric}"}
        callbacks = [
            Progress(total, shown),
            keras.callbacks.TensorBoard(_path(folder, "logs"), write_graph=False),
            OnBest(monitor, lambda: self._save(trainer, best), trainer.history, mode="max"),
        ]
        if recipe.patience is not None:
            callbacks.append(StopWhenStale(monitor, recipe.patience, trainer.history))
        trainer.fit(
            lambda step, context: examples["train"].training_batches(
                recipe.batch_size, recipe.epochs, step, context
            ),
            total,
            steps,
            lambda context: examples["dev"].evaluation_batches(recipe.batch_size, context),
            callbacks,
            lambda step: examples["train"].describe(step, recipe.batch_size),
            scores,
        )
        return trainer, best

    def _make_model(self):
        recipe, kind = self.recipe, self.kind
        checkpoint = open_checkpoint(self.init)
        stored = checkpoint.head_options.get("label_names")
        is_same = checkpoint.head == kind.model.head
        if is_same and kind.label_names is not None and stored is not None:
            is_same = set(stored) == set(kind.label_names)
            if is_same:
                kind.label_names = list(stored)  # the head's order
        options = dict(kind.model_options)
        if recipe.balance or recipe.label_smoothing or recipe.focal_gamma:
            options |= self._loss_options()
        model = kind.model.from_pretrained(
            self.init,
            new_head=not is_same,
            layout=recipe.layout,
            dtype=recipe.dtype,
            dropout=recipe.dropout,
            **options,
        )
        if model.tokenizer is None:
            raise ValueError(f"`init` must hold a tokenizer. Received: {recipe.init}.")
        _freeze(model.encoder, recipe.freeze_layers)
        return model

    def _loss_options(self):
        recipe, kind = self.recipe, self.kind
        if self.task.kind not in ("classification", "tagging"):
            raise ValueError(
                "`balance`, `label_smoothing` and `focal_gamma` must be of a task with one label for "
                f"each text or word. Received: {self.task.kind}."
            )
        weights = None
        if recipe.balance:
            counts = np.bincount(
                kind.label_numbers(self.rows["train"]), minlength=len(kind.label_names)
            )
            # so that the mean over the training data is 1
            present = np.maximum(counts, 1)
            weights = counts.sum() / (np.count_nonzero(counts) * present)
        return {
            "label_smoothing": recipe.label_smoothing,
            "focal_gamma": recipe.focal_gamma,
            "class_weights": weights,
        }

    def _reading(self, model, seed):
        recipe = self.recipe
        return Reading(
            model.tokenizer,
            min(recipe.max_length, model.config.max_length),
            recipe.stride,
            model.config.type_vocab_size,
            recipe.max_length if recipe.layout == "dense" else None,
            seed,
        )

    def _save(self, trainer, folder):
        trainer.strategy_free_copy().save_pretrained(folder)

    def _has_labels(self, rows):
        if self.task.kind in ("tagging", "answers"):
            return True
        return all(str(row.get(self.task.label, "")).strip() not in ("", "-1") for row in rows)


def _freeze(encoder, layers):
    """Freezes the embeddings and the lowest blocks.

    Raises:
        ValueError: When there are fewer blocks, or layers share them.
    """
    if not layers:
        return
    if layers < 0 or layers > len(encoder.blocks):
        raise ValueError(
            "`freeze_layers` must be at most the number of blocks with weights of their own, "
            f"{len(encoder.blocks)}. Received: {layers}."
        )
    for part in (encoder.embeddings, *encoder.blocks[:layers]):
        part.trainable = False


def _spread(values):
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "deviation": deviation, "values": values}


def _mean(results, name):
    return float(np.mean([result[name] for result in results]))


def _path(folder, name):
    return posixpath.join(folder, name)


def _read_lines(path):
    return [json.loads(line) for line in read_text(path).split("\n") if line]


def _write_lines(path, rows):
    write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
