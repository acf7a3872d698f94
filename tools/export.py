"""Export a checkpoint as a SavedModel that TF Serving loads: strings in, readable answers out.

    python tools/export.py runs/finetune/seed_0/best served/sentiment
    python tools/export.py mnli/ served/mnli --pairs --weights int8 --compare dev.tsv
    python tools/export.py squad/ served/answers --n-best 3 --max-length 384 --stride 128
    python tools/export.py bert-ner/ served/names --words --serialized-examples

Writes served/NAME/<next version>/ and, beside the versions, a README with requests to send. What was
written is then loaded by TensorFlow's C API alone, with the ops that TF Serving 2.12 has, and every
signature must answer as it does in Python.
"""

import dataclasses
import sys
import tempfile
from typing import Annotated, Literal

import tensorflow as tf
import tyro

from keras_bert.data.labelled import read_table
from keras_bert.data.sources import read_lines
from keras_bert.models.auto import load_pretrained
from keras_bert.serving.checking import check
from keras_bert.serving.comparing import compare
from keras_bert.serving.export import export_saved_model


@dataclasses.dataclass(frozen=True)
class Export:
    """What to export, and how.

    Args:
        model: Directory of a checkpoint, or hf://owner/name.
        base_dir: Directory of versions, whose name the server knows the model by.
        head: Which model to read, where the checkpoint does not say; as of tools/convert.py.
        weights: How they are stored. A server computes in float32 whichever it is.
        compare: Texts (.txt) or a table with columns of the signature's names: how far the answers are
            from those of float32 weights.
        serialized_examples: Write that signature, too.
        check: Whether what is written is checked.
        pairs: Classifiers: the default signature takes `text` and `text_pair`.
        words: Taggers: words beside entities.
        max_length: Most tokens of a row, or of a window; as many as the model can read where nothing
            is said.
        stride: Taggers, answers: tokens between the beginnings of two windows.
        n_best: Answers: how many to give.
        no_answer_threshold: Answers: how much more no answer must score; the model's where nothing is
            said.
        max_answer_length: Answers: most tokens of one.
        top_k: Masked words: how many to give for each.
    """

    model: Annotated[str, tyro.conf.Positional]
    base_dir: Annotated[str, tyro.conf.Positional]
    head: str | None = None
    weights: Literal["float32", "bfloat16", "int8"] = "float32"
    compare: str | None = None
    serialized_examples: bool = False
    check: bool = True
    pairs: bool = False
    words: bool = False
    max_length: int | None = None
    stride: int | None = None
    n_best: int | None = None
    no_answer_threshold: float | None = None
    max_answer_length: int | None = None
    top_k: int | None = None


OPTIONS = [
    "pairs",
    "words",
    "max_length",
    "stride",
    "n_best",
    "no_answer_threshold",
    "max_answer_length",
    "top_k",
]


def export(settings):
    """Exports, checks and compares; prints what came of it."""
    model = load_pretrained(settings.model, settings.head)
    options = {name: getattr(settings, name) for name in OPTIONS}
    options = {
        name: value for name, value in options.items() if value is not None and value is not False
    }
    options["serialized_examples"] = settings.serialized_examples
    path = export_saved_model(model, None, settings.base_dir, weights=settings.weights, **options)
    print(
        f"{path}: a {type(model).__name__}, {size_of(path) / 1e6:,.1f} MB, {settings.weights} weights"
    )
    if settings.check:
        print("\nchecked with the TensorFlow C API, and in a session:")
        for name, row in check(path).items():
            difference = max(row["c_api"], row["session"])
            print(f"  {name:20} {row['requests']:3} requests, largest difference {difference:.1e}")
    if settings.compare is not None:
        with tempfile.TemporaryDirectory() as folder:
            exact = export_saved_model(model, None, folder, **options)
            columns = read_columns(settings.compare, exact)
            rows = len(next(iter(columns.values())))
            print(f"\n{settings.weights} beside float32 weights, {rows} requests:")
            for name, row in compare(exact, path, columns).items():
                print(f"  {name:20} " + ", ".join(f"{key} {value:.4g}" for key, value in row.items()))


def read_columns(path, directory):
    """The columns of texts that an export's default signature takes, of a file."""
    names = sorted(
        tf.saved_model.load(directory).signatures["serving_default"].structured_input_signature[1]
    )
    if path.endswith((".txt", ".txt.gz")) and len(names) == 1:
        return {names[0]: list(read_lines(path))}
    rows = read_table(path)
    missing = [name for name in names if name not in rows[0]]
    if missing:
        raise ValueError(
            f"The table must have the columns {', '.join(names)}. "
            f"Received: {path} with {', '.join(rows[0])}."
        )
    return {name: [row[name] for row in rows] for name in names}


def size_of(directory):
    """Bytes of the files below a directory."""
    return sum(
        tf.io.gfile.stat(tf.io.gfile.join(folder, name)).length
        for folder, _, names in tf.io.gfile.walk(directory)
        for name in names
    )


def main(argv=None):
    try:
        export(tyro.cli(Export, args=argv, description=__doc__))
    except (ValueError, OSError, RuntimeError, tf.errors.OpError) as error:
        sys.exit(f"export.py: {str(error).strip().splitlines()[0]}")


if __name__ == "__main__":
    main()
