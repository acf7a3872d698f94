"""keras_bert.data.sources: every layout from plain, packed and remote files, TFDS, every refusal."""

import gzip
import json
import os
import re

import pytest
import tensorflow as tf

from keras_bert.data import sources
from keras_bert.data.sources import (
    hold_out,
    jsonl_documents,
    open_corpus,
    sentence_splitter,
    text_documents,
    tfds_documents,
)
from keras_bert.text.sentences import split_lines, split_sentences

BLANK_LINES = "\ufeffOne.\r\nTwo.\r\n\r\n\r\n \t\nThree é.\nFour."


@pytest.fixture
def folder(tmp_path):
    """b.txt, a/c.txt.gz and files that are no text."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b.txt").write_bytes(BLANK_LINES.encode())
    (tmp_path / "a" / "c.txt.gz").write_bytes(gzip.compress(b"Five.\n\nSix.\n"))
    (tmp_path / "notes.md").write_text("Not this.")
    return tmp_path


def refusal(pattern, path=""):
    return pytest.raises(ValueError, match=pattern.replace("PATH", re.escape(str(path))))


def test_a_file_is_a_document(folder):
    assert list(text_documents(folder / "b.txt")) == ["One.\nTwo.\n\n\n \t\nThree é.\nFour."]


def test_a_folder_gives_its_text_files_in_order_unpacked(folder):
    assert list(text_documents(folder)) == ["Five.\n\nSix.", *text_documents(folder / "b.txt")]


@pytest.mark.parametrize("layout", ["blank_line", "sentence_per_line"])
def test_blank_lines_end_documents(folder, layout):
    documents = ["Five.", "Six.", "One.\nTwo.", "Three é.\nFour."]
    assert list(text_documents(str(folder), layout)) == documents


def test_globs_match_files(folder):
    assert list(text_documents(f"{folder}/*/*.gz", "blank_line")) == ["Five.", "Six."]


def test_a_document_is_taken_before_the_next_is_read(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"One.\n\n" + b"x" * 10**6 + b"\n\n\xff")
    documents = text_documents(tmp_path / "a.txt", "blank_line")
    assert next(documents) == "One."
    assert len(next(documents)) == 10**6
    with refusal(
        "must be UTF-8; convert them first. Received: PATH, whose byte 1000008 is not",
        tmp_path / "a.txt",
    ):
        next(documents)


def test_remote_files_are_read_alike():
    for name, content in [("1.txt", b"One.\n\nTwo."), ("2.txt.gz", gzip.compress(b"Three."))]:
        with tf.io.gfile.GFile(f"ram://sources/{name}", "wb") as file:
            file.write(content)
    for pattern in ("ram://sources", "ram://sources/*"):
        assert list(text_documents(pattern, "blank_line")) == ["One.", "Two.", "Three."]


@pytest.mark.parametrize("pattern", ["none.txt", "none/*.txt", "*.csv"])
def test_a_path_without_files_is_refused_at_once(folder, pattern):
    with refusal(
        "a file, a folder .* or a glob .* Received: PATH, which matches none", folder / pattern
    ):
        text_documents(folder / pattern)


def test_a_folder_without_text_files_is_refused(tmp_path):
    with refusal("Received: PATH, which matches none", tmp_path):
        text_documents(tmp_path)


def test_files_without_text_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.txt").write_text(" \n\n\t\n")
    for layout in ("file", "blank_line"):
        with refusal("must hold some text. Received: PATH, 2 empty", tmp_path):
            list(text_documents(tmp_path, layout))


@pytest.mark.parametrize("layout", ["file", "sentence_per_line"])
def test_text_that_is_not_utf8_is_refused_with_its_place(tmp_path, layout):
    path = tmp_path / "latin.txt.gz"
    path.write_bytes(gzip.compress("First line.\ncafé".encode("latin-1")))
    with refusal("PATH, whose byte 15 is not", path):
        list(text_documents(path, layout))


def test_names_that_are_not_utf8_are_refused(tmp_path):
    (tmp_path / os.fsdecode(b"\xff.txt")).write_text("A text.")
    with refusal("Names of files must be UTF-8. Received: b'.*xff.txt' at PATH", tmp_path):
        text_documents(tmp_path)


@pytest.mark.parametrize("content", [b"plain text", gzip.compress(b"cut off")[:-6]])
def test_broken_gzip_is_refused(tmp_path, content):
    (tmp_path / "a.txt.gz").write_bytes(content)
    with refusal("must be whole gzip files. Received: PATH", tmp_path / "a.txt.gz"):
        list(text_documents(tmp_path))


def test_an_unknown_layout_is_refused_at_once(folder):
    with refusal("`layout` must be one of file, blank_line, sentence_per_line. Received: 'lines'"):
        text_documents(folder, "lines")


def test_json_lines(tmp_path):
    objects = [{"text": "One é.", "id": 1}, {"text": " "}, {"id": 2, "text": "Two.\n\nMore."}]
    lines = "\n\n".join(map(json.dumps, objects))
    (tmp_path / "a.jsonl").write_text("\ufeff" + lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "Half: \\ud83d."}\r\n'))
    (tmp_path / "c.txt").write_text("Not this.")
    assert list(jsonl_documents(tmp_path)) == ["One é.", "Two.\n\nMore.", "Half: ."]
    (tmp_path / "c.json").write_text('{"body": "B"}')
    assert list(jsonl_documents(tmp_path / "c.json", "body")) == ["B"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{'text': 1}", "Each line must be a JSON object. Received: PATH, line 3: Expecting property"),
        ("[1]", r"Each line must be a JSON object. Received: PATH, line 3: '\[1\]'"),
        (
            '{"title": "A", "body": 1}',
            r"text field 'text'. Received: PATH, line 3: \['body', 'title'\]",
        ),
        ('{"text": null}', "text field 'text'. Received: PATH, line 3: one that is None"),
    ],
)
def test_bad_json_lines_are_named(tmp_path, line, words):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "Fine."}}\n\n{line}\n')
    with refusal(words, path):
        list(jsonl_documents(path))


def test_json_lines_without_text_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n')
    with refusal("JSON lines must hold some text. Received: PATH, 1", tmp_path):
        list(jsonl_documents(tmp_path))
    (tmp_path / "a.jsonl").unlink()
    with refusal("files in .jsonl or .jsonl.gz, .* Received: PATH, which matches none", tmp_path):
        jsonl_documents(tmp_path)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Directories of two datasets: one with a single text feature, one with two."""
    import tensorflow_datasets as tfds

    def build(name, examples, **features):
        builder = tfds.dataset_builders.TfDataBuilder(
            name=name,
            version="1.0.0",
            data_dir=tmp_path_factory.mktemp(name),
            split_datasets={"train": tf.data.Dataset.from_tensor_slices(examples)},
            features=tfds.features.FeaturesDict(features),
            file_format="tfrecord",
        )
        builder.download_and_prepare()
        return str(builder.data_path)

    text, label = tfds.features.Text(), tfds.features.ClassLabel(num_classes=2)
    one = build("one", {"text": ["Un é.", "", "Deux."], "label": [0, 1, 0]}, text=text, label=label)
    return one, build("two", {"title": ["A"], "text": ["B."]}, title=text, text=tfds.features.Text())


