"""Convert a checkpoint into a directory that transformers (or keras-hub) loads.

    python tools/convert.py uncased_L-12_H-768_A-12/ converted/
    python tools/convert.py hf://sentence-transformers/all-MiniLM-L6-v2 minilm/ --dtype bfloat16
    python tools/convert.py runs/finetuned preset/ --to keras-hub
    python tools/convert.py FROM TO --dry-run

Reads whatever `from_pretrained` reads. `--dry-run` writes nothing: it prints every tensor with its
shape, the weight that it becomes, and what is left out or would be new.
"""

import dataclasses
import sys
import warnings
from typing import Annotated, Literal

import tensorflow as tf
import tyro

from keras_bert.models.auto import load_pretrained


@dataclasses.dataclass(frozen=True)
class Conversion:
    """What to convert, and into what.

    Args:
        source: Directory, local or remote, or hf://owner/name[@revision].
        target: Directory to write; new, or empty.
        to: Format of the target.
        head: Which model to read, where the checkpoint does not say: encoder, pretraining, masked_lm,
            sequence_classification, token_classification, question_answering, multiple_choice,
            replaced_token_detection.
        dtype: Type to store weights in; none keeps float32.
        dry_run: Print what would be done, and write nothing.
    """

    source: Annotated[str, tyro.conf.Positional]
    target: Annotated[str, tyro.conf.Positional]
    to: Literal["transformers", "keras-hub"] = "transformers"
    head: str | None = None
    dtype: Literal["float32", "float16", "bfloat16"] | None = None
    dry_run: bool = False


def convert(conversion):
    """Reads, prints and, unless it is a dry run, writes."""
    target = conversion.target
    if tf.io.gfile.exists(target) and (not tf.io.gfile.isdir(target) or tf.io.gfile.listdir(target)):
        raise ValueError(
            f"The target must not exist yet, or be an empty directory. Received: {target}."
        )
    if conversion.to == "keras-hub" and conversion.dtype is not None:
        raise ValueError(
            "`--dtype` must not be given for keras-hub, which stores the type of its variables. "
            f"Received: {conversion.dtype}."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table says what is new
        model = load_pretrained(conversion.source, conversion.head)
    print(table_of(model))
    if conversion.dry_run:
        print(f"\nA dry run: nothing is written to {target}.")
        return
    if conversion.to == "keras-hub":
        model.save_keras_hub(target)
    else:
        model.save_pretrained(target, dtype=conversion.dtype)
    print(f"\nWritten: {target}.")


def table_of(model):
    """Every tensor that was read, with its shape and the weight that it is (a part of)."""
    rows = [(name, "x".join(map(str, shape)), ours) for name, shape, ours in model.load_report.rows]
    rows = [("tensor", "shape", "weight"), *rows]
    rows += [(name, "", "left out") for name in model.load_report.unused]
    rows += [("", "", f"{component}: newly initialised") for component in model.load_report.new]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{name:{widths[0]}}  {shape:{widths[1]}}  {ours}" for name, shape, ours in rows]
    kind = f"{type(model).__name__}, {model.config.model_type}"
    return "\n".join([kind, "", *lines])


def main(argv=None):
    try:
        convert(tyro.cli(Conversion, args=argv, description=__doc__))
    except (ValueError, OSError, tf.errors.OpError) as error:
        sys.exit(f"convert.py: {str(error).strip().splitlines()[0]}")


if __name__ == "__main__":
    main()
