"""A process that trains a toy model with the Trainer, for tests that need processes of their own.

    python training_run.py '{"strategy": "mirrored", "out": "directory", ...}'

Appends a line (step, loss in hexadecimal) for each step to out/losses_<worker>.txt, and at the end
writes out/weights_<worker>.npz and out/result_<worker>.json.
"""

import functools
import json
import os
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_bert.config import EncoderConfig
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.training.distribution import make_strategy
from keras_bert.training.optimizers import AdamW
from keras_bert.training.trainer import Interrupted, Trainer

VOCAB, STEPS, ROWS, LENGTH, PREDICTIONS = 23, 20, 8, 7, 2
OPTIONS = {
    "strategy": "none",
    "accumulate": 1,
    "steps_per_call": 1,
    "jit_compile": False,
    "dtype": "float32",
    "dropout": 0.0,
    "rows": [[4, 4]],  # of each half of the global batch, repeated over the steps
    "steps": STEPS,
    "steps_per_epoch": 10,
    "optimizer": {},
    "state_dir": None,
    "seconds_per_step": 0.0,
}


def toy_config(dropout):
    return EncoderConfig(
        vocab_size=VOCAB,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=10,
        initializer_range=0.5,  # large: a mistake anywhere shows in the output
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


def global_batches():
    """(x, y, sample_weight) for all steps: arrays (STEPS, ROWS, ...).

    The halves of a batch have different numbers of masked tokens: from 0 to all of them.
    """
    rng = np.random.default_rng(0)
    shape = (STEPS, ROWS)
    lengths = rng.integers(3, LENGTH + 1, shape)
    mask = np.arange(LENGTH) < lengths[..., None]
    x = {
        "token_ids": np.where(mask, rng.integers(1, VOCAB, (*shape, LENGTH)), 0).astype("int32"),
        "padding_mask": mask.astype("int32"),
        "segment_ids": ((np.arange(LENGTH) >= 2) & mask).astype("int32"),
        "mask_positions": rng.integers(0, 3, (*shape, PREDICTIONS)).astype("int32"),
    }
    y = {
        "masked_lm": rng.integers(1, VOCAB, (*shape, PREDICTIONS)).astype("int32"),
        "sentence": rng.integers(0, 2, shape).astype("int32"),
    }
    share = rng.uniform(0, 1, (STEPS, 2)).repeat(ROWS // 2, axis=1)[..., None]
    masked = (rng.uniform(size=(*shape, PREDICTIONS)) < share).astype("float32")
    masked[::5, : ROWS // 2] = 0  # nothing to predict in one half
    return x, y, {"masked_lm": masked, "sentence": np.ones(shape, "float32")}


def make_batches(rows):
    """`make_batches` of the Trainer: step s has rows[s % len(rows)] rows in its two halves."""
    arrays = global_batches()

    def cut(step, half):
        first = half * ROWS // 2
        counts = slice(first, first + rows[step % len(rows)][half])
        return tf.nest.map_structure(lambda array: array[step, counts], arrays)

    def make(start, context):
        replicas, pipelines = context.num_replicas_in_sync, context.num_input_pipelines
        if replicas == 1:
            halves = [(0, 1)]
        elif pipelines == 1:
            halves = [(0,), (1,)]
        else:
            halves = [(context.input_pipeline_id,)]

        def generate():
            for step in range(start, STEPS):
                for some in halves:
                    parts = [cut(step, half) for half in some]
                    yield tf.nest.map_structure(lambda *parts: np.concatenate(parts), *parts)

        static = ROWS // replicas if len(rows) == 1 else None
        spec = tf.nest.map_structure(
            lambda array: tf.TensorSpec([static, *array.shape[2:]], array.dtype), arrays
        )
        return tf.data.Dataset.from_generator(generate, output_signature=spec)

    return make


def evaluation(make):
    """All steps once, as a finite data set."""

    def batches(context):
        own = context.num_replicas_in_sync // context.num_input_pipelines
        return make(0, context).apply(tf.data.experimental.assert_cardinality(STEPS * own))

    return batches


class LossLog(keras.callbacks.Callback):
    def __init__(self, trainer, path, pause):
        super().__init__()
        self.trainer, self.path, self.pause = trainer, path, pause

    def on_train_batch_end(self, batch, logs=None):
        if self.pause:
            time.sleep(self.pause)
        done = self.trainer.steps_done
        losses = self.trainer.step_losses
        with open(self.path, "a") as file:
            for step, loss in enumerate(losses, done - len(losses)):
                file.write(f"{step} {float(loss).hex()}\n")


@functools.cache
def mirrored():
    """Two replicas on this CPU. One strategy a process: the keys of two would collide."""
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def train(options):
    """Runs it in this process; returns the trainer."""
    name = options["strategy"]
    strategy = mirrored() if name == "mirrored" else make_strategy(name)
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = BertPretrainer(toy_config(options["dropout"]), dtype=options["dtype"])
        model.compile(AdamW(**{"learning_rate": 1e-3, "global_clipnorm": 0.5, **options["optimizer"]}))
    names = ("accumulate", "steps_per_call", "jit_compile", "state_dir")
    trainer = Trainer(model, seed=1, **{name: options[name] for name in names})
    worker = strategy.cluster_resolver.task_id if name == "multi_worker" else 0
    out = Path(options["out"])
    make = make_batches(options["rows"])
    log = LossLog(trainer, out / f"losses_{worker}.txt", options["seconds_per_step"])
    history = trainer.fit(
        make, options["steps"], options["steps_per_epoch"], evaluation(make), callbacks=[log]
    )
    np.savez(out / f"weights_{worker}.npz", *[w.numpy() for w in model.trainable_variables])
    (out / f"result_{worker}.json").write_text(json.dumps(history))
    return trainer


if __name__ == "__main__":
    settings = {**OPTIONS, **json.loads(sys.argv[1])}
    if settings["strategy"] == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    os.makedirs(settings["out"], exist_ok=True)
    try:
        train(settings)
    except Interrupted as stop:
        print(stop)
