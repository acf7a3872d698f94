"""keras_bert.serving: how weights are stored, where versions are written, what is refused."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from conftest import scramble
from served_models import TEXTS, make, tokenizer

from keras_bert import BertClassifier, BertEncoder, BertTokenClassifier, export_saved_model
from keras_bert.serving import versions
from keras_bert.serving.checking import answers_by_c_api, check, check_ops
from keras_bert.serving.stored_weights import quantized

STRINGS = "serving_default"


def as_text(value):
    return value.decode("utf-8", "ignore") if isinstance(value, bytes) else value


def probabilities(path, texts):
    served = tf.saved_model.load(path).signatures[STRINGS]
    return served(text=tf.constant(texts))["probabilities"].numpy()


@pytest.fixture(scope="module")
def wide():
    """A model large enough for its weights to be most of its files."""
    options = {"label_names": ["no", "maybe", "yes"]}
    model = make(BertClassifier, model_options=options, layers=2)
    config = {**model.config.to_dict(), "hidden_size": 128, "intermediate_size": 256}
    config = type(model.config).from_dict({**config, "initializer_range": 0.05})
    return scramble(BertClassifier(config, tokenizer=model.tokenizer, **options), scale=0.02)


def test_weights_are_stored_in_fewer_bytes(wide, tmp_path):
    sizes, errors = {}, {}
    exact = [
        list(row["probabilities"].values())
        for row in wide.predict_text([as_text(each) for each in TEXTS])
    ]
    for kind in ("float32", "bfloat16", "int8"):
        path = export_saved_model(wide, base_dir=tmp_path, weights=kind)
        (data,) = (tmp_path / path / "variables").glob("*.data*")
        sizes[kind] = data.stat().st_size
        errors[kind] = np.abs(probabilities(path, TEXTS) - exact).max()
        assert check(path)[STRINGS]["c_api"] < 1e-5
    assert sizes["bfloat16"] < 0.53 * sizes["float32"]
    assert sizes["int8"] < 0.3 * sizes["float32"]
    assert errors["float32"] < 1e-5 < errors["bfloat16"] < errors["int8"] < 0.05


def test_scales_are_of_the_better_axis():
    weight = np.random.default_rng(0).normal(size=(64, 8, 8)).astype("float32")
    of_rows = np.geomspace(1, 100, 64)[:, None, None]
    of_columns = np.geomspace(1, 100, 64).reshape(1, 8, 8)
    for factor in (of_rows, of_columns):
        numbers, scales = quantized((weight * factor).astype("float32"))
        assert (numbers.dtype, scales.shape) == (np.int8, factor.shape)
        assert (np.abs(numbers * scales - weight * factor) <= scales / 2 + 1e-6).all()
    numbers, scales = quantized(np.zeros((2, 3), "float32"))
    assert not (numbers * scales).any()


def test_models_of_a_strategy_are_exported(tmp_path):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = make(BertClassifier, model_options={"num_labels": 2})
        with pytest.raises(ValueError, match=r"outside of `strategy.scope\(\)`"):
            export_saved_model(model, base_dir=tmp_path)
    path = export_saved_model(model, base_dir=tmp_path, weights="int8")
    check_ops(path)
    columns = {"text": np.array([b"ax b", b""], object)}
    (answers,) = answers_by_c_api(path, [(STRINGS, columns)])
    alone = make(BertClassifier, model_options={"num_labels": 2})
    for theirs, ours in zip(model.weights, alone.weights, strict=True):
        ours.assign(theirs.numpy())
    for row, got in zip(alone.predict_text(["ax b", ""]), answers["probabilities"], strict=True):
        np.testing.assert_allclose(list(row["probabilities"].values()), got, atol=0.02)


def test_half_precision_models_answer_as_they_do_here(tmp_path):
    model = make(BertClassifier, model_options={"num_labels": 2, "dtype": "mixed_bfloat16"})
    path = export_saved_model(model, base_dir=tmp_path)
    expected = [list(row["probabilities"].values()) for row in model.predict_text(["ax b", ""])]
    answers = probabilities(path, ["ax b", ""])
    assert answers.dtype == np.float32
    np.testing.assert_allclose(answers, expected, atol=0.01)


def test_each_export_is_a_version(tmp_path):
    model = make(BertClassifier, model_options={"num_labels": 2})
    for version in ("1", "2"):
        assert export_saved_model(model, tokenizer(), tmp_path) == f"{tmp_path}/{version}"
        (tmp_path / "models.config").write_text("my own")
    assert (tmp_path / "models.config").read_text() == "my own"
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["1", "2", "README.md", "batching_parameters.txt", "models.config"]
    assert model.encoder.layout == "dense"


def test_exports_at_once_get_versions_of_their_own(tmp_path):
    base, paths = str(tmp_path), []

    def publish(number):
        draft = versions.new_draft(base)
        tf.io.gfile.makedirs(draft)
        (tmp_path / draft / "number").write_text(str(number))
        paths.append(versions.publish(base, draft))

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(paths) == sorted(f"{base}/{version}" for version in range(1, 13))
    numbers = {(tmp_path / str(version) / "number").read_text() for version in range(1, 13)}
    assert numbers == set(map(str, range(12)))


def test_what_fails_its_warm_up_is_not_published(tmp_path, monkeypatch):
    model = make(BertClassifier, model_options={"num_labels": 2})

    def no_row_for_each(text):
        return {"number": tf.size(text)[None]}

    signatures = model.text_signatures(tokenizer())
    broken = {name: each._replace(answer=no_row_for_each) for name, each in signatures.items()}
    monkeypatch.setattr(BertClassifier, "text_signatures", lambda *_: {STRINGS: broken[STRINGS]})
    with pytest.raises(
        ValueError, match=r"a row for each request. Received: number of shape \(1,\) for 8"
    ):
        export_saved_model(model, base_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_ops_that_servers_lack_are_refused(tmp_path):
    import tensorflow_text

    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def trim(text):
        pieces = tf.strings.split(text)
        return tensorflow_text.RoundRobinTrimmer(3).trim([pieces, pieces])[0].to_tensor()

    tf.saved_model.save(module, str(tmp_path), signatures=trim)
    with pytest.raises(ValueError, match="TFText>RoundRobinTrim"):
        check_ops(str(tmp_path))
    runs = [(STRINGS, {"text": np.array([b"a b"], object)})]
    with pytest.raises(RuntimeError, match="Op type not registered 'TFText>RoundRobinTrim'"):
        answers_by_c_api(str(tmp_path), runs)


def test_refusals(tmp_path):
    model = make(BertClassifier, model_options={"num_labels": 2})
    tagger = make(BertTokenClassifier, model_options={"num_labels": 2})
    small = type(tokenizer())(tokenizer().vocabulary[:-1])
    bare = make(BertClassifier, model_options={"num_labels": 2})
    bare.tokenizer = None
    encoder = BertEncoder(model.config, tokenizer=tokenizer())
    for call, message in (
        (lambda: export_saved_model(model), "`base_dir` must be a directory. Received: None"),
        (lambda: export_saved_model(bare, base_dir=tmp_path), "`tokenizer` must be given"),
        (lambda: export_saved_model(encoder, base_dir=tmp_path), "a head that answers text"),
        (lambda: export_saved_model(model, small, tmp_path), "12 entries, 13 rows"),
        (lambda: export_saved_model(model, base_dir=tmp_path, weights="int4"), "`weights` must be one"),
        (lambda: export_saved_model(model, base_dir=tmp_path, layout="flat"), "`layout` must be one"),
        (lambda: export_saved_model(model, base_dir=tmp_path, max_length=25), "must be at most 24"),
        (lambda: export_saved_model(model, base_dir=tmp_path, top_k=2), "among max_length, pairs. Rec"),
        (
            lambda: export_saved_model(tagger, base_dir=tmp_path, max_length=8, stride=9),
            "stride=9, room for 6 tokens",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert list(tmp_path.iterdir()) == []
