"""Checkpoints of Model Garden: that library's own numbers, its ways to save, and refusals."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_checkpoints import differences, inputs_of, rewrite

import keras_bert
from keras_bert.checkpoints.formats import open_checkpoint

FIXTURES = Path(__file__).parent / "fixtures" / "model_garden"
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
CLASSES = {
    "bert_encoder": keras_bert.BertEncoder,
    "bert_pretraining": keras_bert.BertPretrainer,
    "bert_v2_pretraining": keras_bert.BertPretrainer,
    "albert_masked_lm": keras_bert.BertMaskedLM,
    "bert_classifier": keras_bert.BertClassifier,
    "bert_v2_classifier": keras_bert.BertClassifier,
    "bert_v2_tokens": keras_bert.BertTokenClassifier,
    "bert_spans": keras_bert.BertQuestionAnswering,
}
HEADS = {
    "bert_encoder": "encoder",
    "bert_pretraining": "pretraining",
    "bert_v2_pretraining": "pretraining",
    "albert_masked_lm": "masked_lm",
    "bert_classifier": "sequence_classification",
    "bert_v2_classifier": "sequence_classification",
    "bert_v2_tokens": "token_classification",
    "bert_spans": "question_answering",
}
RELU = ("bert_classifier", "bert_v2_classifier")


def read(folder, model_class=None, **options):
    """A fixture as a model; a warning is a failure: nothing in it is new or left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return (model_class or CLASSES[folder.name]).from_pretrained(folder, **options)


def answers_of(folder):
    return dict(np.load(FIXTURES / folder / "answers.npz"))


def copy(folder, path):
    """A directory that a test may damage."""
    shutil.copytree(FIXTURES / folder, path, dirs_exist_ok=True)
    return path


def stored_names(folder):
    (index,) = (FIXTURES / folder).glob("*.index")
    return {name for name, _ in tf.train.list_variables(str(index.with_suffix("")))}


@pytest.mark.parametrize("folder", CLASSES)
def test_outputs_are_the_librarys(folder):
    answers = answers_of(folder)
    heads = differences(read(FIXTURES / folder), answers)
    states = differences(read(FIXTURES / folder, keras_bert.BertEncoder), answers)
    assert set(heads | states) == set(answers) - {"token_ids", "padding_mask", "segment_ids"}
    assert max((heads | states).values()) < 1e-5, heads | states


@pytest.mark.parametrize("folder", CLASSES)
def test_config_and_head_are_read(folder):
    checkpoint = open_checkpoint(FIXTURES / folder)
    assert checkpoint.kind == "Model Garden"
    assert checkpoint.head == HEADS[folder]
    assert checkpoint.config.hidden_act == ("relu" if folder in RELU else "gelu_new")
    assert checkpoint.config.model_type == folder.split("_")[0]
    assert checkpoint.config.layer_norm_eps == 1e-12
    assert checkpoint.has_pooler()


def test_the_exact_gelu_has_other_numbers(tmp_path):
    """So that 1e-5 above tells the two forms apart."""
    read(FIXTURES / "bert_v2_pretraining").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["hidden_act"] == "gelu_new"
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu"}))
    exact = read(tmp_path, keras_bert.BertPretrainer)
    assert max(differences(exact, answers_of("bert_v2_pretraining")).values()) > 1e-5


@pytest.mark.parametrize(
    ("folder", "skipped"),
    [
        ("bert_encoder", ("save_counter",)),
        ("bert_classifier", ("save_counter", "global_step", "optimizer/_variables/", "optimizer/")),
        ("bert_v2_pretraining", ("save_counter", "global_step", "optimizer/", ".OPTIMIZER_SLOT/")),
    ],
)
def test_what_is_of_the_optimizer_is_skipped(folder, skipped):
    names, tensors = stored_names(folder), open_checkpoint(FIXTURES / folder).tensors
    for part in skipped:
        assert any(part in name for name in names)
        assert not any(part in name for name in tensors)
    kept = [name for name in names if not any(part in name for part in (*skipped, "_CHECKPOINTABLE"))]
    assert len(kept) == len(tensors)


