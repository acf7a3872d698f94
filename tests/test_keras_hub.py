"""Presets of keras-hub: the library's own numbers for every backbone and head, and back."""

import json
import shutil
import warnings
from pathlib import Path

import h5py
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

import keras_bert

FIXTURES = Path(__file__).parent / "fixtures" / "keras_hub"
FOLDERS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
INPUTS = ("token_ids", "padding_mask", "segment_ids", "mask_positions")
CONFIG = keras_bert.EncoderConfig(
    vocab_size=31,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=9,
    type_vocab_size=3,
    hidden_act="gelu_new",
)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "quick", "##er", "fox"]


def read_head(path):
    """The head of a preset as a model; a warning is a failure: nothing in it is new."""
    name = json.loads((path / "task.json").read_text())["class_name"]
    is_classifier = name.endswith("Classifier")
    head = keras_bert.BertClassifier if is_classifier else keras_bert.BertMaskedLM
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return head.from_pretrained(path)


def logits_of(model, inputs):
    found = model(inputs)
    return np.asarray(found["masked_lm"] if isinstance(found, dict) else found)


def answers_of(folder):
    answers = load_file(FIXTURES / folder / "answers.safetensors")
    inputs = {name: answers.pop(name) for name in INPUTS if name in answers}
    positions = inputs.pop("mask_positions", None)
    with_positions = inputs if positions is None else {**inputs, "mask_positions": positions}
    return inputs, with_positions, answers


def random_encoder(config=CONFIG, **options):
    encoder = keras_bert.BertEncoder(config, **options)
    random = np.random.default_rng(0)
    for weight in encoder.trainable_weights:  # all but dropout's state
        weight.assign(random.normal(scale=0.3, size=weight.shape))
    return encoder


def copy(folder, to, task=None, **settings):
    """A copy of a fixture whose backbone or task has other settings."""
    path = to / "copy"
    shutil.copytree(FIXTURES / folder, path)
    file = path / ("task.json" if task else "config.json")
    content = json.loads(file.read_text())
    content["config"] |= settings
    content["registered_name"] = f"keras_hub>{task or content['class_name']}"
    file.write_text(json.dumps(content))
    return path


