"""Checkpoints of google-research/bert and /albert: those libraries' own numbers, and refusals."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from tensorflow_checkpoints import differences, inputs_of, rewrite

import keras_bert
from keras_bert.checkpoints import tf1
from keras_bert.checkpoints.formats import open_checkpoint

FIXTURES = Path(__file__).parent / "fixtures" / "tf1"
CLASSES = {
    "bert_pretraining": keras_bert.BertPretrainer,
    "bert_classifier": keras_bert.BertClassifier,
    "bert_squad": keras_bert.BertQuestionAnswering,
    "albert_pretraining": keras_bert.BertPretrainer,
    "albert_classifier": keras_bert.BertClassifier,
}
HEADS = {
    "bert_pretraining": "pretraining",
    "bert_classifier": "sequence_classification",
    "bert_squad": "question_answering",
    "albert_pretraining": "pretraining",
    "albert_classifier": "sequence_classification",
}


def read(folder, model_class=None, **options):
    """A fixture as a model; a warning is a failure: nothing in it is new or left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return (model_class or CLASSES[folder.name]).from_pretrained(folder, **options)


def copy(folder, path):
    """A directory that a test may damage."""
    shutil.copytree(FIXTURES / folder, path, dirs_exist_ok=True)
    return path


@pytest.mark.parametrize("folder", CLASSES)
def test_outputs_are_the_librarys(folder):
    answers = dict(np.load(FIXTURES / folder / "answers.npz"))
    heads = differences(read(FIXTURES / folder), answers)
    states = differences(read(FIXTURES / folder, keras_bert.BertEncoder), answers)
    assert set(heads | states) == set(answers) - {"token_ids", "padding_mask", "segment_ids"}
    assert max((heads | states).values()) < 1e-5, heads | states


@pytest.mark.parametrize("folder", CLASSES)
def test_config_and_head_are_read(folder):
    checkpoint = open_checkpoint(FIXTURES / folder)
    assert checkpoint.kind == "TF1"
    assert checkpoint.head == HEADS[folder]
    assert checkpoint.config.hidden_act == ("relu" if folder == "bert_classifier" else "gelu_new")
    assert checkpoint.config.model_type == folder.split("_")[0]
    assert checkpoint.config.layer_norm_eps == 1e-12
    assert checkpoint.has_pooler()


def test_the_exact_gelu_has_other_numbers(tmp_path):
    """So that 1e-5 above tells the two forms apart."""
    path = FIXTURES / "bert_pretraining"
    answers = dict(np.load(path / "answers.npz"))
    read(path).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["hidden_act"] == "gelu_new"
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu"}))
    exact = read(tmp_path, keras_bert.BertPretrainer)
    ours, other = (max(differences(model, answers).values()) for model in (read(path), exact))
    assert other > 1e-5
    assert other > 10 * ours


@pytest.mark.parametrize("folder", ["bert_pretraining", "albert_pretraining"])
def test_slots_of_the_optimizer_are_skipped(folder):
    (index,) = (FIXTURES / folder).glob("*.index")
    names = {name for name, _ in tf.train.list_variables(str(index.with_suffix("")))}
    skipped = names - set(open_checkpoint(FIXTURES / folder).tensors)
    assert "global_step" in skipped
    assert "bert/embeddings/word_embeddings/adam_m" in skipped
    assert all(name == "global_step" or name.endswith(("/adam_m", "/adam_v")) for name in skipped)


@pytest.mark.parametrize("folder", CLASSES)
def test_saved_for_transformers_it_is_the_same_model(folder, tmp_path):
    model = read(FIXTURES / folder)
    model.save_pretrained(tmp_path)
    again = read(tmp_path, type(model))
    x = inputs_of(model, np.load(FIXTURES / folder / "answers.npz"))
    tf.nest.map_structure(np.testing.assert_array_equal, model(x), again(x))


def test_a_head_that_is_not_there_is_new():
    with pytest.warns(UserWarning, match="holds no token classifier for this model"):
        model = keras_bert.BertTokenClassifier.from_pretrained(
            FIXTURES / "bert_pretraining", num_labels=4
        )
    assert "cls/seq_relationship/output_weights" in model.load_report.unused
    with pytest.warns(UserWarning, match="holds no masked lm and no sentence"):
        keras_bert.BertPretrainer.from_pretrained(FIXTURES / "bert_squad")


def test_a_classifier_says_what_run_classifier_has_in_its_code():
    model = read(FIXTURES / "albert_classifier")
    assert model.label_names == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert (model.problem_type, model.classifier_dropout) == ("single_label", 0.1)


def test_one_label_is_a_regression(tmp_path):
    def change(arrays):
        arrays["output_weights"] = arrays["output_weights"][:1]
        arrays["output_bias"] = arrays["output_bias"][:1]

    rewrite(copy("albert_classifier", tmp_path), change)
    assert read(tmp_path, keras_bert.BertClassifier).problem_type == "regression"


