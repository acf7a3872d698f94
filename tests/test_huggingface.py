"""Directories of transformers: the library's own numbers for every family and head, and back."""

import dataclasses
import json
import re
import shlex
import shutil
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import keras_bert
from keras_bert.checkpoints.formats import open_checkpoint
from keras_bert.checkpoints.huggingface_config import read_config

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


def copy(folder, tmp_path, change_tensors=None, **settings):
    """A fixture with some of its tensors or settings changed; None removes a setting."""
    target = tmp_path / folder
    target.mkdir()
    tensors = load_file(FIXTURES / folder / "model.safetensors")
    save_file(change_tensors(tensors) if change_tensors else tensors, target / "model.safetensors")
    config = {**json.loads((FIXTURES / folder / "config.json").read_text()), **settings}
    config = {key: value for key, value in config.items() if value is not None}
    (target / "config.json").write_text(json.dumps(config))
    return target


def rename(change):
    return lambda tensors: {change(name): array for name, array in tensors.items()}


def answers_of(model, folder="bert_PreTraining"):
    _, x = inputs_of(load_file(FIXTURES / folder / "answers.safetensors"))
    return {name: np.asarray(value) for name, value in model(x).items()}


@pytest.mark.parametrize(
    "change",
    [
        lambda name: name.removeprefix("bert."),
        lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ),
        lambda name: name.replace("cls.predictions.bias", "cls.predictions.decoder.bias"),
    ],
    ids=["without prefix", "gamma and beta", "bias of the decoder"],
)
def test_other_spellings_are_read(change, tmp_path):
    folder = copy("bert_PreTraining", tmp_path, rename(change))
    names = set(load_file(folder / "model.safetensors"))
    assert names != set(load_file(FIXTURES / "bert_PreTraining" / "model.safetensors"))
    found = answers_of(keras_bert.BertPretrainer.from_pretrained(folder))
    for name, expected in answers_of(read("bert_PreTraining")).items():
        np.testing.assert_array_equal(found[name], expected)


def test_what_old_versions_stored_besides_is_passed_over(tmp_path):
    def add(tensors):
        table = tensors["bert.embeddings.word_embeddings.weight"]
        return {
            **tensors,
            "bert.embeddings.position_ids": np.arange(19)[None],
            "cls.predictions.decoder.weight": table.copy(),
        }

    folder = copy("bert_PreTraining", tmp_path, add)
    found = answers_of(keras_bert.BertPretrainer.from_pretrained(folder))
    np.testing.assert_array_equal(found["masked_lm"], answers_of(read("bert_PreTraining"))["masked_lm"])


