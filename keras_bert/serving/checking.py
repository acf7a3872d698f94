"""Whether an export answers where there is no Python: through TensorFlow's C API, op by op.

What TF Serving does with a directory is what `TF_LoadSessionFromSavedModel` and `TF_SessionRun` do, and
what ops it has is known: those of TensorFlow, and the op libraries of tensorflow-text that it links.
Releases from 2.12 to 2.19 link those of tensorflow-text 2.12.1, which lack three ops. Transport (gRPC,
REST) and the server's own batching are not tried.
"""

import glob
import json
import os
import subprocess
import sys

import numpy as np
import tensorflow as tf
import tensorflow_text
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_bert.serving import c_session
from keras_bert.serving.served_ops import SERVED_OPS
from keras_bert.serving.warmup import read_warmup

# libraries of tensorflow-text whose ops TF Serving lacks before 2.20
NOT_IN_2_12 = ("_trimmer_ops.so", "_utf8_binarize_op.so")
ODD_TEXTS = (
    "A short text.",
    "",
    " \t\n",
    "\u200b\ufeff",
    b"caf\xff\xe9 \xf0\x9f",
    "nul\x00byte",
    "İstanbul ΣΊΣΥΦΟΣ ﬁne ½ 漢字 🙂",
    "[CLS] [MASK] [SEP] <mask>",
    "word " * 600,
    "x" * 2000,
)


def check(directory, texts=ODD_TEXTS, tolerance=1e-4, without=NOT_IN_2_12):
    """Answers requests as TF Serving would, and compares with what Python's loader answers.

    The requests are the warm-up's, to every signature, and the texts: all at once, one, and none. They
    run in a process of their own by the C API alone, and in a session as `tf.compat.v1` loads it.

    Args:
        directory: Of a version, local.
        texts: Strings, or bytes, for every column of strings.
        tolerance: Most that numbers may differ.
        without: Op libraries of tensorflow-text that are not registered.

    Returns:
        {signature: {"requests", "c_api", "session"}}: how many, and the largest difference by either
        way.

    Raises:
        ValueError: When the graph has an op that the oldest server lacks, or when answers differ.
        RuntimeError: When the C API cannot load or run it; with its message.
    """
    directory = os.fspath(directory)
    check_ops(directory)
    served = tf.saved_model.load(directory).signatures
    runs = [*read_warmup(directory), *_text_requests(served, list(texts))]
    expected = [_by_python(served[name], columns) for name, columns in runs]
    ways = {
        "c_api": answers_by_c_api(directory, runs, without),
        "session": _by_session(directory, runs),
    }
    report = {name: {"requests": 0, **dict.fromkeys(ways, 0.0)} for name in served}
    for place, (name, columns) in enumerate(runs):
        report[name]["requests"] += len(next(iter(columns.values())))
        for way, answers in ways.items():
            difference = _difference(expected[place], answers[place])
            if not difference <= tolerance:
                raise ValueError(
                    f"Every way to run {directory} must give the same answers. Received: {name} "
                    f"differs by {difference} in {way}, of {columns}."
                )
            report[name][way] = max(report[name][way], difference)
    return report


def check_ops(directory):
    """Refuses a graph with ops that are not in `SERVED_OPS`, or with functions that need XLA."""
    ops, compiled = set(), set()
    for graph in _saved_model(directory).meta_graphs:
        functions = graph.graph_def.library.function
        ops |= {node.op for node in graph.graph_def.node}
        ops |= {node.op for function in functions for node in function.node_def}
        compiled |= {each.signature.name for each in functions if each.attr["_XlaMustCompile"].b}
        ops -= {function.signature.name for function in functions}
    missing = sorted(ops - SERVED_OPS)
    if missing or compiled:
        raise ValueError(
            "The graph must have only ops that TF Serving 2.12 has, and no function for XLA. "
            f"Received: {', '.join(missing + sorted(compiled))} in {directory}."
        )