def test_what_fit_counts_is_skipped(tmp_path):
    def change(arrays):
        arrays[f"model/keras_api/metrics/0/total{VALUE}"] = np.float32(1)

    rewrite(copy("bert_encoder", tmp_path), change)
    read(tmp_path, keras_bert.BertEncoder)


@pytest.mark.parametrize("folder", CLASSES)
def test_saved_for_transformers_it_is_the_same_model(folder, tmp_path):
    model = read(FIXTURES / folder)
    model.save_pretrained(tmp_path)
    again = read(tmp_path, type(model))
    x = inputs_of(model, answers_of(folder))
    tf.nest.map_structure(np.testing.assert_array_equal, model(x), again(x))


@pytest.mark.parametrize("folder", ["bert_pretraining", "bert_v2_pretraining", "bert_v2_classifier"])
def test_the_pooler_of_a_head_is_taken_where_there_is_one(folder):
    model = read(FIXTURES / folder)
    assert "encoder/_pooler_layer/kernel" in model.load_report.unused
    rows = {ours: theirs for theirs, _, ours in model.load_report.rows}
    assert rows["encoder/pooler/kernel"] == "pooler_dense/kernel"


def test_a_head_that_is_not_there_is_new():
    with pytest.warns(UserWarning, match="holds no token classifier for this model"):
        keras_bert.BertTokenClassifier.from_pretrained(FIXTURES / "bert_encoder", num_labels=4)
    with pytest.warns(UserWarning, match="holds no masked lm and no sentence"):
        keras_bert.BertPretrainer.from_pretrained(FIXTURES / "bert_spans")


def test_labels_are_counted():
    assert read(FIXTURES / "bert_v2_tokens").num_labels == 3
    assert read(FIXTURES / "bert_classifier").num_labels == 3


def rename(names):
    """A change of a checkpoint's tensors that renames parts of their paths."""

    def change(arrays):
        for name in sorted(arrays):
            new = name
            for old, part in names.items():
                new = new.replace(old, part)
            arrays[new] = arrays.pop(name)

    return change


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        # an encoder saved as `encoder`, and one saved by save_weights
        ("bert_encoder", {"model/": "encoder/"}),
        ("bert_encoder", {"model/": ""}),
        # the model alone, without the library's checkpoint_items
        (
            "bert_v2_pretraining",
            {
                "next_sentence..pooler_dense/": "model/classification_heads/0/dense/",
                "encoder/": "model/encoder_network/",
                "masked_lm/": "model/masked_lm/",
            },
        ),
        (
            "bert_v2_classifier",
            {
                "sentence_prediction..pooler_dense/": "model/layer_with_weights-1/dense/",
                "encoder/": "model/layer_with_weights-0/",
            },
        ),
        # blocks of before 2021, which bert/v3/uncased_L-12_H-768_A-12 has
        ("bert_pretraining", {"/_attention_layer/_output_dense/": "/_attention_output_dense/"}),
    ],
)
def test_other_places_of_the_same_objects(folder, names, tmp_path):
    rewrite(copy(folder, tmp_path), rename(names))
    model = read(tmp_path, CLASSES[folder])
    assert max(differences(model, answers_of(folder)).values()) < 1e-5


def test_an_encoder_that_has_no_pooler_of_its_own(tmp_path):
    def change(arrays):
        for name in [name for name in arrays if "_pooler_layer" in name and "OPTIMIZER" not in name]:
            del arrays[name]

    rewrite(copy("bert_v2_pretraining", tmp_path), change)
    model = read(tmp_path, keras_bert.BertPretrainer)
    assert max(differences(model, answers_of("bert_v2_pretraining")).values()) < 1e-5


