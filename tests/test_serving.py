"""keras_bert.serving: every kind of model exported, checked by the C API, asked as clients ask."""

import base64
import functools
import json
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import scramble
from served_models import KINDS, TEXTS, columns_of, make, tokenizer

from keras_bert import BertClassifier, BertEncoder, BertTokenClassifier, export_saved_model
from keras_bert.files import read_json, read_text
from keras_bert.serving import export, versions
from keras_bert.serving.checking import answers_by_c_api, check, check_ops
from keras_bert.serving.stored_weights import quantized
from keras_bert.serving.warmup import FILE, read_warmup
from keras_bert.text.entities import entities

ALL = list(KINDS)
STRINGS = "serving_default"


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """Function from a kind to its model and its export, made once."""

    @functools.cache
    def of(kind):
        keras.utils.set_random_seed(0)
        build, _, options = KINDS[kind]
        model = build()
        base = tmp_path_factory.mktemp("served") / kind
        further = {"serialized_examples": kind in ("answers", "choices")}
        return model, export_saved_model(model, base_dir=base, **further, **options)

    return of


@functools.cache
def loaded(path):
    return tf.saved_model.load(path)


def ask(path, columns, signature=STRINGS):
    function = loaded(path).signatures[signature]
    answers = function(**{name: tf.constant(values) for name, values in columns.items()})
    return {name: value.numpy() for name, value in answers.items()}


def rows_of(answers):
    """A list of {name: values of that row}, as plain Python."""
    plain = {name: value.tolist() for name, value in answers.items()}
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


def text(value):
    return value.decode("utf-8", "ignore") if isinstance(value, bytes) else value


@pytest.mark.parametrize("kind", ALL)
def test_the_c_api_answers_as_python_does(exported, kind):
    _, path = exported(kind)
    report = check(path)
    assert {STRINGS, "token_ids"} <= set(report)
    assert all(each["requests"] >= 9 for each in report.values())
    assert max(max(each["c_api"], each["session"]) for each in report.values()) < 1e-5


def as_predicted(kind, model, row):
    """A row of an export's answers, in the form of `predict_text`."""
    if kind in ("classifier", "pairs"):
        named = {text(name): p for name, p in zip(row["labels"], row["probabilities"], strict=True)}
        return {"label": text(row["label"]), "probabilities": named}
    if kind == "multi_label":
        named = {text(name): p for name, p in zip(row["labels"], row["probabilities"], strict=True)}
        return {"labels": [name for name, p in named.items() if p > 0.5], "probabilities": named}
    if kind == "regression":
        return row
    if kind in ("tagger", "roberta", "words"):
        prefix = "word" if kind == "words" else "entity"
        names = ["label", "start", "end", "score"] + ["text"] * (kind != "words")
        found = zip(*(row[f"{prefix}_{name}"] for name in names), strict=True)
        found = [dict(zip(names, map(text, each), strict=True)) for each in found]
        return [each for each in found if each["end"]]
    if kind == "answers":
        names = ["answer", "start", "end", "score"]
        answers = zip(*(row[f"n_best_{name}"] for name in names), strict=True)
        answers = [dict(zip(names, map(text, each), strict=True)) for each in answers]
        return {
            **{name: text(row[name]) for name in (*names, "no_answer_margin")},
            "answers": [each for each in answers if each["end"]],
        }
    if kind == "choices":
        return {name: row[name] for name in ("choice", "probabilities")}
    return [
        [(text(word), score) for word, score in zip(*mask, strict=True)]
        for mask in zip(row["words"], row["scores"], strict=True)
        if mask[0][0]
    ]