def shard(folder, parts=3):
    """Splits the weights of a directory into several files with an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {
        name: f"model-{i % parts + 1:05}-of-{parts:05}.safetensors" for i, name in enumerate(tensors)
    }
    for file in set(places.values()):
        save_file({name: tensors[name] for name in tensors if places[name] == file}, folder / file)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return places


def test_shards_are_read_and_must_be_those_of_the_index(tmp_path):
    folder = copy("bert_PreTraining", tmp_path)
    places = shard(folder)
    found = answers_of(keras_bert.BertPretrainer.from_pretrained(folder))
    np.testing.assert_array_equal(found["sentence"], answers_of(read("bert_PreTraining"))["sentence"])
    first, second = sorted(set(places.values()))[:2]
    (folder / first).write_bytes((folder / second).read_bytes())
    with pytest.raises(ValueError, match=f"{first} must hold the tensors"):
        keras_bert.BertPretrainer.from_pretrained(folder)
    (folder / first).unlink()
    with pytest.raises(ValueError, match=f"must exist. Received: .*{first}"):
        keras_bert.BertPretrainer.from_pretrained(folder)
    index = {"weight_map": dict.fromkeys(places, "../model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="must name files beside it"):
        keras_bert.BertPretrainer.from_pretrained(folder)


def test_a_remote_directory(tmp_path):
    for name in ("config.json", "model.safetensors"):
        tf.io.gfile.makedirs("ram://hf")
        content = (FIXTURES / "bert_PreTraining" / name).read_bytes()
        with tf.io.gfile.GFile(f"ram://hf/{name}", "wb") as file:
            file.write(content)
    model = keras_bert.BertPretrainer.from_pretrained("ram://hf")
    model.save_pretrained("ram://hf2")
    again = answers_of(keras_bert.BertPretrainer.from_pretrained("ram://hf2"))
    np.testing.assert_array_equal(again["masked_lm"], answers_of(read("bert_PreTraining"))["masked_lm"])


def test_a_base_model_from_every_head_and_a_new_head_on_it():
    """A pooler is taken where there is one; heads that are not asked for are reported as left out."""
    encoder = keras_bert.BertEncoder.from_pretrained(FIXTURES / "bert_PreTraining")
    assert encoder.config.use_pooler
    assert "cls.seq_relationship.weight" in encoder.load_report.unused
    assert not keras_bert.BertEncoder.from_pretrained(FIXTURES / "bert_MaskedLM").config.use_pooler
    with pytest.warns(UserWarning, match="holds no pooler and no classifier for this model: newly"):
        keras_bert.BertClassifier.from_pretrained(FIXTURES / "bert_MaskedLM", num_labels=2)
    with pytest.warns(UserWarning, match="holds no classifier for"):
        keras_bert.BertClassifier.from_pretrained(FIXTURES / "bert_PreTraining", num_labels=2)
    # of the same name and shape, but another head's
    with pytest.warns(UserWarning, match="holds no pooler and no classifier for"):
        keras_bert.BertClassifier.from_pretrained(FIXTURES / "bert_TokenClassification", num_labels=3)


def test_labels_are_kept_or_replaced():
    kept = read("roberta_SequenceClassification")
    assert (kept.label_names, kept.problem_type) == (("no", "perhaps", "yes"), "multi_label")
    folder = FIXTURES / "roberta_SequenceClassification"
    with pytest.raises(
        ValueError, match=r"misshapen: classifier.out_proj.weight \(3, 12\) where \(2, 12\)"
    ):
        keras_bert.BertClassifier.from_pretrained(folder, num_labels=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what was asked for is no surprise
        new = keras_bert.BertClassifier.from_pretrained(folder, num_labels=2, new_head=True)
    assert new.load_report.new == ["classifier"]
    np.testing.assert_array_equal(new.encoder.pooler.kernel, kept.encoder.pooler.kernel)
    with pytest.raises(ValueError, match="`num_labels` or `label_names` must be given"):
        keras_bert.BertClassifier.from_pretrained(FIXTURES / "bert_Model")


def test_everything_wrong_is_listed_at_once(tmp_path):
    def spoil(tensors):
        tensors["bert.pooler.dense.odd"] = tensors.pop("bert.pooler.dense.bias")
        tensors["bert.embeddings.LayerNorm.weight"] = np.ones(11, "float32")
        tensors["cls.seq_relationship.bias"] = np.zeros(2, "int32")
        del tensors["bert.encoder.layer.1.output.dense.bias"]
        return tensors

    folder = copy("bert_PreTraining", tmp_path, spoil)
    with pytest.raises(ValueError, match="must be those of a bert for pretraining") as error:
        keras_bert.BertPretrainer.from_pretrained(folder)
    for part in (
        "2 missing: encoder.layer.1.output.dense.bias (12,), pooler.dense.bias (12,)",
        "1 misshapen: embeddings.LayerNorm.weight (11,) where (12,) must be",
        "1 unknown: pooler.dense.odd (12,)",
        "1 no floats: cls.seq_relationship.bias I32",
    ):
        assert part in str(error.value)


def test_a_decoder_of_its_own_is_refused(tmp_path):
    def untie(tensors):
        table = tensors["bert.embeddings.word_embeddings.weight"]
        return {**tensors, "cls.predictions.decoder.weight": table + 1}

    folder = copy("bert_MaskedLM", tmp_path, untie)
    with pytest.raises(ValueError, match="decoder.weight must be a copy of"):
        keras_bert.BertMaskedLM.from_pretrained(folder)
    keras_bert.BertEncoder.from_pretrained(folder)  # needs no decoder


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "deberta-v2"}, "Received: 'deberta-v2'"),
        ({"position_embedding_type": "relative_key"}, 'must be "absolute". Received: "relative_key"'),
        ({"is_decoder": True}, "`is_decoder` must be false"),
        ({"hidden_act": "mish"}, "`hidden_act` must be one of .*'mish'"),
        ({"auto_map": {"AutoModel": "modeling_new.NewModel"}}, "`auto_map` must be {}"),
        ({"hidden_size": "12"}, "`hidden_size` must be int. Received: '12'"),
        ({"hidden_size": 13}, "must divide"),
        ({"vocab_size": 38}, r"misshapen: embeddings.word_embeddings.weight \(37, 12\) where \(38"),
        ({"num_hidden_layers": 3}, "16 missing"),
        ({"num_hidden_layers": 1}, "16 unknown"),
    ],
)
def test_other_architectures_are_refused(settings, message, tmp_path):
    folder = copy("bert_Model", tmp_path, **settings)
    with pytest.raises(ValueError, match=message):
        keras_bert.BertEncoder.from_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("bert", {}),
        ("roberta", {"vocab_size": 50265, "pad_token_id": 1, "position_offset": 2}),
        ("albert", {"vocab_size": 30000, "embedding_size": 128, "hidden_size": 4096}),
        ("distilbert", {"num_hidden_layers": 6, "type_vocab_size": 0, "use_pooler": False}),
        ("electra", {"hidden_size": 256, "embedding_size": 128, "num_attention_heads": 4}),
    ],
)
def test_absent_keys_have_the_librarys_defaults(kind, expected):
    config = read_config({"model_type": kind})
    found = {name: getattr(config, name) for name in expected}
    assert found == expected


def header(content, body=b""):
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(content)) + content + body


def f32(shape, start, end):
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8 + b"{}",
        struct.pack("<Q", 2**40) + b"{}",
        header(b"no json"),
        header({"x": f32([2], 0, 8), "y": f32([2], 4, 12)}, b"0" * 12),
        header({"x": f32([2**40, 2**40], 0, 8)}, b"0" * 8),
        header({"x": f32([2], 0, 8)}, b"0" * 4),
    ],
    ids=["empty", "huge header", "long header", "no json", "overlap", "overflow", "short"],
)
def test_hostile_files_are_refused(content, tmp_path):
    folder = copy("bert_Model", tmp_path)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="must be a whole safetensors file"):
        keras_bert.BertEncoder.from_pretrained(folder)


def test_a_truncated_file_is_refused(tmp_path):
    folder = copy("bert_Model", tmp_path)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="must be a whole safetensors file"):
        keras_bert.BertEncoder.from_pretrained(folder)


def test_pickles_are_refused_with_a_way_out(tmp_path):
    folder = copy("bert_Model", tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pytorch_model.bin can run any code.*python -c"):
        keras_bert.BertEncoder.from_pretrained(folder)
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match="must be an existing directory"):
        open_checkpoint(folder)


@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
def test_types_are_kept_or_converted(stored, tmp_path):
    """Half floats are exact in float32; storing rounds once."""
    model = read("bert_PreTraining")
    model.save_pretrained(tmp_path, dtype=stored)
    tensors = load_file(tmp_path / "model.safetensors")
    assert {str(array.dtype) for array in tensors.values()} == {stored}
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == stored
    wide = keras_bert.BertPretrainer.from_pretrained(tmp_path)
    for old, new in zip(model.weights, wide.weights, strict=True):
        if "seed" not in old.path:
            assert str(new.dtype) == "float32"
            np.testing.assert_array_equal(new, old.numpy().astype(tensors[next(iter(tensors))].dtype))
    narrow = keras_bert.BertPretrainer.from_pretrained(tmp_path, dtype=stored)
    assert str(narrow.encoder.blocks[0].output_dense.kernel.dtype) == stored


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model_type": "roberta"},
            "position_offset = 1, found|position_offset = 1. Received: position_offset = 0",
        ),
        ({"embedding_size": 5}, "must have embedding_size = None. Received: embedding_size = 5"),
        ({"model_type": "distilbert"}, "type_vocab_size = 0"),
        ({"model_type": "electra"}, "must have no pooler"),
    ],
)
def test_what_a_family_cannot_be_is_not_written(toy_config, change, message, tmp_path):
    config = dataclasses.replace(toy_config, num_hidden_groups=None, **change)
    with pytest.raises(ValueError, match=message):
        keras_bert.BertEncoder(config).save_pretrained(tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_vocabulary_that_does_not_fit_is_refused(tmp_path):
    folder = copy("bert_Model", tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(40))]
    keras_bert.WordPieceTokenizer(words).save_pretrained(folder)
    with pytest.raises(ValueError, match="45 entries, 37 rows"):
        keras_bert.BertEncoder.from_pretrained(folder)
    keras_bert.WordPieceTokenizer(words[:30]).save_pretrained(folder)  # the table is padded
    assert keras_bert.BertEncoder.from_pretrained(folder).tokenizer.vocabulary_size == 30
    assert keras_bert.BertEncoder.from_pretrained(folder, tokenizer=None).tokenizer is None


def test_a_keras_file_keeps_a_head(tmp_path):
    for folder in ("roberta_SequenceClassification", "electra_PreTraining", "albert_MultipleChoice"):
        model = read(folder)
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        x, _ = inputs_of(load_file(FIXTURES / folder / "answers.safetensors"))
        np.testing.assert_array_equal(again(x), model(x))
        assert getattr(again, "label_names", 0) == getattr(model, "label_names", 0)


def test_a_head_counts_whatever_class_the_config_names(tmp_path):
    """BERT's own releases say BertForMaskedLM, and hold the sentence head as well."""
    for name in ("BertForMaskedLM", "BertModel", "SomethingElse"):
        (tmp_path / name).mkdir()
        folder = copy("bert_PreTraining", tmp_path / name, architectures=[name])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = keras_bert.BertPretrainer.from_pretrained(folder)
        for output, expected in answers_of(read("bert_PreTraining")).items():
            np.testing.assert_array_equal(answers_of(model)[output], expected)