def test_tfds_takes_the_only_text_feature(prepared):
    assert sorted(tfds_documents(prepared[0])) == ["Deux.", "Un é."]
    assert len(list(tfds_documents(prepared[0], split="train[:34%]"))) == 1


def test_tfds_takes_the_named_feature(prepared):
    assert list(tfds_documents(prepared[1], field="title")) == ["A"]


@pytest.mark.parametrize("field", [None, "label"])
def test_tfds_lists_the_text_features(prepared, field):
    with refusal("text feature of two/1.0.0, one of: text, title. Received: "):
        tfds_documents(prepared[1], field=field)


def test_tfds_by_name():
    import tensorflow_datasets as tfds

    with tfds.testing.mock_data(num_examples=3):
        assert len(list(tfds_documents("imdb_reviews"))) == 3


def test_each_nth_document_is_held_out():
    texts = list("abcdefg")
    assert list(hold_out(texts, 3, "train")) == list("abdeg")
    assert list(hold_out(texts, 3, "held_out")) == list("cf")
    with refusal("must be at least 2. Received: 1"):
        hold_out(texts, 1, "train")
    with refusal('must be "train" or "held_out". Received: \'test\''):
        hold_out(texts, 3, "test")


def test_corpora_open_by_name(folder, prepared, monkeypatch):
    texts = list(text_documents(folder, "blank_line"))
    assert list(open_corpus(str(folder), "train", "blank_line", held_out_every=2)) == texts[::2]
    assert list(open_corpus(str(folder), "held_out", "blank_line", held_out_every=2)) == texts[1::2]
    titles = open_corpus(f"tfds:{prepared[1]}", field="title", tfds_split="train[:100%]")
    assert list(titles) == ["A"]
    (folder / "a.jsonl").write_text('{"text": "A"}\n{"text": "B"}')
    assert list(open_corpus(f"jsonl:{folder}", held_out_every=2)) == ["A"]
    (folder / "a.jsonl").write_text('{"body": "A"}')
    assert list(open_corpus(f"jsonl:{folder}", field="body")) == ["A"]
    monkeypatch.setattr(sources, "builtin_documents", lambda split: iter([f"built-in {split}"]))
    assert list(open_corpus("builtin", "held_out", held_out_every=2)) == ["built-in held_out"]


def test_only_own_text_can_have_a_sentence_a_line():
    assert sentence_splitter("texts/*.txt", "sentence_per_line") is split_lines
    assert sentence_splitter("texts/*.txt", "blank_line") is split_sentences
    assert sentence_splitter("builtin", "sentence_per_line") is split_sentences
