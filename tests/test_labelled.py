"""keras_bert.data.labelled and tasks: what lies in files, row for row, and what is refused."""

import dataclasses
import json

import pytest

from keras_bert.data.labelled import read_questions, read_table, read_tagged
from keras_bert.tasks.kind import KINDS
from keras_bert.tasks.kinds import kind_of, read_split
from keras_bert.tasks.table import TASKS, of_tfds
from keras_bert.tasks.task import path_of


def label_names(task, rows):
    return kind_of(task, rows).label_names


def labels(task, row):
    return KINDS[task.kind].labels_of(task, row)


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_tsv_has_no_quoting_and_no_line_ends_but_newlines(tmp_path):
    """As GLUE's files: quotes, U+2028 and a byte order mark in them."""
    path = write(tmp_path, "a.tsv", '\ufeffsentence\tlabel\r\n"half\t1\r\nodd\u2028line, "x"\t0\n\n')
    assert read_table(path) == [
        {"sentence": '"half', "label": "1"},
        {"sentence": 'odd\u2028line, "x"', "label": "0"},
    ]


def test_csv_has_quotes_and_newlines_in_them(tmp_path):
    path = write(tmp_path, "a.csv", 'one,"a, ""b""\nc",5.0\n')
    assert read_table(path, ("x", "y", "z")) == [{"x": "one", "y": 'a, "b"\nc', "z": "5.0"}]
    with pytest.raises(ValueError, match="well-formed CSV.*line 1"):
        read_table(write(tmp_path, "b.csv", 'a,"b'), ("x", "y"))


def test_json_lines(tmp_path):
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": None, "choices": ["x", "y"]}]
    path = write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert read_table(path) == [
        {"text": "a", "label": "1"},
        {"text": "b", "label": "", "choices": ["x", "y"]},
    ]
    with pytest.raises(ValueError, match="JSON object.*line 1"):
        read_table(write(tmp_path, "b.jsonl", "[1]"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "a\tb\n1\t2\n3\n", "columns a, b.*row 3 with 1 instead of 2"),
        ("a.tsv", "a\ta\n1\t2\n", "different names"),
        ("a.tsv", "a\tb\n", "must have rows"),
        ("a.xlsx", "", "must end in .tsv"),
        ("a.tsv", b"a\tb\n\xff\t1\n", "UTF-8.*byte 4"),
    ],
)
def test_tables_that_are_none_are_refused(name, content, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path, name, content))


@pytest.mark.parametrize(
    "content",
    [
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\nPeter NNP I-NP I-PER\n",
        "EU\tB-ORG\nrejects\tO\n\t\nPeter\tB-PER",
        "EU S-ORG\nrejects O\n\n\nPeter S-PER\n\n",
    ],
    ids=["IOB1 with four columns", "BIO with tabs", "BIOES"],
)
def test_sentences_of_tags_in_every_scheme(content, tmp_path):
    assert read_tagged(write(tmp_path, "a.conll", content)) == [
        {"words": ["EU", "rejects"], "tags": ["B-ORG", "O"]},
        {"words": ["Peter"], "tags": ["B-PER"]},
    ]


def test_parts_of_speech_stay_as_they_are(tmp_path):
    path = write(tmp_path, "a.txt", "the DET\ncat NOUN\n")
    assert read_tagged(path)[0]["tags"] == ["DET", "NOUN"]
    for content, message in (
        ("the\n", "1 columns"),
        ("a b\na b c\n", "3 columns after 2"),
        ("\n", "none"),
    ):
        with pytest.raises(ValueError, match=message):
            read_tagged(write(tmp_path, "b.txt", content))


def squad(**question):
    asked = {"id": "1", "question": "who?", "answers": [{"text": "Ann", "answer_start": 2}], **question}
    return json.dumps({"data": [{"paragraphs": [{"context": "Oh Ann.", "qas": [asked]}]}]})


def test_questions_of_both_versions(tmp_path):
    right = squad(answers=[{"text": "Ann", "answer_start": 3}])
    (row,) = read_questions(write(tmp_path, "a.json", right))
    assert row["context"][row["starts"][0] :].startswith(row["answers"][0])
    (row,) = read_questions(write(tmp_path, "b.json", squad(is_impossible=True)))
    assert row["answers"] == row["starts"] == []
    with pytest.raises(ValueError, match="'Ann', where the context has ' An', for 1"):
        read_questions(write(tmp_path, "c.json", squad()))
    with pytest.raises(ValueError, match="SQuAD's form.*'data'"):
        read_questions(write(tmp_path, "d.json", "{}"))


def test_the_table_of_tasks_is_whole():
    assert {task.kind for task in TASKS.values()} == set(KINDS)
    assert set(KINDS) <= set(TASKS)  # for a user's own data
    for task in TASKS.values():
        assert task.kind not in ("tagging", "answers") or task.labels is None


def test_glue_as_its_archive_has_it(tmp_path):
    """CoLA has four columns and a header in the test file alone; labels get names."""
    write(tmp_path, "train.tsv", "gj04\t1\t\tShe left.\ngj04\t0\t*\tLeft she.\n")
    write(tmp_path, "test.tsv", "index\tsentence\n0\tHe left.\n")
    task = TASKS["cola"]
    rows = read_split(task, path_of(task, str(tmp_path), "train"), "train")
    assert [row["sentence"] for row in rows] == ["She left.", "Left she."]
    assert [labels(task, row) for row in rows] == [["acceptable"], ["unacceptable"]]
    assert label_names(task, rows) == ["unacceptable", "acceptable"]
    (row,) = read_split(task, path_of(task, str(tmp_path), "test"), "test")
    assert row["sentence"] == "He left."
    assert path_of(task, str(tmp_path), "dev") is None
    with pytest.raises(ValueError, match="must have the columns sentence1, sentence2"):
        read_split(TASKS["rte"], path_of(task, str(tmp_path), "test"), "test")


