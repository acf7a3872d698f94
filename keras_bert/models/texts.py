"""From lists of strings to readable rows: the Python side of every model's `text_outputs`."""

import itertools

import numpy as np
import tensorflow as tf

from keras_bert.models.columns import as_tensor, read_texts

# of columns with a string in each row, and with several
_SPECS = {
    1: tf.TensorSpec([None], tf.string),
    2: tf.RaggedTensorSpec([None, None], tf.string, ragged_rank=1),
}


class TextModel:
    """A mix-in for models with `text_outputs`: a graph function from strings to named results.

    A subclass has `text_outputs(tokenizer, *columns, **options)`, whose results have a row for each
    row of its columns, and `readable(row, **options)`, which makes a Python value of one row.
    """

    text_columns = {"text": 1}  # noqa: RUF012 -- name: 1 for a string in each row, 2 for several

    def predict_columns(self, columns, batch_size, **options):
        """Readable results for each row of some columns of strings, in their order.

        Rows of similar length are computed together; what a row gets does not depend on them.

        Args:
            columns: The first of `text_columns`, or all: lists, or columns of numpy, pandas, tensors.
            batch_size: Rows that are computed at once.
        """
        if self.tokenizer is None:
            raise ValueError("`tokenizer` of the model must be set for `predict_text`. Received: None.")
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1. Received: {batch_size}.")
        names = [*self.text_columns][: len(columns)]
        depths = [self.text_columns[name] for name in names]
        columns = [
            read_texts(column, name, depth)
            for column, name, depth in zip(columns, names, depths, strict=True)
        ]
        count = len(columns[0])
        if any(len(column) != count for column in columns):
            raise ValueError(
                f"Texts must be as many in each list. Received: {[len(column) for column in columns]}."
            )
        lengths = [sum(map(_length, row)) for row in zip(*columns, strict=True)]
        order = np.argsort(lengths, kind="stable")[::-1]
        results = [None] * count
        function = self._text_function(depths, options)
        for begin in range(0, count, batch_size):
            chosen = order[begin : begin + batch_size]
            batch = [
                as_tensor([column[i] for i in chosen], depth)
                for column, depth in zip(columns, depths, strict=True)
            ]
            out = {name: _rows_of(value) for name, value in function(*batch).items()}
            for place, index in enumerate(chosen):
                row = {name: rows[place] for name, rows in out.items()}
                results[index] = self.readable(row, **options)
        return results

    def _text_function(self, depths, options):
        """The graph of these options, traced once."""
        key = (self.tokenizer, self.encoder.layout, tuple(depths), tuple(sorted(options.items())))
        if getattr(self, "_traced", (None, None))[0] != key:
            specs = [_SPECS[depth] for depth in depths]

            def outputs(*batch):
                return self.text_outputs(self.tokenizer, *batch, **options)

            self._traced = (key, tf.function(outputs, input_signature=specs, autograph=False))
        return self._traced[1]


def _length(value):
    return len(value) if isinstance(value, str) else sum(map(len, value))


def _rows_of(value):
    """The rows of a dense or ragged tensor, as numpy arrays."""
    if isinstance(value, tf.RaggedTensor):
        splits, flat = value.row_splits.numpy(), value.values
        flat = _rows_of(flat) if isinstance(flat, tf.RaggedTensor) else flat.numpy()
        return [flat[begin:end] for begin, end in itertools.pairwise(splits)]
    return value.numpy()
