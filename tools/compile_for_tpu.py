"""Compile a recipe's training step for a TPU, without one, and say what memory a core needs.

    pip install jax libtpu                                    # 1 GB; the real compiler
    python tools/compile_for_tpu.py --chips 32 --recipe tools/recipes/bert_base.toml
    python tools/compile_for_tpu.py --chips 8 --recipe tools/recipes/bert_large.toml --remat

Flags are those of tools/pretrain.py, and the ones below. Needs no records: shapes come from the recipe
alone. The program is that of one replica, forward, backward and update; what a strategy adds, the sums
over replicas, is not in it.

--chips N       devices that share a batch
--topology T    v5e:2x2, or another name that libtpu knows; the program is for one device of it
--python PATH   interpreter with jax and libtpu, if not this one
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_bert.data.corpus import Corpus
from keras_bert.data.pretraining import PretrainingData
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.runs.flags import parse_flags
from keras_bert.runs.pretraining_recipe import PretrainRecipe
from keras_bert.text.wordpiece import WordPieceTokenizer
from keras_bert.training.compilation import check_hlo, compile_step
from keras_bert.training.trainer import Trainer

HBM_GIB = {"v5e": 16, "v5p": 95, "v6e": 32}  # of a core, by the start of the topology's name


def phases(recipe):
    """(max_length, max_predictions, batch_size) of each part of a run."""
    parts = [(recipe.max_length, recipe.max_predictions, recipe.batch_size)]
    if recipe.final_steps:
        size = recipe.final_batch_size or recipe.batch_size
        parts.append((recipe.final_length, recipe.final_max_predictions, size))
    return parts


def batch_spec(recipe, max_length, max_predictions, rows):
    """Shapes of a replica's batch: those that the recipe's examples have, whatever the text."""
    tokens = np.full(8 * max_length, 5, "int32")  # in documents of two sentences of 4
    sentences, documents = np.arange(0, len(tokens) + 1, 4), np.arange(0, 2 * max_length + 1, 2)
    corpus = Corpus(tokens, sentences, documents, characters=1)
    data = PretrainingData(
        corpus,
        WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"]),
        recipe.objective,
        max_length,
        max_predictions,
        recipe.masking_rate,
        recipe.masking,
        type_vocab_size=recipe.type_vocab_size,
    )
    return data.training_batches(rows).element_spec


def make_step(recipe):
    """The step that the recipe trains with, for one replica."""
    config = recipe.encoder_config()
    model = BertPretrainer(
        config,
        recipe.layout,
        sentence_head=recipe.objective != "full_sentences",
        dtype=recipe.dtype,
    )
    model.compile(recipe.make_optimizer(config))
    model.encoder.remat = recipe.remat
    skips = recipe.on_nonfinite
    return Trainer(model, recipe.accumulate, seed=recipe.seed, on_nonfinite=skips).step


def compile_for_tpu(program, topology, python):
    """Sizes in bytes, or the error, as tools/tpu_compiler.py prints them."""
    script = Path(__file__).with_name("tpu_compiler.py")
    with tempfile.NamedTemporaryFile(suffix=".pb") as file:
        file.write(program)
        file.flush()
        command = [python, str(script), file.name, "--topology", topology]
        run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        lines = run.stderr.strip().splitlines() or ["no message"]
        raise ValueError(
            "`--python` must compile the program; it must have jax and libtpu. "
            f"Received: exit code {run.returncode} of {python}: {lines[-1]}"
        )
    return json.loads(run.stdout.splitlines()[-1])


def report(sizes, topology):
    """What a core needs, in words."""
    if "error" in sizes:
        return f"refused by the compiler: {sizes['error'].strip()[:600]}"
    total = sizes["arguments"] + sizes["temporaries"] + sizes["code"]
    total += sizes["outputs"] - sizes["alias"]  # updated variables lie where the old ones were
    room = HBM_GIB[topology.split(":")[0]]
    parts = ", ".join(
        f"{name} {sizes[name] / 2**30:.2f}" for name in ("arguments", "temporaries", "code")
    )
    verdict = "fits" if total < room * 2**30 else "does NOT fit"
    return (
        f"{total / 2**30:.2f} GiB of {room} ({parts}): {verdict}; compiled in {sizes['seconds']:.0f} s"
    )


def main(argv=None):
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--chips", type=int, default=1)
    parser.add_argument("--topology", default="v5e:2x2")
    parser.add_argument("--python", default=sys.executable)
    options, flags = parser.parse_known_args(argv)
    try:
        if options.topology.split(":")[0] not in HBM_GIB:
            raise ValueError(
                f"`--topology` must begin with one of {', '.join(HBM_GIB)}. "
                f"Received: {options.topology}."
            )
        recipe = parse_flags(PretrainRecipe, flags, description=__doc__)
        if recipe.init_from:
            raise ValueError(
                "The recipe must say the model's size: compile that of the run which it starts from. "
                f"Received: init_from={recipe.init_from}."
            )
        # a recipe for TPUs, with what is asked of those
        recipe = dataclasses.replace(recipe, strategy="tpu", tpu="local")
        for _, _, batch_size in phases(recipe):
            if options.chips < 1 or batch_size % options.chips:
                raise ValueError(
                    "`--chips` must divide the batch. "
                    f"Received: {options.chips} chips, {batch_size} rows."
                )
        step = make_step(recipe)
        for length, predictions, batch_size in phases(recipe):
            rows = batch_size // options.chips
            print(f"{rows} rows of {length} tokens a core: ", end="", flush=True)
            program = compile_step(step, batch_spec(recipe, length, predictions, rows))
            check_hlo(program("hlo"))
            sizes = compile_for_tpu(program("hlo_serialized"), options.topology, options.python)
            print(report(sizes, options.topology), flush=True)
    except (ValueError, OSError, tf.errors.OpError) as error:
        sys.exit(f"compile_for_tpu.py: {str(error).strip().splitlines()[0]}")


if __name__ == "__main__":
    main()
