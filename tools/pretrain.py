"""Pretrain BERT on the built-in documentation, text files of your own, a TFDS name or record files.

    python tools/pretrain.py                                  # bert_tiny, a few minutes on 2 cores
    python tools/pretrain.py --corpus 'texts/*.txt' --workdir runs/mine
    python tools/pretrain.py --recipe tools/recipes/mini.toml --seed 1
    python tools/pretrain.py --recipe tools/recipes/bert_base.toml --strategy tpu --tpu local --dry-run

Writes recipe.json (every setting, as resolved), saved states, TensorBoard logs, loss.png, the model and
a SavedModel that fills masks. Interrupted, the same command goes on where it was: SIGTERM and Ctrl-C
save first and end with exit code 143, a killed run goes on from its last saved state.
"""

import signal
import sys

from processor import choose_onednn, with_dtype

if __name__ == "__main__":
    choose_onednn()  # which TensorFlow reads when it is imported

import tensorflow as tf

from keras_bert.runs.dry_run import dry_run
from keras_bert.runs.flags import in_one_line, parse_flags
from keras_bert.runs.pretraining_recipe import PretrainRecipe
from keras_bert.runs.pretraining_run import pretrain
from keras_bert.training.trainer import Interrupted, NonFiniteLoss, WorkerLost

STOPPED = 143  # what a process ended by SIGTERM gives: schedulers must not take it for finished


def main(argv=None):
    try:
        recipe = with_dtype(parse_flags(PretrainRecipe, argv, __doc__, dtype="auto"))
        if recipe.dry_run:
            show_dry_run(dry_run(recipe))
            return
        report = pretrain(recipe)
    except Interrupted as stop:
        goes_on = "Nothing is left of it." if recipe.dry_run else "The same command goes on from there."
        print(f"pretrain.py: {stop} {goes_on}", file=sys.stderr)
        sys.exit(STOPPED)
    except KeyboardInterrupt:  # not in training, or for the second time
        print("pretrain.py: Stopped.", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except (ValueError, OSError, tf.errors.OpError, NonFiniteLoss, WorkerLost) as error:
        sys.exit(f"pretrain.py: {in_one_line(error)}")
    print(
        f"""
held-out masked LM loss  {report["masked_lm_loss"]:.3f} nats, over {report["targets"]:,} targets
unigram entropy of them  {report["unigram_entropy"]:.3f} nats
bits per character       {report["bits_per_character"]:.3f}
masked LM accuracy       {report["masked_lm_accuracy"]:.3f}"""
    )
    if "sentence_accuracy" in report:
        print(f"sentence accuracy        {report['sentence_accuracy']:.3f}")
    print()
    for row in report["filled"]:
        words = "  ".join(f"{w} {s:.2f}" for w, s in zip(row["words"], row["scores"], strict=True))
        print(f"{row['text']}\n    {words}    (was: {row['true_word']})")
    print(f"\nSavedModel: {report['saved_model']}")


def show_dry_run(phases):
    for phase in phases:
        print(
            f"{phase['batch_size']} rows of {phase['max_length']} tokens: "
            f"{phase['seconds']:.3g} s a step, {phase['peak_memory_gib']:.3g} GiB at most, "
            f"loss {phase['loss']:.4g}, held out {phase['held_out_loss']:.4g}; saved and restored"
        )


if __name__ == "__main__":
    main()
