"""Predict with a fine-tuned (or any) checkpoint: texts in, one readable JSON line for each out.

    python tools/predict.py runs/finetune/seed_0/best --text "A film to remember." --text "Dull."
    python tools/predict.py bert-ner/ --input texts.txt --output entities.jsonl
    python tools/predict.py mnli/ --input pairs.tsv --column sentence1 --column sentence2
    python tools/predict.py squad/ --input dev-v2.0.json --no-answer-threshold 1.5
    python tools/predict.py bert/ --text "Paris is the [MASK] of France."

A .txt file has a text a line; .tsv, .csv and .jsonl have columns: one or two for a classifier, question
and context for answers, a context and its choices for multiple choice. Order and number of rows are
kept.
"""

import dataclasses
import json
import sys
from typing import Annotated

import tensorflow as tf
import tyro

from keras_bert.data.labelled import read_questions, read_table
from keras_bert.data.sources import read_lines
from keras_bert.files import write_atomically
from keras_bert.models.auto import load_pretrained
from keras_bert.models.multiple_choice import BertMultipleChoice
from keras_bert.models.question_answering import BertQuestionAnswering
from keras_bert.runs.flags import in_one_line


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What to predict, and with what.

    Args:
        model: Directory of a checkpoint, or hf://owner/name.
        text: A text; may be given several times.
        input: File of texts instead.
        column: Column of a table; given twice for pairs, question and context, or context and first
            choice, and more often for further choices.
        output: File to write; else lines are printed.
        batch_size: Rows that are computed at once; it changes no result.
        no_answer_threshold: How much more than the best answer no answer must score to be taken; that
            of the model, which fine-tuning found, where nothing is said.
    """

    model: Annotated[str, tyro.conf.Positional]
    text: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    input: str | None = None
    column: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    output: str | None = None
    batch_size: int = 32
    no_answer_threshold: float | None = None


def predict(prediction):
    """The readable results of all rows."""
    if bool(prediction.text) == (prediction.input is not None):
        raise ValueError("Either `--text` or `--input` must be given. Received: both or neither.")
    model = load_pretrained(prediction.model, layout="unpadded")
    columns = read_columns(prediction)
    if isinstance(model, BertMultipleChoice) and len(columns) > 2:
        columns = [columns[0], [list(choices) for choices in zip(*columns[1:], strict=True)]]
    options = {}
    if isinstance(model, BertQuestionAnswering):
        options["no_answer_threshold"] = prediction.no_answer_threshold
    if not hasattr(model, "predict_text"):
        raise ValueError(
            f"The model must have a head that answers text. Received: a {type(model).__name__}."
        )
    return model.predict_text(*columns, batch_size=prediction.batch_size, **options)


def read_columns(prediction):
    """The columns of texts, as `predict_text` takes them."""
    path = prediction.input
    if path is None:
        return [list(prediction.text)]
    if path.endswith(".json"):
        rows = read_questions(path)
        return [[row[name] for row in rows] for name in ("question", "context")]
    if path.endswith((".txt", ".txt.gz")):
        return [list(read_lines(path))]
    rows = read_table(path)
    names = prediction.column or (("text",) if "text" in rows[0] else tuple(rows[0])[:1])
    missing = [name for name in names if name not in rows[0]]
    if missing:
        raise ValueError(
            f"`column` must be one of {', '.join(rows[0])}. Received: {', '.join(missing)}."
        )
    return [[row[name] for row in rows] for name in names]


def main(argv=None):
    try:
        prediction = tyro.cli(Prediction, args=argv, description=__doc__)
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in predict(prediction)]
        if prediction.output is None:
            sys.stdout.writelines(lines)
        else:
            write_atomically(prediction.output, "".join(lines))
    except (ValueError, OSError, tf.errors.OpError) as error:
        sys.exit(f"predict.py: {in_one_line(error)}")


if __name__ == "__main__":
    main()