def test_tensors_that_do_not_fit_are_listed(tmp_path):
    query = f"encoder/layer_with_weights-4/_attention_layer/_query_dense/kernel{VALUE}"

    def change(arrays):
        del arrays[f"encoder/layer_with_weights-5/_output_dense/bias{VALUE}"]
        arrays[query] = arrays[query].reshape(12, 12)
        arrays[f"model/adapter/kernel{VALUE}"] = np.zeros(12, "float32")
        arrays[f"encoder/layer_with_weights-7/kernel{VALUE}"] = np.zeros(3, "float32")

    rewrite(copy("bert_pretraining", tmp_path), change)
    with pytest.raises(ValueError, match="must be those of a bert") as error:
        keras_bert.BertPretrainer.from_pretrained(tmp_path)
    place = "encoder/_transformer_layers"
    for part in (
        f"1 missing: {place}/1/_output_dense/bias (12,)",
        f"1 misshapen: {place}/0/_attention_layer/_query_dense/kernel (12, 12) where (12, 3, 4)",
        "2 unknown: adapter/kernel (12,), encoder/layer_with_weights-7/kernel (3,)",
    ):
        assert part in str(error.value)


def test_two_poolers_of_heads_are_refused(tmp_path):
    def change(arrays):
        for part in ("kernel", "bias"):
            head = f"next_sentence..pooler_dense/{part}{VALUE}"
            arrays[head.replace("next_sentence", "other")] = arrays[head]

    rewrite(copy("bert_pretraining", tmp_path), change)
    with pytest.raises(ValueError, match="hold each weight once. Received: pooler_dense/"):
        open_checkpoint(tmp_path)


def test_a_table_of_its_own_in_the_masked_lm_is_refused(tmp_path):
    word_table = f"encoder/layer_with_weights-0/embeddings{VALUE}"

    def change(arrays):
        arrays[word_table] = arrays[f"masked_lm/embedding_table{VALUE}"] + 1

    rewrite(copy("bert_pretraining", tmp_path), change)
    with pytest.raises(ValueError, match="masked_lm/embedding_table must be a copy of encoder/"):
        keras_bert.BertPretrainer.from_pretrained(tmp_path)


def test_other_models_of_the_library_are_refused(tmp_path):
    rewrite(copy("bert_encoder", tmp_path), rename({"layer_with_weights-1/": "word_embedding/"}))
    with pytest.raises(ValueError, match=r"position table of one BertEncoder, .* Received: \[\] in"):
        open_checkpoint(tmp_path)


def test_truncated_files_are_refused(tmp_path):
    (data,) = copy("bert_encoder", tmp_path).glob("*.data-*")
    content = data.read_bytes()
    data.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"must hold the \d+ bytes or more .* Received: 10828 bytes"):
        open_checkpoint(tmp_path)
    data.write_bytes(content)
    (index,) = tmp_path.glob("*.index")
    index.write_bytes(index.read_bytes()[:-50])
    with pytest.raises(ValueError, match="The index must be a whole one"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("norm_first: false", "norm_first: true", "`norm_first` must be False. Received: True"),
        ("output_range: null", "output_range: 1", "`output_range` must be None. Received: 1"),
        (
            "mlm_activation: gelu",
            "mlm_activation: null",
            "`mlm_activation` must be that of the encoder",
        ),
        ("type: bert", "type: mobilebert", "must be bert or albert. Received: 'mobilebert'"),
        ("num_layers: 2", "num_blocks: 2", "must only hold keys out of .* Received: 'num_blocks'"),
        ("activation: tanh", "activation: relu", "`activation` of a head must be 'tanh'"),
        ("cls_token_idx: 0", "cls_token_idx: 1", "`cls_token_idx` of a head must be 0"),
        ("    encoder:", "    tower:", "must be YAML with `task.model.encoder`"),
        ("runtime:", "runtime: !!python/tuple", "must be YAML"),
    ],
)
def test_what_would_change_the_numbers_is_refused(old, new, message, tmp_path):
    path = copy("bert_v2_pretraining", tmp_path) / "params.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=message):
        open_checkpoint(tmp_path)
