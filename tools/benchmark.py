"""Measure this package beside its peers: contestants take turns in one run, medians are compared.

    python tools/benchmark.py pretrain           # one training step of masked LM, against keras-hub
    python tools/benchmark.py pretrain --fill 0.7 --rounds 9
    python tools/benchmark.py text               # strings to ids, offsets and masked batches, against
                                                 # Hugging Face, keras-hub and tf-text

`text` needs `pip install -e '.[benchmark]'`. Wall time on shared machines is noisy and sometimes
throttled, so CPU seconds (all threads) are printed.
"""

import argparse
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import tensorflow as tf

from keras_bert import AdamW, BertPretrainer, EncoderConfig, WordPieceTokenizer
from keras_bert.data.builtin import builtin_documents
from keras_bert.data.sources import text_documents
from keras_bert.hashing import fold
from keras_bert.text.masking import mask_tokens
from keras_bert.text.pairing import combine
from keras_bert.text.vocabulary import train_vocabulary, write_vocabulary

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


def steps_of(steps, model, dataset):
    return lambda: model.fit(dataset, steps_per_epoch=steps, shuffle=False, verbose=0)


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
            contestants[name] = steps_of(options.steps, *ours(batch, policy, layout, jit))
        for jit in (False, True):
            name = f"keras-hub{', XLA' if jit else ''}, {policy}"
            contestants[name] = steps_of(options.steps, *keras_hub(batch, policy, jit))
    times = take_turns(contestants, options.rounds)
    print(f"A turn is {options.steps} steps.")
    report(times, real * options.steps, "tokens")
    for policy in ("float32", "mixed_bfloat16"):
        best = {
            who: min(median_wall(times, name)
                     for name in times if name.startswith(who) and name.endswith(policy))
            for who in ("keras_bert", "keras-hub")
        }  # fmt: skip
        print(f"{policy}: best against best, keras-hub / keras_bert = "
              f"{best['keras-hub'] / best['keras_bert']:.2f}")  # fmt: skip


def benchmark_text(options):
    documents = text_documents(options.corpus) if options.corpus else builtin_documents()
    texts = paragraphs(documents, options.megabytes)
    size = sum(len(text.encode()) for text in texts) / 1e6
    vocabulary = options.vocabulary or trained_vocabulary(texts)
    print(
        f"{len(texts):,} texts, {size:.1f} MB; {options.rows} x {options.length} tokens a batch; "
        f"{machine()}"
    )
    contestants = our_text_functions(texts, vocabulary, options)
    contestants |= hugging_face_text_functions(texts, vocabulary, options)
    contestants |= graph_peer_text_functions(texts, vocabulary, options)
    times = take_turns(contestants, options.rounds)
    report(times, size, "MB")
    for ours, theirs in TEXT_COMPARISONS:
        ratio = median_wall(times, theirs) / median_wall(times, ours)
        print(f"{ours} is {ratio:.1f} times as fast as {theirs}")


TEXT_COMPARISONS = [
    ("keras_bert, ids", "Hugging Face, ids"),
    ("keras_bert, ids", "keras-hub, ids"),
    ("keras_bert, ids", "tf-text, ids"),
    ("keras_bert, offsets", "Hugging Face, ids"),  # which always computes offsets
    ("keras_bert, masked", "Hugging Face, masked"),
    ("keras_bert, masked", "keras-hub, masked"),
    ("keras_bert, whole words masked", "Hugging Face, whole words masked"),
]


def paragraphs(documents, megabytes):
    """Texts of a paragraph each, up to an amount in all."""
    texts, room = [], megabytes * 1e6
    for document in documents:
        for text in document.split("\n\n"):
            text = text.strip()
            if text:
                texts.append(text)
                room -= len(text.encode())
        if room < 0:
            break
    return texts


def trained_vocabulary(texts):
    path = os.path.join(tempfile.mkdtemp(), "vocab.txt")
    write_vocabulary(path, train_vocabulary(texts, VOCAB))
    return path


def text_pipeline(texts, function, rows):
    """A turn of `function` over batches of strings, on all cores."""
    options = tf.data.Options()
    options.autotune.enabled = False
    batches = tf.data.Dataset.from_tensor_slices(texts).batch(rows).cache()
    mapped = batches.map(function, os.cpu_count()).with_options(options)

    def run():
        for _ in mapped:
            pass

    return run


