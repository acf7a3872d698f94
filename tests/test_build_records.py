"""keras_bert.data.record_building and tools/build_records.py: counted tokens, equal bytes, any end."""

import dataclasses
import importlib.util
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.corpus import build_corpus
from keras_bert.data.pretraining import PretrainingData
from keras_bert.data.record_building import RecordRecipe, build_records, document_blocks
from keras_bert.data.record_writing import RecordWriter
from keras_bert.data.records import Manifest
from keras_bert.text.pretrained import load_tokenizer
from keras_bert.text.wordpiece import WordPieceTokenizer

TOOL = Path(__file__).parents[1] / "tools" / "build_records.py"
WORDS = [f"w{i}" for i in range(80)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]


def write_texts(path, documents=60, seed=0):
    """Documents of 1 to 12 sentences of 2 to 20 words, one a paragraph."""
    rng = np.random.default_rng(seed)
    texts = [
        " ".join(
            " ".join(rng.choice(WORDS, rng.integers(2, 20))).capitalize() + "."
            for _ in range(rng.integers(1, 13))
        )
        for _ in range(documents)
    ]
    path.write_text("\n\n".join(texts))
    return texts


def contents(directory):
    """{path below the directory: content} of all its files."""
    directory = Path(directory)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def read_examples(directory):
    """The records as lists, by the generic parser of protocol buffers."""
    names = sorted(name for name in tf.io.gfile.listdir(str(directory)) if name.endswith("tfrecord"))
    for name in names:
        for record in tf.data.TFRecordDataset(tf.io.gfile.join(str(directory), name)):
            features = tf.train.Example.FromString(record.numpy()).features.feature
            yield {key: list(value.int64_list.value) for key, value in features.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """texts.txt and a tokenizer."""
    folder = tmp_path_factory.mktemp("corpus")
    write_texts(folder / "texts.txt")
    WordPieceTokenizer(VOCABULARY).save_pretrained(folder / "tokenizer")
    return folder


@pytest.fixture(scope="module")
def recipe(folder):
    return RecordRecipe(
        corpus=str(folder / "texts.txt"),
        text_layout="blank_line",
        tokenizer=str(folder / "tokenizer"),
        output=str(folder / "records"),
        held_out_every=6,
        objective="full_sentences",
        max_length=24,
        examples_per_shard=40,
        block_megabytes=0.006,
        seed=5,
    )


@pytest.fixture(scope="module")
def manifests(recipe):
    return build_records(recipe)


def test_every_token_is_written_once(folder, recipe, manifests):
    """A restatement: the pieces of the texts in a row, against the tokens of the records in a row."""
    texts = (folder / "texts.txt").read_text().split("\n\n")
    for split, held_out in (("train", False), ("held_out", True)):
        expected, counts = [], np.zeros(len(VOCABULARY), int)
        mine = [text for i, text in enumerate(texts, 1) if (i % 6 == 0) == held_out]
        for text in mine:
            ids = [VOCABULARY.index(w) for w in text.lower().replace(".", " .").split()]
            np.add.at(counts, ids, 1)
            expected += ids
        examples = list(read_examples(Path(recipe.output, split)))
        written = [token for example in examples for token in example["a"]]
        separator = VOCABULARY.index("[SEP]")
        assert [token for token in written if token != separator] == expected
        assert all(set(example) == {"a"} and 1 <= len(example["a"]) <= 22 for example in examples)
        manifest = manifests[split]
        assert manifest.documents == len(mine)
        assert manifest.tokens == len(expected)
        assert manifest.row_tokens == len(written) + 2 * len(examples)
        assert manifest.examples == len(examples)
        assert [shard["examples"] for shard in manifest.shards][:-1] == [40] * (len(examples) // 40)
        words = json.loads(Path(recipe.output, split, "word_counts.json").read_text())
        assert words == counts.tolist()
        assert manifest.text_crc32 == zlib.crc32("".join(mine).encode())
    assert len(manifests["train"].shards) > 2
    assert Manifest.read(Path(recipe.output, "train")) == manifests["train"]
    assert load_tokenizer(recipe.output).vocabulary == tuple(VOCABULARY)


@pytest.mark.parametrize("objective", ["next_sentence", "sentence_order", "full_sentences"])
def test_a_corpus_of_one_block_has_the_examples_of_the_data_in_memory(recipe, objective, tmp_path):
    recipe = dataclasses.replace(
        recipe, output=str(tmp_path), objective=objective, block_megabytes=100.0, passes=2
    )
    manifest = build_records(recipe)["train"]
    tokenizer = load_tokenizer(recipe.output)
    corpus = build_corpus(recipe.documents("train"), tokenizer)
    data = PretrainingData(corpus, tokenizer, objective, recipe.max_length, seed=recipe.seed)
    assert manifest.examples == 2 * len(data)
    assert manifest.documents_left_out == data.documents_left_out
    assert manifest.characters == corpus.characters
    rows = []
    for epoch in range(2):
        numbers = tf.range(len(data), dtype=tf.int64)
        x, y, weights = data.examples(tf.fill([len(data)], tf.constant(epoch, tf.int64)), numbers)
        ids, real = x["token_ids"].numpy(), weights["masked_lm"].numpy() > 0
        places = np.nonzero(real)[0], x["mask_positions"].numpy()[real]
        ids[places] = y["masked_lm"].numpy()[real]
        labels = y.get("sentence", tf.zeros(len(ids))).numpy()
        rows += zip(ids, x["padding_mask"].numpy().sum(1), labels, strict=True)
    for example, (row, length, label) in zip(read_examples(tmp_path / "train"), rows, strict=True):
        expected = [2, *example["a"], 3]
        if objective != "full_sentences":
            expected += [*example["b"], 3]
            assert example["label"] == [label]
        assert row[:length].tolist() == expected
    assert manifest.row_tokens == sum(length for _, length, _ in rows)


def test_passes_have_other_pairs_of_the_same_text(recipe, tmp_path):
    recipe = dataclasses.replace(
        recipe, output=str(tmp_path), objective="sentence_order", passes=2, short_rate=0.0
    )
    manifest = build_records(recipe)["train"]
    examples = [tuple(map(tuple, e.values())) for e in read_examples(tmp_path / "train")]
    half = len(examples) // 2
    assert manifest.examples == 2 * half
    same = sum(one == other for one, other in zip(examples[:half], examples[half:], strict=True))
    assert same < half / 2
    assert manifest.documents == len(list(recipe.documents("train")))  # counted once


@pytest.mark.parametrize("passes", [1, 2])
def test_interrupted_anywhere_it_ends_with_the_same_bytes(recipe, tmp_path, monkeypatch, passes):
    recipe = dataclasses.replace(recipe, objective="next_sentence", passes=passes)
    whole = dataclasses.replace(recipe, output=str(tmp_path / "whole"))
    total = sum(manifest.examples for manifest in build_records(whole).values())
    write = RecordWriter.write
    written = itertools.count(1)
    stops = set(np.random.default_rng(passes).integers(1, 2 * total, 6).tolist())

    def interrupted(self, record, length):
        if next(written) in stops:
            raise KeyboardInterrupt  # leaves behind what a kill does
        write(self, record, length)

    monkeypatch.setattr(RecordWriter, "write", interrupted)
    recipe = dataclasses.replace(recipe, output=str(tmp_path / "interrupted"))
    interruptions = 0
    while True:
        try:
            build_records(recipe)
            break
        except KeyboardInterrupt:
            interruptions += 1
    assert interruptions >= 2
    assert contents(recipe.output) == contents(whole.output)


# A build whose writing can be overtaken by a kill.
SLOW = """
import json, sys, time
from keras_bert.data.record_building import RecordRecipe, build_records
from keras_bert.data.record_writing import RecordWriter

def write_slowly(*row, write=RecordWriter.write):
    time.sleep(0.005)
    write(*row)

if __name__ == "__main__":
    RecordWriter.write = write_slowly
    build_records(RecordRecipe(**json.loads(sys.argv[1])))
"""


def test_two_workers_killed_with_their_build_give_the_bytes_of_one(recipe, manifests, tmp_path):
    whole, recipe = contents(recipe.output), dataclasses.replace(recipe, output=str(tmp_path / "out"))
    (tmp_path / "slow.py").write_text(SLOW)
    arguments = json.dumps({**dataclasses.asdict(recipe), "processes": 2})
    build = subprocess.Popen([sys.executable, tmp_path / "slow.py", arguments])
    train, deadline = Path(recipe.output, "train"), time.monotonic() + 300
    shards = sorted(name for name in whole if re.match("train/shard", name))
    try:
        while not Path(recipe.output, shards[-2]).exists():  # all but the last
            assert build.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        workers = children(build.pid)
    finally:
        build.send_signal(signal.SIGKILL)
        build.wait()
    assert not (train / "manifest.json").exists()
    before = Path(recipe.output, shards[0]).stat().st_mtime_ns
    build_records(recipe)
    assert contents(recipe.output) == whole
    assert Path(recipe.output, shards[0]).stat().st_mtime_ns == before
    assert len(workers) >= 2
    while any(map(is_running, workers)):  # they end with their parent
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_finished_build_is_left_alone(recipe, manifests, folder):
    before = {path: os.stat(path).st_mtime_ns for path in Path(recipe.output, "train").iterdir()}
    assert build_records(recipe) == manifests
    assert before == {p: os.stat(p).st_mtime_ns for p in Path(recipe.output, "train").iterdir()}


def test_other_settings_are_refused(recipe, manifests, tmp_path):
    other = dataclasses.replace(recipe, seed=6, max_length=32)
    with pytest.raises(ValueError, match="begun with.*: max_length was 24, is 32, seed was 5, is 6"):
        build_records(other)
    WordPieceTokenizer([*VOCABULARY, "more"]).save_pretrained(tmp_path)
    other = dataclasses.replace(recipe, tokenizer=str(tmp_path))
    with pytest.raises(ValueError, match="tokenizer.*vocabulary_size was 86, is 87"):
        build_records(other)


def test_changed_text_is_refused(recipe, tmp_path, monkeypatch):
    texts = write_texts(tmp_path / "texts.txt")
    recipe = dataclasses.replace(
        recipe, corpus=str(tmp_path / "texts.txt"), output=str(tmp_path / "records")
    )
    end_shard = RecordWriter._end_shard

    def stop(self):
        end_shard(self)
        if "train" in self.directory and len(self.manifest.shards) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(RecordWriter, "_end_shard", stop)
    with pytest.raises(KeyboardInterrupt):
        build_records(recipe)
    (tmp_path / "texts.txt").write_text("\n\n".join(["Another one.", *texts]))
    with pytest.raises(
        ValueError, match="text must stay the same.*Received: other text in .*texts.txt"
    ):
        build_records(recipe)
    (tmp_path / "texts.txt").write_text("\n\n".join(texts[:12]))
    with pytest.raises(ValueError, match="text must stay the same"):
        build_records(recipe)


def test_a_full_disk_keeps_what_is_finished(recipe, manifests, tmp_path, monkeypatch):
    recipe = dataclasses.replace(recipe, output=str(tmp_path))
    with monkeypatch.context() as patch:
        writer = tf.io.TFRecordWriter

        def full(path):
            return writer("/dev/full" if "train/shard-00002" in path else path)

        patch.setattr(tf.io, "TFRecordWriter", full)
        with pytest.raises(OSError, match="must have room.*No space left on device.*goes on"):
            build_records(recipe)
    assert {path.name for path in (tmp_path / "train").iterdir()} == {
        "shard-00000.tfrecord", "shard-00001.tfrecord", "progress.json",
    }  # fmt: skip
    build_records(recipe)
    assert contents(tmp_path) == contents(Path(recipe.corpus).parent / "records")


def test_remote_directories_hold_the_same(recipe, manifests):
    remote = dataclasses.replace(recipe, output="ram://built")
    assert build_records(remote) == manifests
    local = contents(recipe.output)
    for name in local:
        with tf.io.gfile.GFile(f"ram://built/{name}", "rb") as file:
            assert file.read() == local[name]


def test_blocks_by_hand():
    documents = ["ab", "cde", "f", "gh", "ijkl", "m"]
    blocks = list(document_blocks(documents, 4))
    assert blocks == [["ab", "cde"], ["f", "gh", "ijkl", "m"]]
    assert list(document_blocks(["abcdef"] * 4, 4)) == [["abcdef"] * 2] * 2
    assert list(document_blocks(["abcdef"] * 3, 4)) == [["abcdef"] * 3]
    assert list(document_blocks(["a"], 4)) == [["a"]]
    assert list(document_blocks([], 4)) == []
    for size in range(1, 30):
        assert list(itertools.chain(*document_blocks(documents, size))) == documents


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"processes": 0}, "`processes` must be at least 1. Received: 0"),
        ({"objective": "nsp"}, "`objective` must be 'next_sentence' or .*Received: 'nsp'"),
        ({"max_length": 3}, "`max_length` must leave room .*Received: 3"),
        ({"block_megabytes": 0.0}, "must be positive"),
        ({"corpus": "none/*.txt"}, "Received: none/.*txt, which matches none"),
        (
            {"held_out_every": 100},
            "held_out split .* must have text .*no documents.*document in 100",
        ),
        (
            {"held_out_every": 60, "objective": "next_sentence"},
            "held_out split .*at least two documents.*One document in 60",
        ),
    ],
)
def test_refusals(recipe, tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        build_records(dataclasses.replace(recipe, output=str(tmp_path / "records"), **options))


def test_the_tool_trains_a_vocabulary_on_json_lines(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("build_records_tool", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    texts = write_texts(tmp_path / "texts.txt", documents=20)
    lines = [json.dumps({"body": text, "number": i}) for i, text in enumerate(texts)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    flags = [
        "--corpus", f"jsonl:{tmp_path}/texts.jsonl", "--text-field", "body", "--vocab-size", "120",
        "--held-out-every", "5", "--output", str(tmp_path / "records"),
    ]  # fmt: skip
    tool.main(flags)
    assert re.search(r"train: \d+ examples in 1 shards, .* of 16 documents", capsys.readouterr().out)
    assert set(WORDS) <= set(load_tokenizer(tmp_path / "records").vocabulary)
    with pytest.raises(SystemExit, match="^build_records.py: .* seed was 0, is 1"):
        tool.main([*flags, "--seed", "1"])
    (tmp_path / "texts.jsonl").write_text("\n".join([*lines, '{"body": ']))
    with pytest.raises(SystemExit, match="^build_records.py: Each line must .*texts.jsonl, line 21"):
        tool.main([*flags[:-1], str(tmp_path / "other")])
