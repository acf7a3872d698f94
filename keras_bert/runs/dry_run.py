"""Whether a pretraining run fits, before it is begun."""

import dataclasses
import posixpath
import time

import keras
import tensorflow as tf

from keras_bert.runs.pretraining_run import PretrainRun
from keras_bert.runs.workdir import in_workdir, prepare_workdir
from keras_bert.training.distribution import make_strategy


def dry_run(recipe):
    """A few steps, a save, a restore and an evaluation for each row length, and what they took.

    Returns:
        A dict for each phase: max_length, batch_size, seconds (of the last step, without tracing),
        peak_memory_gib, loss and held_out_loss.
    """
    folder, is_new = in_workdir(recipe, "dry_run"), not tf.io.gfile.exists(recipe.workdir)
    strategy = make_strategy(recipe.strategy, recipe.tpu)
    if tf.io.gfile.exists(folder):
        if recipe.strategy == "multi_worker":
            raise ValueError(f"{folder} must not exist yet: what is in it is a dry run's. Remove it.")
        tf.io.gfile.rmtree(folder)
    recipe = dataclasses.replace(recipe, workdir=folder, dry_run=False)
    is_chief = recipe.strategy != "multi_worker"  # until the run tells: no host may disturb another
    try:
        prepare_workdir(recipe)
        run = PretrainRun(recipe, strategy)
        reports = _try_phases(run)
        run.trainer.wait_for_all()
        is_chief = run.trainer.is_chief
    finally:
        if is_chief and tf.io.gfile.exists(folder):
            tf.io.gfile.rmtree(folder)
            if is_new and not tf.io.gfile.listdir(posixpath.dirname(folder)):
                tf.io.gfile.rmtree(posixpath.dirname(folder))
    return reports


def _try_phases(run):
    reports = []
    for index, phase in enumerate(run.phases):
        states = in_workdir(run.recipe, f"states_{index}")
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
    return reports