def test_a_new_head_has_a_problem_of_its_own():
    folder = FIXTURES / "roberta_SequenceClassification"  # several labels
    options = {"new_head": True, "num_labels": 1}
    assert keras_bert.BertClassifier.from_pretrained(folder, **options).problem_type == "regression"
    options = {"new_head": True, "num_labels": 3}
    assert keras_bert.BertClassifier.from_pretrained(folder, **options).problem_type == "single_label"
    renamed = keras_bert.BertClassifier.from_pretrained(folder, label_names=["a", "b", "c"])
    assert renamed.problem_type == "multi_label"
    with pytest.raises(ValueError, match="nothing to choose from"):
        keras_bert.BertClassifier.from_pretrained(
            folder, new_head=True, num_labels=1, problem_type="single_label"
        )


def test_saving_over_a_checkpoint_leaves_nothing_of_it(tmp_path):
    folder = copy("bert_Model", tmp_path)
    places = shard(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(32))]
    old = ("tokenizer.json", "special_tokens_map.json", "added_tokens.json")
    model = keras_bert.BertEncoder.from_pretrained(folder)
    for name in old:
        (folder / name).write_text("{}")
    model.tokenizer = keras_bert.WordPieceTokenizer(words)
    model.save_pretrained(folder)
    names = {path.name for path in folder.iterdir()}
    assert not names & {*old, *places.values(), "model.safetensors.index.json"}
    assert keras_bert.BertEncoder.from_pretrained(folder).tokenizer.vocabulary_size == 37


