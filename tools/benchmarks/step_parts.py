"""A fine-tuning step by part: where its time and its memory go.

Batches are rows of random ids, of lengths as short questions have them. Each part is a graph of its
own that ends there, so the difference of two lines is what lies between. They take turns; a batch's
figure is the least of its rounds, a line's the mean over batches.
"""

import resource
import time

import numpy as np


def benchmark_step(options, machine):
    """Prints a table.

    Args:
        options: init (a pretrained directory) or preset (a size, random weights), rows, batches,
            rounds, dtype, layout, shortest and longest (tokens of a row).
        machine: Printed beside the figures.
    """
    memory = [("interpreter", _resident())]
    import tensorflow as tf

    from keras_bert import BertClassifier, EncoderConfig
    from keras_bert.training.optimizers import AdamW
    from keras_bert.training.trainer import Trainer

    memory.append(("imports", _resident()))
    settings = {"num_labels": 2, "dtype": options.dtype, "layout": options.layout}
    if options.init:
        model = BertClassifier.from_pretrained(options.init, **settings)
    else:
        model = BertClassifier(EncoderConfig.from_preset(options.preset), **settings)
    memory.append(("model", _resident()))
    model.compile(AdamW(5e-5))
    trainer = Trainer(model)
    batches = random_batches(options, model.config.vocab_size)
    tokens = sum(int(x["padding_mask"].sum()) for x, _ in batches)
    print(
        f"{options.rows} rows, {tokens / len(batches):.0f} tokens a step, {options.dtype}, "
        f"{options.layout}; {machine}\n"
    )

    parts = step_parts(trainer.step, tf.nest.map_structure(_spec, batches[0]))
    batches = [tf.nest.map_structure(tf.constant, batch) for batch in batches]
    for name, run in parts.items():
        run(batches[0])
        memory.append((f"{name}, once", _resident()))
    wall = {name: np.full((options.rounds, len(batches)), np.inf) for name in parts}
    busy = {name: times.copy() for name, times in wall.items()}
    for turn in range(options.rounds):
        for index, batch in enumerate(batches):
            for name, run in parts.items():
                start = time.perf_counter(), time.process_time()
                run(batch)
                wall[name][turn, index] = time.perf_counter() - start[0]
                busy[name][turn, index] = time.process_time() - start[1]
    memory.append(("all batches", _resident()))
    print("up to                    wall ms    CPU ms")
    for name in parts:
        ms, cpu = (1000 * times[name].min(axis=0).mean() for times in (wall, busy))
        print(f"{name:24} {ms:8.1f}  {cpu:8.1f}")
    print("\nafter                        GiB")
    for name, gib in memory:
        print(f"{name:24} {gib:8.2f}")
    print(f"{'peak':24} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:8.2f}")


def random_batches(options, words):
    """[(x, labels)] of rows of random lengths, padded to the longest of a batch."""
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(options.batches):
        lengths = rng.integers(options.shortest, options.longest + 1, options.rows)
        mask = np.arange(lengths.max()) < lengths[:, None]
        ids = np.where(mask, rng.integers(1, words, mask.shape), 0).astype("int32")
        x = {"token_ids": ids, "padding_mask": mask.astype("int32")}
        batches.append((x, rng.integers(0, 2, options.rows).astype("int32")))
    return batches


def step_parts(step, spec):
    """{how far: graph function of a batch} of a TrainStep of one device."""
    import tensorflow as tf

    number, stop = tf.constant(0, tf.int64), tf.constant(0.0)

    def gradients(batch):
        gradients, report = step.gradients(batch, number, stop)
        # some of each, so that none is left out as unused, and none is copied to be returned
        return report["means"], [getattr(gradient, "values", gradient)[:1] for gradient in gradients]

    parts = {
        "forward (no dropout)": step.evaluate,
        "backward": gradients,
        "clipping and update": lambda batch: step(batch, number, stop)["means"],
    }
    return {
        name: tf.function(part, input_signature=[spec], autograph=False) for name, part in parts.items()
    }


def _spec(array):
    import tensorflow as tf

    return tf.TensorSpec([len(array), *[None] * (array.ndim - 1)], array.dtype)


def _resident():
    """GiB of memory that the process holds now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**30