def assert_alike(found, expected):
    """Equal, numbers within 1e-5."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), [expected[name] for name in found]
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for each, other in zip(found, expected, strict=True):
            assert_alike(each, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-5) or min(found, expected) > 1e8  # no span
    else:
        assert found == expected


@pytest.mark.parametrize("kind", ALL)
def test_answers_are_those_of_predict_text(exported, kind):
    model, path = exported(kind)
    _, names, options = KINDS[kind]
    columns = columns_of(names)
    given = [
        [list(map(text, value)) if isinstance(value, list) else text(value) for value in values]
        for values in columns.values()
    ]
    options = {name: value for name, value in options.items() if name not in ("pairs", "words")}
    predicted = model.predict_text(*given, **options)
    found = rows_of(ask(path, columns))
    assert_alike([as_predicted(kind, model, row) for row in found], predicted)
    # with neighbours or without: padding apart, a row is a row
    for index in (0, 1, 5, 7):
        alone = ask(path, {name: values[index : index + 1] for name, values in columns.items()})
        (alone,) = rows_of(alone)
        assert_alike(as_predicted(kind, model, alone), predicted[index])


def test_entities_are_grouped_in_every_scheme(exported):
    """By the rule for lists of tags, on what the same model says of each word."""
    _, path = exported("tagger")
    total = 0
    for row in rows_of(ask(path, {"text": [*TEXTS, "a b c d x y " * 9]})):
        words = [i for i, end in enumerate(row["word_end"]) if end]
        expected = entities([text(row["word_label"][i]) for i in words])
        for number, (kind, first, end) in enumerate(expected):
            assert text(row["entity_label"][number]) == kind
            assert row["entity_start"][number] == row["word_start"][first]
            assert row["entity_end"][number] == row["word_end"][end - 1]
        assert not any(row["entity_end"][len(expected) :])
        total += len(expected)
    assert total > 15


def test_masks_behind_the_rows_get_no_words(exported):
    _, path = exported("masks")
    answers = ask(path, {"text": ["a " * 60 + "[MASK]", "[MASK]"]})
    assert (answers["words"] != b"").any(axis=(1, 2)).tolist() == [False, True]
    assert ask(path, {"text": ["none"]})["words"].shape == (1, 0, 3)


def test_examples_are_answered_as_columns_are(exported):
    for kind in ("answers", "choices"):
        _, path = exported(kind)
        requests = dict(read_warmup(path))  # the last of each signature
        by_text = ask(path, requests[STRINGS])
        for name, value in ask(path, requests["serialized_examples"], "serialized_examples").items():
            np.testing.assert_array_equal(value, by_text[name])


def test_ids_are_answered_as_their_text_is(exported):
    for kind in ("classifier", "pairs", "multi_label", "regression", "choices"):
        model, path = exported(kind)
        names = KINDS[kind][1]
        columns = {name: values[:4] for name, values in columns_of(names).items()}
        if kind == "choices":
            flat = np.repeat(columns["context"], 3), np.array(columns["choices"], object).ravel()
            x = model.text_inputs(model.tokenizer, *flat, None)
            x = {name: tf.reshape(value, [4, 3, -1]) for name, value in x.items()}
        else:
            length = KINDS[kind][2].get("max_length")
            x = model.text_inputs(
                model.tokenizer, *columns.values(), *[None] * (2 - len(names)), length
            )
        by_text = ask(path, columns)
        for name, value in ask(path, x, "token_ids").items():
            if value.dtype == object:
                np.testing.assert_array_equal(value, by_text[name])
            else:
                np.testing.assert_allclose(value, by_text[name], atol=1e-5)
    _, path = exported("answers")
    ids = {"token_ids": [[2, 5, 3, 6, 3, 0]], "padding_mask": [[1] * 5 + [0]], "segment_ids": [[0] * 6]}
    assert ask(path, ids, "token_ids")["start_positions"][0, 5] == -1e9


def test_rest_and_grpc_carry_requests_and_answers(exported):
    """TF Serving's rules: rows of named tensors, the same number in and out; and its protos."""
    predict_pb2 = pytest.importorskip("tensorflow_serving.apis.predict_pb2")
    for kind in ("classifier", "answers", "tagger", "choices"):
        _, path = exported(kind)
        columns = {name: values[:3] for name, values in columns_of(KINDS[kind][1]).items()}
        names = list(columns)
        instances = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        instances = json.loads(json.dumps({"instances": instances}, default=b64))["instances"]
        # rows to columns: what the server does with "instances"; "inputs" are columns already
        stacked = {name: [unb64(each[name]) for each in instances] for name in names}
        answers = ask(path, stacked)
        assert all(len(value) == 3 for value in answers.values())
        assert not any(name.endswith("_bytes") for name in answers)  # would be sent as base64
        predictions = json.loads(json.dumps({"predictions": rows_of(answers)}, default=text))
        assert len(predictions["predictions"]) == 3

        request = predict_pb2.PredictRequest()
        for name, values in columns.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(np.array(encoded(values), object)))
        request = predict_pb2.PredictRequest.FromString(request.SerializeToString())
        answers = ask(path, {name: tf.make_ndarray(value) for name, value in request.inputs.items()})
        response = predict_pb2.PredictResponse()
        for name, value in answers.items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        response = predict_pb2.PredictResponse.FromString(response.SerializeToString())
        for name, value in response.outputs.items():
            np.testing.assert_array_equal(tf.make_ndarray(value), answers[name])


