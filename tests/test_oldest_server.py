"""Every kind of export in the oldest TensorFlow that a promised server is made of, 2.12.1."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from served_models import KINDS, columns_of

from keras_bert import export_saved_model
from keras_bert.serving.checking import answers_by_c_api
from keras_bert.serving.served_ops import SERVED_OPS
from keras_bert.serving.warmup import read_warmup

# In an environment of its own: TensorFlow 2.12.1 wants an older numpy and protobuf than this package.
OLD = """
import json, sys
import numpy as np, tensorflow as tf, tensorflow_text
from tensorflow.python.framework import op_def_registry
job = json.load(sys.stdin)
missing = [name for name in job["ops"] if op_def_registry.get(name) is None]
answers = []
for path, columns in job["exports"]:
    columns = {
        name: np.array([[each.encode("latin-1") for each in row] if isinstance(row, list)
                        else row.encode("latin-1") for row in rows], object)
        for name, rows in columns.items()
    }
    out = tf.saved_model.load(path).signatures["serving_default"](
        **{name: tf.constant(rows) for name, rows in columns.items()})
    answers.append({
        name: [value.shape.as_list(), [
            each.decode("latin-1") if isinstance(each, bytes) else each
            for each in value.numpy().reshape(-1).tolist()
        ]]
        for name, value in out.items()
    })
print(json.dumps({"version": tf.__version__, "missing": missing, "answers": answers}))
"""


@pytest.fixture(scope="module")
def old_python(tmp_path_factory):
    """Path of an interpreter with TensorFlow 2.12.1: that of KERAS_BERT_OLD_PYTHON, or a new one."""
    if "KERAS_BERT_OLD_PYTHON" in os.environ:
        return os.environ["KERAS_BERT_OLD_PYTHON"]
    if sys.version_info[:2] != (3, 11):
        pytest.skip("TensorFlow 2.12.1 has no wheel for this Python")
    folder = tmp_path_factory.mktemp("old")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    wanted = ["tensorflow-cpu==2.12.1", "tensorflow-text==2.12.1"]
    command = [folder / "bin" / "pip", "install", "--quiet", *wanted]
    installed = subprocess.run(command, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"TensorFlow 2.12.1 cannot be installed: {installed.stderr[-200:]}")
    return str(folder / "bin" / "python")


def as_bytes(value):
    """Nested lists of str and bytes as lists of bytes."""
    if isinstance(value, list):
        return [as_bytes(each) for each in value]
    return value.encode() if isinstance(value, str) else value


def as_latin(value):
    return [as_latin(each) for each in value] if isinstance(value, list) else value.decode("latin-1")


@pytest.mark.long
def test_all_kinds_answer_there(old_python, tmp_path):
    runs, exports = [], []
    for kind, (build, names, options) in KINDS.items():
        for weights in ("float32", "bfloat16", "int8") if kind == "classifier" else ("float32",):
            base = tmp_path / f"{kind}-{weights}"
            model, further = build(), {"serialized_examples": True, "weights": weights}
            path = export_saved_model(model, base_dir=base, **further, **options)
            columns = {name: as_bytes(values) for name, values in columns_of(names).items()}
            runs.append((path, columns))
            exports.append((path, {name: as_latin(values) for name, values in columns.items()}))
    ended = subprocess.run(
        [old_python, "-c", OLD],
        input=json.dumps({"exports": exports, "ops": sorted(SERVED_OPS)}),
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["version"] == "2.12.1"
    assert found["missing"] == []
    site = next(Path(old_python).parents[1].glob("lib/python*/site-packages"))
    for (path, columns), theirs in zip(runs, found["answers"], strict=True):
        # by its Python, to what a client sends; by its C API, all that the warm-up asks besides
        requests = [("serving_default", columns), *read_warmup(path)]
        requests = [(name, {k: np.array(v) for k, v in each.items()}) for name, each in requests]
        by_c_api = answers_by_c_api(path, requests, packages=str(site))
        served = tf.saved_model.load(path).signatures
        for (name, each), answers in zip(requests, by_c_api, strict=True):
            here = served[name](**{k: tf.constant(v) for k, v in each.items()})
            for result, value in here.items():
                assert_same(answers[result], value.numpy())
        here = served["serving_default"](**{k: tf.constant(v) for k, v in columns.items()})
        for result, (shape, values) in theirs.items():
            value = here[result].numpy()
            if value.dtype == object:
                values = [each.encode("latin-1") for each in values]
            assert_same(np.array(values, value.dtype).reshape(shape), value)


def assert_same(found, expected):
    assert found.shape == expected.shape
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, atol=1e-4)
    else:
        np.testing.assert_array_equal(found, expected)
