"""Measure this package beside its peers: contestants take turns in one run, medians are compared.

    python tools/benchmark.py pretrain           # one training step of masked LM, against keras-hub
    python tools/benchmark.py pretrain --fill 0.7 --rounds 9

Wall time on shared machines is noisy and sometimes throttled, so CPU seconds (all threads) are printed.
"""

import argparse
import statistics
import time

import keras
import numpy as np
import tensorflow as tf

from keras_bert import AdamW, BertPretrainer, EncoderConfig

VOCAB, LAYERS, WIDTH, HEADS = 30522, 4, 512, 8


def pretraining_batch(rows, length, predictions, fill):
    """Random tokens; a share `fill` of the slots is real, rows differ in length around it."""
    rng = np.random.default_rng(0)
    spread = min(fill, 1 - fill)
    lengths = (length * rng.uniform(fill - spread, fill + spread, rows)).round().clip(predictions + 2)
    mask = np.arange(length) < lengths[:, None]
    positions = [np.sort(rng.permutation(int(n) - 2)[:predictions]) + 1 for n in lengths]
    return {
        "token_ids": np.where(mask, rng.integers(1000, VOCAB, (rows, length)), 0).astype("int32"),
        "padding_mask": mask.astype("int32"),
        "segment_ids": np.zeros((rows, length), "int32"),
        "mask_positions": np.array(positions, "int32"),
        "mask_ids": rng.integers(1000, VOCAB, (rows, predictions)).astype("int32"),
    }


def ours(batch, policy, layout, jit):
    config = EncoderConfig.from_preset("bert_small")
    model = BertPretrainer(config, layout=layout, dtype=policy)
    model.compile(AdamW(1e-4), jit_compile=jit)
    x = {name: value for name, value in batch.items() if name != "mask_ids"}
    labels = np.zeros(len(batch["token_ids"]), "int32")
    y = {"masked_lm": batch["mask_ids"], "sentence": labels}
    weights = {"masked_lm": np.ones_like(batch["mask_ids"], "float32"), "sentence": labels + 1.0}
    return model, endless((x, y, weights))


def keras_hub(batch, policy, jit):
    import keras_nlp

    backbone = keras_nlp.models.BertBackbone(
        VOCAB, LAYERS, HEADS, WIDTH, 4 * WIDTH, max_sequence_length=512, dtype=policy
    )
    model = keras_nlp.models.BertMaskedLM(backbone, preprocessor=None)
    # as its guides do; its masked LM has no sentence objective and so less to compute
    model.compile(
        optimizer=keras.optimizers.AdamW(1e-4),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()],
        jit_compile=jit,
    )
    x = {name: value for name, value in batch.items() if name != "mask_ids"}
    weights = np.ones_like(batch["mask_ids"], "float32")
    return model, endless((x, batch["mask_ids"], weights))


def endless(batch):
    """The same batch again and again, without tf.data's autotuning: `fit` would wait for its thread."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.Dataset.from_tensors(batch).repeat().with_options(options)


def benchmark_pretrain(options):
    batch = pretraining_batch(options.rows, options.length, options.predictions, options.fill)
    real = int(batch["padding_mask"].sum())
    print(
        f"L{LAYERS} H{WIDTH}, {options.rows} x {options.length} tokens ({real} real), "
        f"{options.predictions} predictions, vocabulary {VOCAB:,}; {machine()}"
    )
    contestants = {}
    for policy in ("float32", "mixed_bfloat16"):
        layouts = [("dense", False), ("dense", True)]
        if options.fill < 1:  # else there is no padding to leave out
            layouts.append(("unpadded", False))
        for layout, jit in layouts:
            name = f"keras_bert {layout}{', XLA' if jit else ''}, {policy}"
            contestants[name] = ours(batch, policy, layout, jit)
        for jit in (False, True):
            name = f"keras-hub{', XLA' if jit else ''}, {policy}"
            contestants[name] = keras_hub(batch, policy, jit)
    times = take_turns(contestants, options.rounds, options.steps)
    report(times, real)
    for policy in ("float32", "mixed_bfloat16"):
        best = {
            who: min(statistics.median(wall for wall, _ in times[name])
                     for name in times if name.startswith(who) and name.endswith(policy))
            for who in ("keras_bert", "keras-hub")
        }  # fmt: skip
        print(f"{policy}: best against best, keras-hub / keras_bert = "
              f"{best['keras-hub'] / best['keras_bert']:.2f}")  # fmt: skip


def take_turns(contestants, rounds, steps):
    """{name: [(wall seconds a step, CPU seconds a step) of each round]}, after one round unmeasured."""
    times = {name: [] for name in contestants}
    for measured in [False] + [True] * rounds:
        for name, (model, dataset) in contestants.items():
            wall, cpu = time.perf_counter(), time.process_time()
            model.fit(dataset, steps_per_epoch=steps, shuffle=False, verbose=0)
            if measured:
                passed = time.perf_counter() - wall, time.process_time() - cpu
                times[name].append(tuple(seconds / steps for seconds in passed))
    return times


def report(times, tokens):
    width = max(map(len, times))
    print(f"{'':{width}}  s/step   (min)  CPU s/step  tokens/s")
    for name, rounds in times.items():
        walls, cpus = zip(*rounds, strict=True)
        wall = statistics.median(walls)
        print(
            f"{name:{width}}  {wall:6.3f}  {min(walls):6.3f}  {statistics.median(cpus):10.3f}"
            f"  {tokens / wall:8.0f}"
        )


def machine():
    """Processor and versions, to stand beside the figures."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = file.read().splitlines()
        names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
        flags = next(line for line in lines if line.startswith("flags")).split()
        wide = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
        processor = f"{len(names)} x {names[0]} ({' '.join(wide)})"
    except (OSError, IndexError, StopIteration):
        processor = "unknown processor"
    return f"{processor}; TensorFlow {tf.__version__}, Keras {keras.__version__}"


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("pretrain", help="training steps of masked LM")
    command.add_argument("--rows", type=int, default=16)
    command.add_argument("--length", type=int, default=128)
    command.add_argument("--predictions", type=int, default=20)
    command.add_argument("--fill", type=float, default=1.0, help="share of slots with real tokens")
    command.add_argument("--rounds", type=int, default=5, help="turns of each contestant")
    command.add_argument("--steps", type=int, default=3, help="steps in a turn")
    command.set_defaults(run=benchmark_pretrain)
    options = parser.parse_args(argv)
    options.run(options)


if __name__ == "__main__":
    main()