def test_a_part_of_sentence_transformers_is_not_saved_beside(tmp_path):
    copy("bert_Model", tmp_path)
    modules = [{"idx": 0, "name": "0", "path": "bert_Model", "type": "x.models.Transformer"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    model = keras_bert.BertEncoder.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="save into .*bert_Model"):
        model.save_pretrained(tmp_path)
    modules[0]["type"] = "x.Pooling"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="one module of type Transformer"):
        keras_bert.BertEncoder.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": 10**12}, "1 misshapen: embeddings.word_embeddings.weight"),
        ({"num_hidden_layers": 10**9}, "1000000000 blocks, 39 tensors"),
        ({"intermediate_size": 10**9}, "misshapen: encoder.layer.0.intermediate.dense.weight"),
        ({"max_position_embeddings": 10**9}, "misshapen: embeddings.position_embeddings"),
        ({"model_type": ["bert"]}, "form that its library gives"),
        ({"id2label": 7}, "form that its library gives"),
    ],
)
def test_hostile_configs_are_refused_before_anything_is_built(settings, message, tmp_path):
    folder = copy("bert_TokenClassification", tmp_path, **settings)
    with pytest.raises(ValueError, match=message):
        keras_bert.BertTokenClassifier.from_pretrained(folder)


def test_keys_that_say_nothing_are_passed_over(tmp_path):
    folder = copy("bert_Model", tmp_path)
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"position_embedding_type": None, "is_decoder": None, "pruned_heads": []}
    settings |= {"hidden_act": "gelu_python", "directionality": "bidi", "pooler_fc_size": 768}
    (folder / "config.json").write_text(json.dumps(settings))
    model = keras_bert.BertEncoder.from_pretrained(folder)
    assert model.config.hidden_act == "gelu"
    model.save_pretrained(tmp_path / "back")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["directionality"] == "bidi"
    with pytest.raises(ValueError, match="`dtype` must be one of float64.*'int8'"):
        model.save_pretrained(tmp_path / "int8", dtype="int8")


