"""Directories of transformers: the library's own numbers for every family and head, and back."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import keras_bert

FIXTURES = Path(__file__).parent / "fixtures" / "huggingface"
FOLDERS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
CLASSES = {
    "Model": keras_bert.BertEncoder,
    "PreTraining": keras_bert.BertPretrainer,
    "MaskedLM": keras_bert.BertMaskedLM,
    "SequenceClassification": keras_bert.BertClassifier,
    "TokenClassification": keras_bert.BertTokenClassifier,
    "QuestionAnswering": keras_bert.BertQuestionAnswering,
    "MultipleChoice": keras_bert.BertMultipleChoice,
}
# their output -> ours
OUTPUTS = {
    "last_hidden_state": "sequence_output",
    "pooler_output": "pooled_output",
    "prediction_logits": "masked_lm",
    "seq_relationship_logits": "sentence",
    "sop_logits": "sentence",
    "start_logits": "start_positions",
    "end_logits": "end_positions",
}


def class_of(folder):
    family, head = folder.split("_")
    if (family, head) == ("electra", "PreTraining"):
        return keras_bert.BertDiscriminator
    return CLASSES[head]


def read(folder, **options):
    """A fixture as a model; a warning is a failure: nothing in it is new or left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return class_of(folder).from_pretrained(FIXTURES / folder, **options)


def inputs_of(answers):
    names = {
        "input_ids": "token_ids",
        "attention_mask": "padding_mask",
        "token_type_ids": "segment_ids",
    }
    x = {ours: answers[theirs].astype("int32") for theirs, ours in names.items() if theirs in answers}
    length = x["token_ids"].shape[-1]
    positions = np.broadcast_to(np.arange(length, dtype="int32"), x["token_ids"].shape)
    return x, {**x, "mask_positions": positions}


def largest_difference(folder, **options):
    """Between our outputs and the library's, over real tokens."""
    answers = load_file(FIXTURES / folder / "answers.safetensors")
    model = read(folder, **options)
    plain, with_positions = inputs_of(answers)
    is_pretrainer = isinstance(model, keras_bert.BertPretrainer)
    found = model(with_positions if is_pretrainer else plain)
    if not isinstance(found, dict):
        found = {"logits": found}
    is_token = plain["padding_mask"].astype(bool)
    compared, largest = 0, 0.0
    for name, expected in answers.items():
        if name in ("input_ids", "attention_mask", "token_type_ids"):
            continue
        ours = "masked_lm" if name == "logits" and is_pretrainer else OUTPUTS.get(name, name)
        difference = np.abs(np.asarray(found[ours], "float64") - expected)
        if expected.shape[:2] == is_token.shape and is_token.ndim == 2:
            difference = difference[is_token]
        compared, largest = compared + 1, max(largest, difference.max())
    assert compared
    return largest


@pytest.mark.parametrize("folder", FOLDERS)
def test_outputs_are_the_librarys(folder):
    assert largest_difference(folder) < 1e-5


@pytest.mark.parametrize("folder", ["albert_Model", "distilbert_TokenClassification", "bert_MaskedLM"])
def test_the_layout_changes_nothing(folder):
    assert largest_difference(folder, layout="unpadded") < 1e-5


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_round_trip_is_bitwise(folder, tmp_path):
    read(folder).save_pretrained(tmp_path)
    before, after = (load_file(path / "model.safetensors") for path in (FIXTURES / folder, tmp_path))
    assert sorted(before) == sorted(after)
    for name, array in before.items():
        assert array.dtype == after[name].dtype
        np.testing.assert_array_equal(array, after[name])
    old, new = (
        json.loads((path / "config.json").read_text()) for path in (FIXTURES / folder, tmp_path)
    )
    old.pop("transformers_version")
    new.pop("problem_type" if "problem_type" not in old else "", None)
    assert new == old