def answers_by_c_api(directory, runs, without=NOT_IN_2_12, packages=None):
    """What the C API answers, in a process of its own.

    Args:
        runs: List of (signature, {column: array}).
        without: Op libraries of tensorflow-text that are not registered.
        packages: Folder with the installed tensorflow and tensorflow_text to take; None for these.

    Returns:
        For each, {result: array}.
    """
    signatures = _saved_model(directory).meta_graphs[0].signature_def
    packages = packages or os.path.dirname(os.path.dirname(tensorflow_text.__file__))
    library = os.path.join(packages, "tensorflow")
    op_libraries = os.path.join(packages, "tensorflow_text", "python", "ops", "_*.so")
    plan = {
        "directory": directory,
        "libraries": [
            os.path.join(library, f"libtensorflow_{name}.so.2") for name in ("framework", "cc")
        ],
        "op_libraries": [
            path for path in sorted(glob.glob(op_libraries)) if os.path.basename(path) not in without
        ],
        "runs": [
            {
                "inputs": {
                    signatures[name].inputs[column].name: _to_plan(value)
                    for column, value in columns.items()
                },
                "outputs": [each.name for each in signatures[name].outputs.values()],
            }
            for name, columns in runs
        ],
    }
    ended = subprocess.run(
        [sys.executable, "-I", c_session.__file__],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        raise RuntimeError(f"The C API must run {directory}. Received: {lines[-1] if lines else '?'}")
    return [
        dict(zip(signatures[name].outputs, map(_from_plan, results), strict=True))
        for (name, _), results in zip(runs, json.loads(ended.stdout), strict=True)
    ]


def _by_python(signature, columns):
    answers = signature(**{name: tf.constant(value) for name, value in columns.items()})
    return {name: value.numpy() for name, value in answers.items()}


def _by_session(directory, runs):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        signatures = tf.compat.v1.saved_model.load(session, ["serve"], directory).signature_def
        return [
            session.run(
                {result: info.name for result, info in signatures[name].outputs.items()},
                {signatures[name].inputs[column].name: value for column, value in columns.items()},
            )
            for name, columns in runs
        ]


def _text_requests(served, texts):
    """(signature, columns) for all signatures of texts: all at once, one, none."""
    texts = [text.encode() if isinstance(text, str) else text for text in texts]
    for name, signature in served.items():
        specs = signature.structured_input_signature[1]
        if name == "serialized_examples" or any(spec.dtype != tf.string for spec in specs.values()):
            continue  # made of texts by rules of their own: the warm-up has some
        for chosen in (texts, texts[:1], []):
            columns = {}
            for shift, (column, spec) in enumerate(specs.items()):
                values = np.array(chosen, object)
                values = np.roll(values, shift)
                if spec.shape.rank == 2:
                    values = np.stack([values, np.roll(values, 1)], axis=1)
                columns[column] = values
            yield name, columns


def _difference(expected, answers):
    """The largest difference of numbers; infinite where shapes or strings differ."""
    largest = 0.0
    for name, value in expected.items():
        other = answers[name]
        if value.shape != other.shape:
            return np.inf
        if value.dtype.kind != "f":
            largest = max(largest, 0.0 if np.array_equal(value, other) else np.inf)
        elif value.size:
            largest = max(largest, float(np.abs(value - other).max()))
    return largest


def _saved_model(directory):
    with tf.io.gfile.GFile(os.path.join(directory, "saved_model.pb"), "rb") as file:
        return SavedModel.FromString(file.read())


def _to_plan(value):
    value = np.asarray(value)
    dtype = tf.as_dtype(value.dtype) if value.dtype.kind not in "OSU" else tf.string
    values = value.reshape(-1).tolist()
    if dtype == tf.string:
        values = [
            (each.encode() if isinstance(each, str) else each).decode("latin-1") for each in values
        ]
    return {"dtype": dtype.as_datatype_enum, "shape": list(value.shape), "values": values}


def _from_plan(tensor):
    dtype, values = tf.as_dtype(tensor["dtype"]), tensor["values"]
    if dtype == tf.string:
        return np.array([each.encode("latin-1") for each in values], object).reshape(tensor["shape"])
    return np.array(values, dtype.as_numpy_dtype).reshape(tensor["shape"])
