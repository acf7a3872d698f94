"""keras_bert.serving: every kind of model exported, checked by the C API, asked as clients ask."""

import base64
import functools
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from served_models import KINDS, TEXTS, columns_of

from keras_bert import export_saved_model
from keras_bert.files import read_json, read_text
from keras_bert.models import grouping
from keras_bert.serving import export
from keras_bert.serving.checking import check
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


def as_texts(columns):
    """The columns as `predict_text` takes them: bytes are those of texts."""
    return [
        [list(map(text, value)) if isinstance(value, list) else text(value) for value in values]
        for values in columns.values()
    ]


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
    given = as_texts(columns)
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


def test_masks_of_long_texts_are_answered_too(exported):
    _, path = exported("masks")
    answers = ask(path, {"text": ["a " * 60 + "[MASK]", "[MASK]"]})
    assert (answers["words"] != b"").any(axis=(1, 2)).tolist() == [True, True]
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


@pytest.mark.parametrize("layout", ["dense", "unpadded"])
def test_groups_change_no_answer_and_bound_memory(layout, monkeypatch):
    """Groups of a row, of some and of all rows; a row with more tokens than a group may have."""
    for kind in ("classifier", "tagger", "answers", "masks", "choices"):
        build, names, _ = KINDS[kind]
        model, columns = build(), columns_of(names)
        model.encoder.layout = layout
        columns = as_texts(columns)
        found = []
        for tokens in (1, 40, 10**6):
            monkeypatch.setattr(grouping, "GROUP_TOKENS", tokens)
            model._traced = (None, None)
            found.append(model.predict_text(*columns, batch_size=len(TEXTS)))
        assert_alike(found[0], found[2])
        assert_alike(found[1], found[2])


def test_groups_are_of_like_length():
    widths = []

    def function(inputs):
        widths.append(inputs["token_ids"].shape)
        return {"sums": tf.reduce_sum(inputs["token_ids"], axis=1), "ids": inputs["token_ids"]}

    mask = tf.sequence_mask([2, 5, 1, 0, 3], 6, tf.int32)
    x = {"token_ids": mask * [[1], [10], [100], [1000], [10000]], "padding_mask": mask}
    empty = {"sums": tf.zeros([0], tf.int32), "ids": tf.zeros([0, 6], tf.int32)}
    found = grouping.in_groups(function, x, empty, most_tokens=6)
    assert widths == [(1, 5), (2, 3), (2, 1)]
    assert found["sums"].numpy().tolist() == [2, 50, 100, 0, 30000]
    np.testing.assert_array_equal(found["ids"], x["token_ids"])
    none = grouping.in_groups(function, {name: each[:0] for name, each in x.items()}, empty)
    assert none["ids"].shape == (0, 6)
