"""Columns of texts and labels as a user has them, in lists, numpy, pandas or tensors; checked."""

import numbers

import numpy as np
import tensorflow as tf

_FORMS = {1: "a list of strings", 2: "a list of lists of strings, each with at least one"}

_NUMERIC = {"i": tf.int64, "u": tf.int64, "f": tf.float32, "b": tf.bool}


def hold_strings(x):
    """Whether an `x` of `fit` holds strings, and not rows of token ids."""
    if isinstance(x, tf.data.Dataset):
        spec = x.element_spec
        x = spec[0] if isinstance(spec, tuple) else spec
    if hasattr(x, "iloc") and hasattr(x, "columns"):  # a DataFrame
        return any(hold_strings(x[name]) for name in x.columns)
    if isinstance(x, dict):
        return any(hold_strings(value) for value in x.values())
    if isinstance(x, str | bytes):
        return True
    if isinstance(x, list | tuple):
        return any(hold_strings(value) for value in x)
    dtype = getattr(x, "dtype", None)
    return dtype == tf.string if isinstance(dtype, tf.DType) else _is_text_type(dtype)


def _is_text_type(dtype):
    return getattr(dtype, "kind", None) in ("U", "S", "O", "T") or str(dtype) in ("string", "str")


def named_columns(x, names):
    """The columns of `x` by name: of a dict or DataFrame, a list of dicts, a tuple, or one column.

    Args:
        names: Of the columns, in the order of a tuple; "id" may stand beside them, and is left out.
    """
    if hasattr(x, "iloc") and hasattr(x, "columns"):
        x = {name: x[name] for name in x.columns}
    elif isinstance(x, list) and any(isinstance(row, dict) for row in x):
        first = next(row for row in x if isinstance(row, dict))
        for number, row in enumerate(x):
            if not isinstance(row, dict) or set(row) != set(first):
                raise ValueError(
                    f"Rows must be dicts with the same keys. Received: {sorted(first)}, and "
                    f"{sorted(row) if isinstance(row, dict) else repr(row)} in row {number}."
                )
        x = {name: [row[name] for row in x] for name in first}
    if isinstance(x, dict):
        found = {name: column for name, column in x.items() if name != "id"}
    else:
        parts = x if isinstance(x, tuple) else (x,)
        if len(parts) > len(names):
            raise ValueError(
                f"`x` must have at most the columns {', '.join(names)}. Received: {len(parts)}."
            )
        found = dict(zip(names, parts, strict=False))
    unknown = sorted(set(found) - set(names), key=str)
    if unknown:
        raise ValueError(f"Columns must be among {', '.join(names)}. Received: {unknown}.")
    return found


def read_texts(column, name, depth=1):
    """A column as a list of str, or of lists of str.

    Args:
        column: A list or tuple; or a vector of numpy, pandas or TensorFlow.
        name: What to call it in errors.
        depth: 1 for a string in each row; 2 for several.

    Raises:
        ValueError: When it is anything else; the row is named.
    """
    form = _FORMS[depth]
    values = _listed(column)
    if values is None:
        raise ValueError(f"`{name}` must be {form}. Received: {_shown(column)}.")
    if depth == 2:
        values = [_listed(value) for value in values]
    for number, value in enumerate(values):
        strings = [value] if depth == 1 else value
        wrong = value if not strings else next((s for s in strings if not isinstance(s, str)), "")
        if wrong != "" or not strings:
            received = _shown(_listed(column)[number] if not strings else wrong)
            raise ValueError(f"`{name}` must be {form}. Received: {received} in row {number}.")
    flat = values if depth == 1 else [string for value in values for string in value]
    try:
        "".join(flat).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"`{name}` must be {form} of Unicode. Received: a lone surrogate, "
            f"{error.object[error.start]!r}."
        ) from None
    return values


def _listed(column):
    """A column's values as a list, with bytes of tensors decoded; None where it is no column."""
    if isinstance(column, tf.RaggedTensor):
        return [[_decoded(value) for value in row] for row in column.to_list()]
    if tf.is_tensor(column):
        column = np.vectorize(_decoded, otypes=[object])(column.numpy()) if column.shape.rank else ""
    if isinstance(column, np.ndarray) and column.ndim == 0:
        return None
    if hasattr(column, "tolist"):
        return column.tolist()
    return list(column) if isinstance(column, list | tuple) else None


def _decoded(value):
    return value.decode("utf-8", "ignore") if isinstance(value, bytes) else value


def _shown(value):
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def as_tensor(values, depth):
    """What `read_texts` gives, as a (N,) or a ragged (N, items) tensor of strings."""
    return tf.constant(values, tf.string) if depth == 1 else _ragged(values, tf.string)


