"""One table of tasks: where each one's fields and labels lie in its files, and what measures it."""

import dataclasses

from keras_bert.tasks.kinds import KINDS
from keras_bert.tasks.task import Task


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
    **{name: kind.own_data for name, kind in KINDS.items()},
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