def encoded(value):
    if isinstance(value, list):
        return [encoded(each) for each in value]
    return value.encode() if isinstance(value, str) else value


def b64(value):
    return {"b64": base64.b64encode(value).decode()}


def unb64(value):
    if isinstance(value, list):
        return [unb64(each) for each in value]
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value


def test_warm_up_records_are_those_of_tf_serving(exported):
    log_pb2 = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    _, path = exported("classifier")
    ours = read_warmup(path)
    records = list(tf.data.TFRecordDataset(f"{path}/{FILE}").as_numpy_iterator())
    assert len(records) == len(ours) == 2 * 3
    for record, (signature, columns) in zip(records, ours, strict=True):
        request = log_pb2.PredictionLog.FromString(record).predict_log.request
        assert (request.model_spec.name, request.model_spec.signature_name) == ("classifier", signature)
        assert request.inputs.keys() == columns.keys()
        for name, value in request.inputs.items():
            np.testing.assert_array_equal(tf.make_ndarray(value), columns[name])


def test_what_lies_beside_and_in_a_version(exported):
    from google.protobuf import text_format

    model, path = exported("classifier")
    base = path.removesuffix("/1")
    facts = read_json(f"{path}/{export.FACTS}")
    assert facts["label_names"] == ["no", "maybe", "yes"]
    assert (facts["model"], facts["max_length"], facts["weights"]) == ("BertClassifier", 24, "float32")
    assert type(model.tokenizer).from_pretrained(f"{path}/{export.TOKENIZER}").vocabulary_size == 13
    readme = read_text(f"{base}/README.md")
    (curl,) = (line for line in readme.splitlines() if "curl" in line)
    assert ":predict" in curl
    request = json.loads(curl.split("-d '")[1].removesuffix("'"))
    assert ask(path, {"text": [request["instances"][0]["text"]]})["label"].shape == (1,)
    compile(readme.split("```python\n")[1].split("```")[0], "README", "exec")

    config_pb2 = pytest.importorskip("tensorflow_serving.config.model_server_config_pb2")
    config = text_format.Parse(read_text(f"{base}/models.config"), config_pb2.ModelServerConfig())
    assert config.model_config_list.config[0].base_path == "/models/classifier"


def test_saved_model_cli_shows_it(exported):
    _, path = exported("classifier")
    cli = f"{sys.prefix}/bin/saved_model_cli"
    command = [sys.executable, cli, "show", "--dir", path, "--tag_set", "serve", "--signature_def"]
    shown = subprocess.run([*command, STRINGS], capture_output=True, text=True, check=True).stdout
    assert "inputs['text'] tensor_info" in shown
    assert "outputs['probabilities'] tensor_info" in shown


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
    exact = [list(row["probabilities"].values()) for row in wide.predict_text(list(map(text, TEXTS)))]
    for kind in ("float32", "bfloat16", "int8"):
        path = export_saved_model(wide, base_dir=tmp_path, weights=kind)
        (data,) = (tmp_path / path / "variables").glob("*.data*")
        sizes[kind] = data.stat().st_size
        errors[kind] = np.abs(ask(path, {"text": TEXTS})["probabilities"] - exact).max()
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
    answers = ask(path, {"text": ["ax b", ""]})["probabilities"]
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
