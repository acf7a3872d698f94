"""One table of tasks: where each one's fields and labels lie in its files, and what measures it."""

import dataclasses
import posixpath

import tensorflow as tf

from keras_bert.data.labelled import TFDS, read_questions, read_table, read_tagged, tfds_splits

KINDS = ("classification", "regression", "multi_label", "tagging", "answers", "choice")


@dataclasses.dataclass(frozen=True)
class Task:
    """What a data set is, in the words of its files.

    Args:
        kind: One of `KINDS`.
        text, text_pair: Columns of the texts; of a context and of what comes before each choice.
        label: Column of the label, the number, or (parted by commas) the labels.
        choices: Columns of the choices, or the one that lists them.
        columns: Names of the columns, where files have no header.
        labels: {label in the files: its name}, in the order of the logits; None takes the labels that
            the training data has, in their order.
        files: {split: file in the data set's folder}.
        tfds: Its name in TensorFlow Datasets; splits of other names are in `tfds_splits`.
        metric: The score that chooses the best epoch.
    """

    kind: str
    text: str = "text"
    text_pair: str | None = None
    label: str = "label"
    choices: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    tfds: str | None = None
    tfds_splits: dict[str, str] = dataclasses.field(default_factory=lambda: {"dev": "validation"})
    metric: str = "accuracy"


def _glue(name, text, text_pair=None, label="label", labels=None, kind="classification", **options):
    files = {split: f"{split}.tsv" for split in ("train", "dev", "test")}
    fields = {"files": files, "tfds": f"glue/{name}", **options}
    return Task(kind, text, text_pair, label, labels=labels, **fields)


def _squad(version, metric):
    files = {split: f"{split}-{version}.json" for split in ("train", "dev")}
    return Task("answers", files=files, tfds=f"squad/{version}", metric=metric)


_ENTAILED = {"entailment": "entailment", "not_entailment": "not_entailment"}
_NLI = {name: name for name in ("entailment", "neutral", "contradiction")}
_MNLI_FILES = {
    "train": "train.tsv",
    "dev": "dev_matched.tsv",
    "dev_mismatched": "dev_mismatched.tsv",
    "test": "test_matched.tsv",
    "test_mismatched": "test_mismatched.tsv",
}
_ENTITIES = {"train": "train.txt", "dev": "valid.txt", "test": "test.txt"}

# GLUE as its archive has it (Wang et al. 2018), SQuAD 1.1 and 2.0, CoNLL-2003, SWAG; and one for the
# user's own data of each kind, whose columns flags may rename.
TASKS = {
    "cola": _glue(
        "cola",
        "sentence",
        labels={"0": "unacceptable", "1": "acceptable"},
        columns=("source", "label", "mark", "sentence"),
        metric="matthews",
    ),
    "sst2": _glue("sst2", "sentence", labels={"0": "negative", "1": "positive"}),
    "mrpc": _glue(
        "mrpc",
        "#1 String",
        "#2 String",
        "Quality",
        {"0": "not_equivalent", "1": "equivalent"},
        metric="f1",
    ),
    "stsb": _glue("stsb", "sentence1", "sentence2", "score", kind="regression", metric="correlation"),
    "qqp": _glue(
        "qqp",
        "question1",
        "question2",
        "is_duplicate",
        {"0": "not_duplicate", "1": "duplicate"},
        metric="f1",
    ),
    "mnli": _glue(
        "mnli",
        "sentence1",
        "sentence2",
        "gold_label",
        _NLI,
        files=_MNLI_FILES,
        tfds_splits={
            "dev": "validation_matched",
            "dev_mismatched": "validation_mismatched",
            "test": "test_matched",
            "test_mismatched": "test_mismatched",
        },
    ),
    "qnli": _glue("qnli", "question", "sentence", labels=_ENTAILED),
    "rte": _glue("rte", "sentence1", "sentence2", labels=_ENTAILED),
    "wnli": _glue("wnli", "sentence1", "sentence2", labels={"0": "not_entailment", "1": "entailment"}),
    # only a test: the files of training are MNLI's, and named by flags
    "ax": _glue("ax", "sentence1", "sentence2", "gold_label", _NLI, files={"test": "diagnostic.tsv"}),
    "squad1": _squad("v1.1", "f1"),
    "squad2": _squad("v2.0", "best_f1"),
    "conll2003": Task("tagging", files=_ENTITIES, tfds="conll2003", metric="f1"),
    "swag": Task(
        "choice",
        "sent1",
        "sent2",
        choices=("ending0", "ending1", "ending2", "ending3"),
        files={"train": "train.csv", "dev": "val.csv", "test": "test.csv"},
    ),
    "classification": Task("classification"),
    "regression": Task("regression", metric="correlation"),
    "multi_label": Task("multi_label", metric="f1_micro"),
    "tagging": Task("tagging", metric="f1"),
    "answers": Task("answers", metric="f1"),
    "choice": Task("choice", choices=("choices",)),
}
# TFDS calls some of GLUE's columns otherwise
_TFDS_COLUMNS = {
    "mrpc": {"#1 String": "sentence1", "#2 String": "sentence2", "Quality": "label"},
    "stsb": {"score": "label"},
    "qqp": {"is_duplicate": "label"},
    "mnli": {"sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"},
    "ax": {"sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"},
    "conll2003": {"text": "tokens", "label": "ner"},
}