def test_labels_are_ordered_by_number_or_name():
    task = TASKS["classification"]
    assert label_names(task, [{"label": "10"}, {"label": "9"}]) == ["9", "10"]
    assert label_names(task, [{"label": "b"}, {"label": "a"}]) == ["a", "b"]
    multi = TASKS["multi_label"]
    assert labels(multi, {"label": "x, y,"}) == ["x", "y"]
    assert label_names(multi, [{"label": ["y"]}, {"label": "x,y"}]) == ["x", "y"]
    tags = [{"tags": ["O", "I-b", "B-a"]}]
    assert label_names(TASKS["tagging"], tags) == ["O", "B-a", "B-b", "I-b"]
    with pytest.raises(ValueError, match="in the column 'label'"):
        labels(task, {"text": "a"})


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.tfds])
def test_tensorflow_datasets_has_the_tasks_by_these_names_and_columns(name):
    import tensorflow_datasets as tfds

    task = of_tfds(name, TASKS[name])
    with tfds.testing.mock_data():
        features = tfds.builder(task.tfds).info.features
    if task.kind == "answers":
        assert {"id", "question", "context", "answers"} <= set(features)
        return
    assert {task.text, task.label} | ({task.text_pair} - {None}) <= set(features)
    if task.labels:
        assert sorted(features[task.label].names) == sorted(task.labels.values())


def prepare(folder, name, splits, features):
    import tensorflow_datasets as tfds

    builder = tfds.dataset_builders.TfDataBuilder(
        name=name,
        version="1.0.0",
        data_dir=folder,
        split_datasets=splits,
        features=tfds.features.FeaturesDict(features),
        file_format="tfrecord",
    )
    builder.download_and_prepare()
    return f"tfds:{builder.data_path}"


def test_tables_tags_and_questions_of_tensorflow_datasets(tmp_path):
    import tensorflow as tf
    import tensorflow_datasets as tfds

    text, slices = tfds.features.Text(), tf.data.Dataset.from_tensor_slices
    rows = {"premise": ["a b", "c"], "hypothesis": ["é", ""], "label": [2, -1]}
    label = tfds.features.ClassLabel(names=["entailment", "neutral", "contradiction"])
    features = {"premise": text, "hypothesis": text, "label": label}
    path = prepare(tmp_path / "a", "mnli_like", {"validation_matched": slices(rows)}, features)
    task = of_tfds("mnli", TASKS["mnli"])
    assert path_of(task, path, "train") is None
    rows = read_split(task, path_of(task, path, "dev"), "dev")
    assert sorted(row["label"] for row in rows) == ["", "contradiction"]
    (row,) = (row for row in rows if row["label"])
    assert labels(task, row) == ["contradiction"]
    assert (row["premise"], row["hypothesis"]) == ("a b", "é")

    ragged = {
        "tokens": tf.ragged.constant([["Jim", "Bo", "ran"], ["no"], []], dtype=tf.string),
        "ner": tf.ragged.constant([[1, 1, 0], [0], []], dtype=tf.int64, ragged_rank=1),
    }
    tags = tfds.features.ClassLabel(names=["O", "I-PER"])
    features = {"tokens": tfds.features.Sequence(text), "ner": tfds.features.Sequence(tags)}
    path = prepare(tmp_path / "b", "conll_like", {"train": slices(ragged)}, features)
    rows = read_split(of_tfds("conll2003", TASKS["conll2003"]), path, "train")
    assert sorted(rows, key=lambda row: -len(row["words"])) == [
        {"words": ["Jim", "Bo", "ran"], "tags": ["B-PER", "I-PER", "O"]},
        {"words": ["no"], "tags": ["O"]},
    ]
    with pytest.raises(ValueError, match="must hold lists.*Received: tokens and label of"):
        read_split(dataclasses.replace(TASKS["tagging"], text="tokens"), path, "train")

    answers = tfds.features.Sequence({"text": text, "answer_start": tf.int32})
    features = {"id": text, "question": text, "context": text, "answers": answers}
    features |= {"is_impossible": tf.bool}
    asked = {
        "id": ["1", "2"],
        "question": ["who?", "when?"],
        "context": ["Oh Ann.", "Oh."],
        "answers": {
            "text": tf.ragged.constant([["Ann"], []], dtype=tf.string),
            "answer_start": tf.ragged.constant([[3], []], dtype=tf.int32, ragged_rank=1),
        },
        "is_impossible": [False, True],
    }
    path = prepare(tmp_path / "c", "squad_like", {"train": slices(asked)}, features)
    rows = {row["id"]: row for row in read_split(of_tfds("squad2", TASKS["squad2"]), path, "train")}
    assert rows["1"] == {
        "id": "1",
        "question": "who?",
        "context": "Oh Ann.",
        "answers": ["Ann"],
        "starts": [3],
    }
    assert rows["2"]["answers"] == rows["2"]["starts"] == []