def test_tensors_that_do_not_fit_are_listed(tmp_path):
    def change(arrays):
        del arrays["bert/encoder/layer_1/output/dense/bias"]
        arrays["bert/pooler/dense/kernel"] = arrays["bert/pooler/dense/kernel"][:5]
        arrays["bert/encoder/layer_2/output/dense/bias"] = np.zeros(12, "float32")

    rewrite(copy("bert_pretraining", tmp_path), change)
    with pytest.raises(ValueError, match="must be those of a bert") as error:
        keras_bert.BertPretrainer.from_pretrained(tmp_path)
    for part in (
        r"1 missing: bert/encoder/layer_1/output/dense/bias (12,)",
        r"1 misshapen: bert/pooler/dense/kernel (5, 12) where (12, 12) must be",
        r"1 unknown: bert/encoder/layer_2/output/dense/bias (12,)",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize("size", [0, 1000, -1])
def test_a_truncated_file_of_data_is_refused_before_anything_is_read(size, tmp_path):
    (data,) = copy("bert_squad", tmp_path).glob("*.data-*")
    content = data.read_bytes()
    data.write_bytes(content[:size])
    with pytest.raises(ValueError, match=f"must hold the {len(content)} bytes or more .* Received: "):
        open_checkpoint(tmp_path)


def test_a_missing_file_of_data_is_refused(tmp_path):
    (data,) = copy("bert_squad", tmp_path).glob("*.data-*")
    data.unlink()
    with pytest.raises(ValueError, match="Received: 0 bytes"):
        open_checkpoint(tmp_path)


def test_changed_data_are_refused(tmp_path):
    (data,) = copy("bert_squad", tmp_path).glob("*.data-*")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 255
    data.write_bytes(content)
    with pytest.raises(ValueError, match="must hold every tensor as it was written. Received: bert/"):
        keras_bert.BertEncoder.from_pretrained(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no index at all", None])
def test_a_broken_index_is_refused(content, tmp_path):
    (index,) = copy("bert_squad", tmp_path).glob("*.index")
    index.write_bytes(index.read_bytes()[:700] if content is None else content)
    with pytest.raises(ValueError, match=r"The index must be a whole one .* Received: .*\.index"):
        open_checkpoint(tmp_path)


def test_of_several_checkpoints_the_latest_must_be_named(tmp_path):
    path = copy("bert_squad", tmp_path)
    for file in list(path.glob("bert_model.ckpt.*")):
        shutil.copy(file, path / file.name.replace("bert_model", "model"))
    with pytest.raises(ValueError, match=r"\['bert_model.ckpt', 'model.ckpt'\].* latest is None"):
        open_checkpoint(path)
    (path / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt"\n')
    (path / "bert_model.ckpt.index").write_bytes(b"")
    assert open_checkpoint(path).config.type_vocab_size == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inner_group_num": 2}, r"`inner_group_num` must be 1. Received: 2"),
        ({"net_structure_type": 1}, r"`net_structure_type` must be 0. Received: 1"),
        ({"gap_size": 3}, r"`gap_size` must be 0. Received: 3"),
        ({"num_memory_blocks": 1}, r"`num_memory_blocks` must be 0"),
        ({"down_scale_factor": 2}, r"`down_scale_factor` must be 1"),
        ({"directionality": "left"}, r"`directionality` must be 'bidi'"),
        (
            {"num_hidden_layers": 44, "num_hidden_groups": 22},
            r"equal runs of layers. Received: 22 groups",
        ),
        ({"rotary": True}, r"must only hold keys out of .* Received: 'rotary' = True"),
        ({"hidden_act": "mish"}, r"`hidden_act` must be one of gelu, .* Received: 'mish'"),
        ({"num_attention_heads": 5}, r"must describe an encoder: `num_attention_heads` must divide"),
    ],
)
def test_what_would_change_the_numbers_is_refused(settings, message, tmp_path):
    path = copy("albert_classifier", tmp_path) / "albert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    with pytest.raises(ValueError, match=message):
        open_checkpoint(tmp_path)


def test_keys_that_are_left_out_have_the_librarys_defaults(tmp_path):
    copy("bert_squad", tmp_path)
    (tmp_path / "bert_config.json").write_text('{"vocab_size": 37}')
    config = open_checkpoint(tmp_path).config
    assert (config.type_vocab_size, config.hidden_size, config.hidden_act) == (16, 768, "gelu_new")


def test_no_config_beside_it(tmp_path):
    (copy("bert_squad", tmp_path) / "bert_config.json").unlink()
    assert not tf1.is_here(str(tmp_path))
    with pytest.raises(ValueError, match=r"transformers .* google-research/bert, .* Model Garden"):
        open_checkpoint(tmp_path)


def test_the_vocabulary_is_read():
    tokenizer = read(FIXTURES / "bert_pretraining").tokenizer
    assert tokenizer.vocabulary_size == 37


def test_the_sentencepiece_model_of_albert_is_read(tmp_path):
    path = copy("albert_pretraining", tmp_path)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the quick brown fox jumps over the lazy dog"] * 9),
        model_prefix=str(path / "30k-clean"),
        vocab_size=33,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        pad_piece="<pad>",
        minloglevel=9,
    )
    model = read(path, keras_bert.BertPretrainer)
    assert isinstance(model.tokenizer, keras_bert.SentencePieceTokenizer)
    assert model.tokenizer.lowercase
    assert model.tokenizer.strip_accents
    assert model.tokenizer.vocabulary_size == 33