def assert_equal_weights(one, two):
    for before, after in zip(one.trainable_weights, two.trainable_weights, strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(np.asarray(before), np.asarray(after))


@pytest.mark.parametrize("folder", FOLDERS)
def test_outputs_are_the_librarys(folder):
    inputs, with_positions, answers = answers_of(folder)
    encoder = keras_bert.BertEncoder.from_pretrained(FIXTURES / folder)
    found = {name: np.asarray(value) for name, value in encoder(inputs).items()}
    is_token = inputs["padding_mask"].astype(bool)
    sequence = answers.pop("sequence_output")
    np.testing.assert_allclose(found["sequence_output"][is_token], sequence[is_token], atol=1e-5)
    if folder == "ElectraBackbone":
        answers.pop("pooled_output")
        assert encoder.pooler is None
        assert encoder.load_report.unused == ["layers/dense_1/vars/0", "layers/dense_1/vars/1"]
    if "pooled_output" in answers:
        np.testing.assert_allclose(found["pooled_output"], answers.pop("pooled_output"), atol=1e-5)
    if "logits" in answers:
        logits = logits_of(read_head(FIXTURES / folder), with_positions)
        np.testing.assert_allclose(logits, answers.pop("logits"), atol=1e-5)
    assert not answers


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_was_read_is_written_for_transformers(folder, tmp_path):
    inputs, with_positions, answers = answers_of(folder)
    encoder = keras_bert.BertEncoder.from_pretrained(FIXTURES / folder)
    encoder.save_pretrained(tmp_path / "encoder")
    again = keras_bert.BertEncoder.from_pretrained(tmp_path / "encoder")
    assert again.config == encoder.config
    np.testing.assert_array_equal(again(inputs)["sequence_output"], encoder(inputs)["sequence_output"])
    if "logits" in answers:
        model = read_head(FIXTURES / folder)
        model.save_pretrained(tmp_path / "head")
        again = type(model).from_pretrained(tmp_path / "head")
        logits = logits_of(again, with_positions)
        np.testing.assert_array_equal(logits, logits_of(model, with_positions))


def test_a_tables_unused_rows_are_zeros():
    """RoBERTa's first two positions and its segment, as its authors' checkpoints have them."""
    encoder = keras_bert.BertEncoder.from_pretrained(FIXTURES / "RobertaMaskedLM")
    assert (encoder.config.position_offset, encoder.config.max_length) == (2, 19)
    weights = {weight.path: np.asarray(weight) for weight in encoder.weights}
    assert not weights["encoder/embeddings/position_table"][:2].any()
    assert weights["encoder/embeddings/position_table"][2:].any(axis=1).all()
    assert not weights["encoder/embeddings/segment_table"].any()


def test_the_tokenizer_and_labels_come_along():
    model = read_head(FIXTURES / "BertTextClassifier")
    assert list(model.tokenizer.vocabulary) == WORDS
    assert model.tokenizer.lowercase
    assert model.label_names == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert model.classifier_dropout == 0.1
    assert model.config.hidden_dropout_prob == model.config.attention_probs_dropout_prob == 0.1


def test_a_backbone_alone_has_a_new_head():
    with pytest.warns(UserWarning, match="holds no pooler and no classifier"):
        keras_bert.BertClassifier.from_pretrained(FIXTURES / "RobertaMaskedLM", num_labels=2)


def test_shards_are_one_checkpoint(tmp_path):
    backbone = keras_hub.models.BertBackbone.from_preset(str(FIXTURES / "BertTextClassifier"))
    backbone.save_to_preset(tmp_path, max_shard_size=1e-5)
    assert len(list(tmp_path.glob("*.h5"))) > 1
    assert_equal_weights(
        keras_bert.BertEncoder.from_pretrained(tmp_path),
        keras_bert.BertEncoder.from_pretrained(FIXTURES / "BertTextClassifier"),
    )
    next(tmp_path.glob("*.h5")).unlink()
    with pytest.raises(ValueError, match="file of weights must exist"):
        keras_bert.BertEncoder.from_pretrained(tmp_path)


def test_a_remote_preset_is_read():
    remote = "ram://keras_hub/preset"
    tf.io.gfile.makedirs(remote)
    for name in ("config.json", "model.weights.h5"):
        tf.io.gfile.copy(str(FIXTURES / "ElectraBackbone" / name), f"{remote}/{name}", overwrite=True)
    assert_equal_weights(
        keras_bert.BertEncoder.from_pretrained(remote),
        keras_bert.BertEncoder.from_pretrained(FIXTURES / "ElectraBackbone"),
    )


def test_older_names_are_known(tmp_path):
    """Keras 3.0 stored attention's layers by private names, and the states of dropout."""
    path = copy("BertTextClassifier", tmp_path)
    with h5py.File(path / "model.weights.h5", "r+") as file:
        for index in ("", "_1"):
            attention = file[f"layers/transformer_encoder{index}/_self_attention_layer"]
            for part in ("query", "key", "value", "output"):
                attention.move(f"{part}_dense", f"_{part}_dense")
        file["layers/dropout/seed_generator/vars/0"] = np.zeros(2, "uint32")
    expected = keras_hub.models.BertBackbone.from_preset(str(FIXTURES / "BertTextClassifier"))
    old = keras_hub.models.BertBackbone.from_preset(str(path))  # so they are names of the library
    for one, two in zip(old.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(one, two)
    assert_equal_weights(
        keras_bert.BertEncoder.from_pretrained(path),
        keras_bert.BertEncoder.from_pretrained(FIXTURES / "BertTextClassifier"),
    )


def test_the_library_reads_what_is_written(tmp_path):
    encoder = random_encoder()
    encoder.save_keras_hub(tmp_path / "preset")
    backbone = keras_hub.models.BertBackbone.from_preset(str(tmp_path / "preset"))
    random = np.random.default_rng(0)
    mask = (np.arange(9) < np.array([[9], [5], [1]])).astype("int32")
    inputs = {
        "token_ids": random.integers(0, 31, (3, 9)).astype("int32"),
        "padding_mask": mask,
        "segment_ids": random.integers(0, 3, (3, 9)).astype("int32"),
    }
    ours, theirs = encoder(inputs), backbone(inputs)
    is_token = mask.astype(bool)
    for name, rows in (("sequence_output", is_token), ("pooled_output", slice(None))):
        np.testing.assert_allclose(
            np.asarray(ours[name])[rows], np.asarray(theirs[name])[rows], atol=1e-5
        )
    assert [path.name for path in tmp_path.iterdir()] == ["preset"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_round_trip_is_bitwise(dtype, tmp_path):
    encoder = random_encoder(dtype=dtype)
    encoder.save_keras_hub(tmp_path / "preset")
    again = keras_bert.BertEncoder.from_pretrained(tmp_path / "preset", dtype=dtype)
    assert again.config == encoder.config
    assert_equal_weights(encoder, again)
    with h5py.File(tmp_path / "preset" / "model.weights.h5") as file:
        assert file["layers/dense/vars/0"].dtype.itemsize == {"float32": 4, "bfloat16": 2}[dtype]


def test_a_presets_weights_are_written_as_they_were(tmp_path):
    before = keras_hub.models.BertBackbone.from_preset(str(FIXTURES / "BertTextClassifier"))
    keras_bert.BertEncoder.from_pretrained(FIXTURES / "BertTextClassifier").save_keras_hub(
        tmp_path / "preset"
    )
    after = keras_hub.models.BertBackbone.from_preset(str(tmp_path / "preset"))
    assert {**before.get_config(), "name": ""} == {**after.get_config(), "name": ""}
    for one, two in zip(before.weights, after.weights, strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_library_reads_the_tokenizer(tmp_path):
    encoder = random_encoder(tokenizer=keras_bert.WordPieceTokenizer(WORDS, lowercase=True))
    encoder.save_keras_hub(tmp_path / "preset")
    tokenizer = keras_hub.models.BertTokenizer.from_preset(str(tmp_path / "preset"))
    assert list(np.asarray(tokenizer("A QUICKER fox"))) == [5, 6, 7, 8]
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor.from_preset(
        str(tmp_path / "preset"), sequence_length=7
    )
    assert list(np.asarray(preprocessor("Quicker")["token_ids"])) == [2, 6, 7, 3, 0, 0, 0]
    again = keras_bert.BertEncoder.from_pretrained(tmp_path / "preset")
    assert list(again.tokenizer.vocabulary) == WORDS
    assert again.tokenizer.lowercase


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu_new'. Received: hidden_act = 'gelu'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps = 1e-12. Received: layer_norm_eps = 1e-05"),
        ({"use_pooler": False}, "use_pooler = True. Received: use_pooler = False"),
        ({"attention_probs_dropout_prob": 0.0}, "attention_probs_dropout_prob = 0.1"),
        ({"num_hidden_groups": 1}, "num_hidden_groups = None. Received: num_hidden_groups = 1"),
        ({"embedding_size": 5}, "embedding_size = None. Received: embedding_size = 5"),
        ({"position_offset": 2}, "position_offset = 0. Received: position_offset = 2"),
        ({"model_type": "electra"}, "model_type = 'bert'. Received: model_type = 'electra'"),
    ],
)
def test_what_the_library_cannot_express_is_refused(fields, message, tmp_path):
    config = keras_bert.EncoderConfig(**{**CONFIG.to_dict(), **fields})
    with pytest.raises(ValueError, match="keras-hub's BertBackbone must have .*" + message):
        keras_bert.BertEncoder(config).save_keras_hub(tmp_path / "preset")
    assert not list(tmp_path.iterdir())


def test_only_an_encoder_is_written(tmp_path):
    model = keras_bert.BertClassifier(CONFIG, num_labels=2)
    with pytest.raises(ValueError, match=r"none for \['classifier/bias', 'classifier/kernel'\]"):
        model.save_keras_hub(tmp_path / "preset")
    assert not list(tmp_path.iterdir())


def test_no_half_preset_is_written(tmp_path, monkeypatch):
    def fail(self, path):
        raise OSError("no space left")

    monkeypatch.setattr(keras_hub.models.BertTokenizer, "save_to_preset", fail)
    encoder = random_encoder(tokenizer=keras_bert.WordPieceTokenizer(WORDS))
    with pytest.raises(OSError, match="no space left"):
        encoder.save_keras_hub(tmp_path / "preset")
    assert not list(tmp_path.iterdir())
    (tmp_path / "preset").mkdir()
    (tmp_path / "preset" / "task.json").write_text("{}")
    with pytest.raises(ValueError, match="`directory` must be new or empty"):
        encoder.save_keras_hub(tmp_path / "preset")
    assert [path.name for path in tmp_path.rglob("*")] == ["preset", "task.json"]


@pytest.mark.parametrize(
    ("folder", "settings", "message"),
    [
        ("BertTextClassifier", {"rotary": True}, "BertBackbone must have the keys .*rotary"),
        ("BertTextClassifier", {"num_heads": 5}, "`num_attention_heads` must divide"),
        ("RobertaMaskedLM", {"max_sequence_length": None}, "must describe an encoder"),
        ("AlbertTextClassifier", {"num_inner_repetitions": 2}, "`num_inner_repetitions` must be 1"),
        ("AlbertTextClassifier", {"embedding_dim": 12}, "`embedding_dim` must not be `hidden_dim`"),
        ("BertTextClassifier", {"vocabulary_size": 38}, r"\(37, 12\) where \(38, 12\) must be"),
    ],
)
def test_other_architectures_are_refused(folder, settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        keras_bert.BertEncoder.from_pretrained(copy(folder, tmp_path, **settings))


def test_another_backbone_is_refused_by_name(tmp_path):
    path = copy("BertTextClassifier", tmp_path)
    content = (path / "config.json").read_text().replace("BertBackbone", "GemmaBackbone")
    (path / "config.json").write_text(content)
    with pytest.raises(ValueError, match="must be one of BertBackbone.*Received: 'GemmaBackbone'"):
        keras_bert.BertEncoder.from_pretrained(path)


@pytest.mark.parametrize(
    ("folder", "task", "settings", "message"),
    [
        ("BertTextClassifier", "BertMaskedLM", {}, "BertMaskedLM .* has 'gelu' and .* 1e-05"),
        ("AlbertTextClassifier", "AlbertMaskedLM", {}, "AlbertMaskedLM .* has 'gelu_new' and"),
        ("DistilBertTextClassifier", "DistilBertMaskedLM", {}, "DistilBertMaskedLM .* has 'gelu'"),
        ("BertTextClassifier", "BertTextClassifier", {"activation": "softmax"}, ".* 'softmax'"),
        ("RobertaTextClassifier", "RobertaTextClassifier", {"hidden_dim": 7}, ".*`hidden_dim` = 7"),
    ],
)
def test_other_heads_are_refused(folder, task, settings, message, tmp_path):
    path = copy(folder, tmp_path, task, **settings)
    is_masked_lm = task.endswith("MaskedLM")
    head = keras_bert.BertMaskedLM if is_masked_lm else keras_bert.BertClassifier
    options = {} if is_masked_lm else {"num_labels": 2}
    with pytest.raises(ValueError, match=f"must compute what ours does.*Received: the {message}"):
        head.from_pretrained(path, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the pooler, where it was the head's
        assert head.from_pretrained(path, new_head=True, **options).load_report.new
    keras_bert.BertEncoder.from_pretrained(path)


def test_a_head_of_another_width_makes_room_for_a_new_one(tmp_path):
    backbone = keras_hub.models.RobertaBackbone.from_preset(str(FIXTURES / "RobertaMaskedLM"))
    task = keras_hub.models.RobertaTextClassifier(backbone, 3, None, hidden_dim=7)
    task.save_to_preset(tmp_path)
    with pytest.raises(ValueError, match="RobertaTextClassifier .* has `hidden_dim` = 7"):
        keras_bert.BertClassifier.from_pretrained(tmp_path, num_labels=3)
    with pytest.warns(UserWarning, match="holds no pooler for"):
        model = keras_bert.BertClassifier.from_pretrained(tmp_path, num_labels=3, new_head=True)
    assert "refused/layers/dense/vars/0" in model.load_report.unused


def test_an_unknown_task_is_refused_by_name(tmp_path):
    path = copy("BertTextClassifier", tmp_path, "BertTagger")
    with pytest.raises(ValueError, match="Received: .*task.json with a task BertTagger"):
        keras_bert.BertTokenClassifier.from_pretrained(path, num_labels=2)
    keras_bert.BertEncoder.from_pretrained(path)


def test_an_older_name_of_a_task_is_known(tmp_path):
    path = copy("BertTextClassifier", tmp_path, "BertClassifier")
    assert read_head(path).num_labels == 3


@pytest.mark.parametrize("family", ["Bert", "Albert", "DistilBert"])
def test_refused_heads_are_others_in_the_library(family):
    backbone = getattr(keras_hub.models, f"{family}Backbone").from_preset(
        str(FIXTURES / f"{family}TextClassifier")
    )
    head = getattr(keras_hub.models, f"{family}MaskedLM")(backbone, None).masked_lm_head
    assert head.layer_norm_epsilon == 1e-5
    assert backbone.embeddings_layer_norm.epsilon == 1e-12


@pytest.mark.parametrize("size", [0, 2000, -1])
def test_a_truncated_file_is_refused(size, tmp_path):
    path = copy("BertTextClassifier", tmp_path)
    content = (path / "model.weights.h5").read_bytes()
    (path / "model.weights.h5").write_bytes(content[:size])
    with pytest.raises(ValueError, match=r"must be a whole HDF5 file. Received: .*model.weights.h5"):
        keras_bert.BertEncoder.from_pretrained(path)


def test_missing_and_unknown_tensors_are_listed(tmp_path):
    path = copy("BertTextClassifier", tmp_path)
    with h5py.File(path / "model.weights.h5", "r+") as file:
        file.move("layers/embedding/vars/0", "layers/embedding/vars/1")
    with pytest.raises(
        ValueError, match=r"1 missing: layers/embedding/vars/0 .*1 unknown: layers/embedding/vars/1"
    ):
        keras_bert.BertEncoder.from_pretrained(path)


def test_a_tensor_in_another_file_is_refused(tmp_path):
    path = copy("BertTextClassifier", tmp_path)
    (tmp_path / "secret").write_bytes(bytes(48))
    with h5py.File(path / "model.weights.h5", "r+") as file:
        del file["layers/dense/vars/1"]
        outside = [(str(tmp_path / "secret"), 0, 48)]
        file.create_dataset("layers/dense/vars/1", (12,), "float32", external=outside)
    with pytest.raises(ValueError, match="must lie in its own file. Received: layers/dense/vars/1"):
        keras_bert.BertEncoder.from_pretrained(path)