def read_labels(labels, name="labels", ragged=False):
    """Labels as a tensor: strings, int64, float32 or bool.

    Args:
        labels: A list, or a column of numpy, pandas or TensorFlow.
        name: What to call them in errors.
        ragged: Whether rows hold a list each, of any length.
    """
    if isinstance(labels, tf.RaggedTensor) or (
        tf.is_tensor(labels) and not (ragged and tf.executing_eagerly())
    ):
        return labels
    if isinstance(labels, np.ndarray) and labels.dtype.kind in _NUMERIC and labels.ndim and not ragged:
        return tf.constant(labels, _NUMERIC[labels.dtype.kind])
    values = _listed(labels)
    if values is None:
        raise ValueError(f"`{name}` must be a list or a column. Received: {_shown(labels)}.")
    is_list = [isinstance(value, list | tuple | np.ndarray) for value in values]
    if any(is_list) or ragged:
        if not all(is_list):
            row = is_list.index(False)
            raise ValueError(
                f"`{name}` must hold a list in each row. Received: {_shown(values[row])} in row {row}."
            )
        values = [_listed(value) for value in values]
    flat = [
        (row, each) for row, value in enumerate(values) for each in (value if any(is_list) else [value])
    ]
    kinds = [_kind(each) for _, each in flat]
    dtype = tf.float32 if set(kinds) == {tf.float32, tf.int64} else (kinds or [tf.int64])[0]
    for (row, each), kind in zip(flat, kinds, strict=True):
        if kind is None or (kind != dtype and dtype != tf.float32):
            raise ValueError(
                f"`{name}` must all be names, or numbers. Received: {_shown(each)} in row {row}."
            )
    if not (any(is_list) or ragged):
        return tf.constant(values, dtype)
    lengths = {len(value) for value in values}
    if ragged or len(lengths) > 1 or dtype == tf.string:
        return _ragged(values, dtype)
    return tf.constant(values, dtype)


def _kind(value):
    if isinstance(value, str):
        return tf.string
    if isinstance(value, bool | np.bool_):
        return tf.bool
    if isinstance(value, numbers.Integral):
        return tf.int64
    return tf.float32 if isinstance(value, numbers.Real) else None


def _ragged(rows, dtype):
    flat = tf.constant([value for row in rows for value in row], dtype)
    return tf.RaggedTensor.from_row_lengths(flat, [len(row) for row in rows])


def refuse(is_wrong, must, values, rows=None):
    """An error that names the first wrong value and its row: now, or in the graph, when it runs.

    Args:
        is_wrong: (N,) bool.
        must: What must hold.
        values: (N, ...), dense.
        rows: (N,) int, the row of each; None where there is one for each.
    """
    rows = tf.range(tf.shape(is_wrong)[0]) if rows is None else rows
    if tf.executing_eagerly():
        wrong = np.flatnonzero(is_wrong.numpy())
        if len(wrong):
            value = values[wrong[0]].numpy()
            value = value.tolist() if isinstance(value, np.ndarray | np.generic) else _decoded(value)
            raise ValueError(f"{must} Received: {_shown(value)} in row {int(rows[wrong[0]])}.")
        return
    first = tf.where(is_wrong)[:1, 0]
    shown = [
        f"{must} Received:",
        tf.gather(values, first),
        "in row",
        tf.gather(rows, first),
        "of a batch",
    ]
    tf.debugging.Assert(~tf.reduce_any(is_wrong), shown)


def label_numbers(labels, names, rows=None):
    """Numbers (N,) int32 of labels that are names or numbers already; -1, to ignore, is one.

    Args:
        labels: (N,) string, int or bool.
        names: In the order of their numbers.
        rows: As in `refuse`.
    """
    if labels.dtype == tf.string:
        same = labels[:, None] == tf.constant(names)[None, :]
        refuse(~tf.reduce_any(same, axis=1), f"Labels must be among {_listing(names)}.", labels, rows)
        return tf.argmax(same, axis=1, output_type=tf.int32)
    if not (labels.dtype.is_integer or labels.dtype.is_bool):
        wrong = tf.ones_like(labels, tf.bool)
        refuse(wrong, "Labels must be names or whole numbers.", labels, rows)
    numbers = tf.cast(labels, tf.int32)
    wrong = (numbers < -1) | (numbers >= len(names))
    refuse(wrong, f"Labels must be 0 to {len(names) - 1}, or -1 to ignore.", labels, rows)
    return numbers


def _listing(names):
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
