"""What a change costs: the answers of one beside those of another, to the same requests."""

import numpy as np
import tensorflow as tf

from keras_bert.models.signatures import DEFAULT


def compare(directory, other, columns, batch_size=32):
    """How the answers of two exports of one model differ, of float32 and int8 weights for example.

    Args:
        directory, other: Two versions with the same signatures.
        columns: {name: list of str}, as `serving_default` takes them.
        batch_size: Requests that are answered at once.

    Returns:
        {result: {"equal", "largest", "mean"}}: the share of requests whose words and whole numbers are
        the same; and of decimals the largest and the mean absolute difference, over the requests that
        have as many of them.
    """
    answers = [_rows(each, columns, batch_size) for each in (directory, other)]
    return {name: _differences(rows, answers[1][name]) for name, rows in answers[0].items()}


def _rows(directory, columns, batch_size):
    """{result: list of arrays, one for each request}, without the padding of batches."""
    signature = tf.saved_model.load(directory).signatures[DEFAULT]
    count = len(next(iter(columns.values())))
    if not count:
        raise ValueError("`columns` must have at least one request. Received: none.")
    rows = {}
    for begin in range(0, count, batch_size):
        batch = {name: tf.constant(x[begin : begin + batch_size]) for name, x in columns.items()}
        for name, values in signature(**batch).items():
            rows.setdefault(name, []).extend(_without_padding(row) for row in values.numpy())
    return rows


def _without_padding(row):
    row = np.asarray(row)
    if not row.ndim:
        return row
    used = row.astype(bool).any(axis=tuple(range(1, row.ndim)))
    return row[: len(row) - np.argmax(used[::-1])] if used.any() else row[:0]


def _differences(rows, others):
    if rows[0].dtype.kind != "f":
        equal = [np.array_equal(row, other) for row, other in zip(rows, others, strict=True)]
        return {"equal": float(np.mean(equal))}
    pairs = [pair for pair in zip(rows, others, strict=True) if pair[0].shape == pair[1].shape]
    errors = [np.abs(row - other).reshape(-1) for row, other in pairs]
    errors = np.concatenate(errors) if errors else np.zeros(0)
    if not errors.size:
        return {"largest": 0.0, "mean": 0.0}
    return {"largest": float(errors.max()), "mean": float(errors.mean())}
