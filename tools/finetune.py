"""Fine-tune a pretrained directory on a task of the table, or on labelled data of your own.

    python tools/finetune.py sst2 --init bert/ --data glue/SST-2
    python tools/finetune.py classification --init bert/ --train train.tsv --dev dev.csv --text question
    python tools/finetune.py tagging --init bert/ --train train.conll --dev dev.conll --seeds 3
    python tools/finetune.py squad2 --init hf://owner/name --data squad/ --max-length 384 --stride 128

Writes recipe.json, metrics.json, report.md with drawings and the worst mistakes, and for each seed the
best epoch's model, its predictions, saved states and TensorBoard logs. Interrupted, the same command
goes on.
"""

import sys

from processor import choose_onednn, with_dtype

if __name__ == "__main__":
    choose_onednn()  # which TensorFlow reads when it is imported

import tensorflow as tf

from keras_bert.runs.finetuning_recipe import FinetuneRecipe
from keras_bert.runs.finetuning_run import finetune
from keras_bert.runs.flags import in_one_line, parse_flags
from keras_bert.tasks.table import TASKS
from keras_bert.training.trainer import Interrupted, NonFiniteLoss

STOPPED = 143  # as tools/pretrain.py


def main(argv=None):
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv and not argv[0].startswith("-"):
        argv = ["--task", *argv]
    try:
        description = f"{__doc__}\nTasks: {', '.join(TASKS)}."
        recipe = with_dtype(parse_flags(FinetuneRecipe, argv, description, dtype="auto"))
        metrics = finetune(recipe)
    except Interrupted as stop:
        print(f"finetune.py: {stop} The same command goes on from there.", file=sys.stderr)
        sys.exit(STOPPED)
    except (ValueError, OSError, tf.errors.OpError, NonFiniteLoss) as error:
        sys.exit(f"finetune.py: {in_one_line(error)}")
    for split, scores in metrics.items():
        if isinstance(scores, dict):
            for name, spread in scores.items():
                deviation = f" ± {spread['deviation']:.4f}" if len(spread["values"]) > 1 else ""
                print(f"{split:5} {name:22} {spread['mean']:.4f}{deviation}")
    print(f"\n{metrics['seconds_per_epoch']:.1f} s of training an epoch")
    print(f"The best model: {metrics['best']}")


if __name__ == "__main__":
    main()
