"""Fine-tuning runs: a pretrained directory and labelled data to a measured, saved, readable result."""

import json
import posixpath

import keras
import numpy as np
import tensorflow as tf

from keras_bert.checkpoints.formats import local_directory, open_checkpoint
from keras_bert.files import read_text, write_atomically
from keras_bert.runs.drawings import draw
from keras_bert.runs.finetuning_report import write_task_report
from keras_bert.runs.workdir import prepare_workdir
from keras_bert.tasks.kind import Reading
from keras_bert.tasks.kinds import kind_of, read_split
from keras_bert.training.callbacks import OnBest, Progress, StopWhenStale
from keras_bert.training.distribution import make_strategy
from keras_bert.training.optimizers import AdamW, layer_decay
from keras_bert.training.schedules import WarmupDecay
from keras_bert.training.trainer import Trainer


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
    prepare_workdir(recipe)
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
    picture = run.kind.picture(run.rows["dev"], predictions)
    if picture is not None:
        draw(picture, _path(recipe.workdir, "dev.png"))
    mistakes = run.kind.mistakes(run.rows["dev"], predictions)
    drawing = None if picture is None else "dev.png"
    write_task_report(recipe, run.task.metric, metrics, results, mistakes, drawing)
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
        layout = self.recipe.encoder_layout
        model = self.kind.model.from_pretrained(best, layout=layout, tokenizer="load")
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
            if self.kind.have_labels(rows):
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
            layout=recipe.encoder_layout,
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
        if not kind.has_one_label:
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
        max_length = min(recipe.max_length, model.config.max_length)
        return Reading(
            model.tokenizer,
            max_length,
            recipe.stride,
            model.config.type_vocab_size,
            None if recipe.layout == "unpadded" else max_length,
            seed,
            recipe.layout == "packed",
            self.strategy.num_replicas_in_sync,
        )

    def _save(self, trainer, folder):
        trainer.strategy_free_copy().save_pretrained(folder)


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