@pytest.mark.long
def test_the_way_out_of_pickles_works(tmp_path):
    """Where TensorFlow and Keras 3 are installed, too."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "it's old"
    model = transformers.BertModel.from_pretrained(FIXTURES / "bert_Model")
    model.save_pretrained(folder, safe_serialization=False)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(32))]
    keras_bert.WordPieceTokenizer(words).save_pretrained(folder)
    with pytest.raises(ValueError, match="pytorch_model.bin") as error:
        keras_bert.BertEncoder.from_pretrained(folder)
    (command,) = re.findall(r"python (-c .*) Received", str(error.value))
    run = [sys.executable, *shlex.split(command)]
    subprocess.run(run, check=True, cwd=tmp_path, capture_output=True)
    read_back = keras_bert.BertEncoder.from_pretrained(tmp_path / "converted")
    np.testing.assert_array_equal(read_back.pooler.kernel, read("bert_Model").pooler.kernel)


@pytest.mark.long
@pytest.mark.parametrize("folder", FOLDERS)
def test_transformers_loads_what_is_written(folder, tmp_path):
    """Its own Auto classes, with every weight in place; needs `pip install 'transformers<5' torch`."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    read(folder).save_pretrained(tmp_path)
    head = json.loads((tmp_path / "config.json").read_text())["architectures"][0]
    auto = next(
        f"AutoModel{'' if suffix == 'Model' else 'For' + suffix}"
        for suffix in sorted(CLASSES, key=len, reverse=True)
        if head.endswith(suffix)
    )
    model, info = getattr(transformers, auto).from_pretrained(tmp_path, output_loading_info=True)
    assert type(model).__name__ == head
    assert not any(info.values()), info
    answers = {
        name: torch.tensor(value)
        for name, value in load_file(FIXTURES / folder / "answers.safetensors").items()
    }
    inputs = {name: answers.pop(name) for name in list(answers) if answers[name].dtype == torch.int64}
    with torch.no_grad():
        outputs = model.double().eval()(**inputs)
    for name, expected in answers.items():
        torch.testing.assert_close(outputs[name], expected, atol=1e-9, rtol=0)