def our_text_functions(texts, vocabulary, options):
    tokenizer = WordPieceTokenizer(vocabulary)

    def masked(masking):
        def function(text):
            pieces = tokenizer.tokenize_with_offsets(text)
            pieces = {name: pieces[name] for name in ("token_ids", "word_ids")}
            x = combine(pieces, tokenizer=tokenizer, max_length=options.length)
            keys = fold(0, tf.strings.to_hash_bucket_fast(text, 2**31 - 1))
            words = x.pop("word_ids")
            return x | mask_tokens(
                x["token_ids"], words, keys, tokenizer, options.predictions, masking=masking
            )

        return function

    functions = {
        "ids": tokenizer.tokenize,
        "offsets": tokenizer.tokenize_with_offsets,
        "masked": masked("token"),
        "whole words masked": masked("whole_word"),
    }
    return {
        f"keras_bert, {name}": text_pipeline(texts, function, options.rows)
        for name, function in functions.items()
    }


def hugging_face_text_functions(texts, vocabulary, options):
    """The Rust tokenizer, which uses all cores, and transformers' collators, a thread for each core."""
    import transformers

    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    tokenizer = transformers.BertTokenizerFast(vocabulary)
    batches = [texts[i : i + options.rows] for i in range(0, len(texts), options.rows)]

    def masked(collator_class):
        collate = collator_class(tokenizer, return_tensors="pt")

        def function(batch):
            rows = tokenizer(
                batch,
                truncation=True,
                max_length=options.length,
                padding="max_length",
                return_special_tokens_mask=True,
            )
            return collate(
                [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
            )

        def run():
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                for _ in threads.map(function, batches):
                    pass

        return run

    return {
        "Hugging Face, ids": lambda: tokenizer.backend_tokenizer.encode_batch(texts),
        "Hugging Face, masked": masked(transformers.DataCollatorForLanguageModeling),
        "Hugging Face, whole words masked": masked(transformers.DataCollatorForWholeWordMask),
    }


def graph_peer_text_functions(texts, vocabulary, options):
    import keras_nlp
    import tensorflow_text as tf_text

    tokenizer = keras_nlp.models.BertTokenizer(vocabulary, lowercase=True)
    preprocess = keras_nlp.models.BertMaskedLMPreprocessor(
        tokenizer, sequence_length=options.length, mask_selection_length=options.predictions
    )
    bert = tf_text.BertTokenizer(vocabulary, lower_case=True)
    functions = {
        "keras-hub, ids": tokenizer,
        "keras-hub, masked": preprocess,
        "tf-text, ids": bert.tokenize,
    }
    return {name: text_pipeline(texts, function, options.rows) for name, function in functions.items()}


def take_turns(contestants, rounds):
    """{name: [(wall seconds, CPU seconds) of each round]} of functions, after a round unmeasured."""
    times = {name: [] for name in contestants}
    for measured in [False] + [True] * rounds:
        for name, run in contestants.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            if measured:
                times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return times


def report(times, amount, unit):
    """Prints medians; `amount` is what a turn works through."""
    width = max(map(len, times))
    print(f"{'':{width}}   s/turn   (min)  CPU s/turn  {unit}/s")
    for name, rounds in times.items():
        walls, cpus = zip(*rounds, strict=True)
        wall = statistics.median(walls)
        print(
            f"{name:{width}}  {wall:7.3f}  {min(walls):6.3f}  {statistics.median(cpus):10.3f}"
            f"  {amount / wall:8,.1f}"
        )


def median_wall(times, name):
    return statistics.median(wall for wall, _ in times[name])


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
    command = commands.add_parser("text", help="strings to ids, offsets and masked batches")
    command.add_argument("--corpus", help="text files (glob) instead of the built-in corpus")
    command.add_argument("--vocabulary", help="vocab.txt (uncased); else one is trained on the texts")
    command.add_argument("--megabytes", type=float, default=4.0, help="how much text")
    command.add_argument("--rows", type=int, default=256)
    command.add_argument("--length", type=int, default=128)
    command.add_argument("--predictions", type=int, default=20)
    command.add_argument("--rounds", type=int, default=5, help="turns of each contestant")
    command.set_defaults(run=benchmark_text)
    options = parser.parse_args(argv)
    options.run(options)


if __name__ == "__main__":
    main()