def of_tfds(name, task):
    """The task as TensorFlow Datasets has it: its columns there, and labels by their names."""
    columns = _TFDS_COLUMNS.get(name, {})
    fields = {
        field: columns.get(getattr(task, field), getattr(task, field))
        for field in ("text", "text_pair", "label")
    }
    return dataclasses.replace(task, columns=None, **fields)


def read_split(task, path, split):
    """The rows of a task's file, or of a TFDS data set, as its kind has them.

    Args:
        task: A Task.
        path: A file, or "tfds:NAME".
        split: "train", "dev", "test", ...: of a TFDS data set.

    Returns:
        List of dicts: as `read_tagged`, `read_questions`, or the columns of `read_table`.
    """
    if task.kind == "tagging":
        return read_tagged(path, task.tfds_splits.get(split, split), task.text, task.label)
    if task.kind == "answers":
        return read_questions(path, task.tfds_splits.get(split, split))
    # the test files of GLUE have a header, also CoLA's
    columns = task.columns if split != "test" else None
    rows = read_table(path, columns, task.tfds_splits.get(split, split))
    needed = [task.text, task.text_pair, *task.choices]
    missing = [name for name in needed if name is not None and name not in rows[0]]
    if missing:
        raise ValueError(
            f"The table must have the columns {', '.join(filter(None, needed))}. Received: "
            f"{', '.join(rows[0])} in {path}."
        )
    return rows


def path_of(task, folder, split):
    """The file of a split in a data set's folder, None where the task has no such split there."""
    if folder.startswith(TFDS):
        splits = tfds_splits(folder.removeprefix(TFDS))
        return folder if task.tfds_splits.get(split, split) in splits else None
    if split not in task.files:
        return None
    path = posixpath.join(folder, task.files[split])
    return path if tf.io.gfile.exists(path) else None


def label_names_of(task, rows):
    """The names of the labels, in the order of the logits.

    Args:
        task: A Task whose rows are classified or tagged.
        rows: Those of its training data.
    """
    if task.kind == "tagging":
        tags = {tag for row in rows for tag in row["tags"]}
        tags |= {f"B-{tag[2:]}" for tag in tags if tag.startswith("I-")}
        return sorted(tags, key=lambda tag: (tag != "O", tag[2:], tag))
    if task.labels is not None:
        return list(task.labels.values())
    found = {value for row in rows for value in labels_of(task, row)}
    if all(value.isdecimal() for value in found):
        return sorted(found, key=int)
    return sorted(found)


def labels_of(task, row):
    """The labels of a row by name: one, or for "multi_label" any number."""
    if task.label not in row:
        raise ValueError(
            f"Each row must have its label in the column {task.label!r}. Received: {sorted(row)}."
        )
    value = row[task.label]
    if task.kind == "multi_label":
        values = value if isinstance(value, list) else [part.strip() for part in value.split(",")]
        return [part for part in values if part]
    return [task.labels.get(value, value) if task.labels else value]
