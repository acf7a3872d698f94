"""tools/convert.py and `load_pretrained`: from any checkpoint to the model it is of, and on."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from safetensors.numpy import load_file
from test_huggingface import FIXTURES, FOLDERS, class_of

import keras_bert
from keras_bert.checkpoints.weights import HEADS
from keras_bert.models.auto import MODELS

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"]


def convert(*arguments):
    command = [sys.executable, str(ROOT / "tools" / "convert.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def source(tmp_path):
    """A classifier with a tokenizer, cut to its rows."""
    folder = tmp_path / "source"
    shutil.copytree(FIXTURES / "bert_SequenceClassification", folder)
    keras_bert.WordPieceTokenizer(WORDS).save_pretrained(folder)
    return folder


def test_every_model_is_recognised():
    assert set(MODELS) == set(HEADS)
    assert all(model.head == head for head, model in MODELS.items() if isinstance(model.head, str))
    for folder in FOLDERS:
        assert type(keras_bert.load_pretrained(FIXTURES / folder)) is class_of(folder)
    with pytest.raises(ValueError, match="`head` must be one of .*Received: 'poet'"):
        keras_bert.load_pretrained(FIXTURES / "bert_Model", head="poet")


def test_a_dry_run_shows_all_and_writes_nothing(source, tmp_path):
    run = convert(source, tmp_path / "to", "--dry-run", "--head", "encoder")
    assert run.returncode == 0, run.stderr
    lines = [line.split() for line in run.stdout.splitlines()]
    stored = load_file(source / "model.safetensors")
    shown = {line[0] for line in lines if line and "." in line[0]}
    assert shown == {name.removeprefix("bert.") for name in stored}
    query = "encoder.layer.0.attention.self.query.weight"
    assert [query, "12x12", "encoder/block_0/attention/qkv_kernel", "(query)"] in lines
    assert ["classifier.weight", "left", "out"] in lines
    assert not (tmp_path / "to").exists()


def test_a_conversion_keeps_weights_labels_and_tokenizer(source, tmp_path):
    run = convert(source, tmp_path / "to", "--dtype", "bfloat16")
    assert run.returncode == 0, run.stderr
    before, after = (load_file(path / "model.safetensors") for path in (source, tmp_path / "to"))
    assert sorted(before) == sorted(after)
    for name, array in before.items():
        np.testing.assert_array_equal(array.astype(after[name].dtype), after[name])
    model = keras_bert.load_pretrained(tmp_path / "to")
    assert model.label_names == ("no", "perhaps", "yes")
    assert list(model.tokenizer.vocabulary) == WORDS
    again = convert(source, tmp_path / "to")
    assert again.returncode == 1
    assert "The target must not exist yet" in again.stderr


def test_a_name_of_the_hub_is_looked_up_in_its_cache(tmp_path, monkeypatch):
    """What was once downloaded is read without a network."""
    repository, revision = tmp_path / "models--owner--name", "1" * 40
    shutil.copytree(FIXTURES / "bert_MaskedLM", repository / "snapshots" / revision)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    model = keras_bert.load_pretrained("hf://owner/name")
    expected = keras_bert.load_pretrained(FIXTURES / "bert_MaskedLM")
    np.testing.assert_array_equal(model.masked_lm.bias, expected.masked_lm.bias)
    keras_bert.load_pretrained(f"hf://owner/name@{revision}")
    with pytest.raises(ValueError, match="hf://owner/other"):
        keras_bert.load_pretrained("hf://owner/other")
