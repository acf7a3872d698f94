"""Strings straight in: `fit`, `evaluate` and `predict` of models that prepare their own input."""

import numpy as np
import tensorflow as tf

from keras_bert.models.columns import as_tensor, hold_strings, named_columns, read_texts

_BATCH_SIZE = 32  # Keras's own, where none is given


class StringInputs:
    """A mix-in for models that take columns of strings where Keras takes rows of token ids.

    Strings become a `tf.data.Dataset` of token rows, tokenized while the model trains; everything else
    goes to Keras as it is. Rows of token ids need no tokenizer.

    A batch is `batch_size` rows of the user's. A row that is read in several windows, of sentences of
    words or of contexts, brings all of them into its batch.

    A subclass has

    * `row_columns`, {name: 1 for a string in each row, 2 for several}, and `optional_columns`;
    * `label_columns`, the names of labels that rows of dicts hold; empty where labels are a `y`;
    * `read_y(y)`, labels of a user as tensors;
    * `numbered(labels, columns)`, the same checked, with numbers for names, eagerly or in the graph;
    * `token_rows(columns, labels, most)`, in the graph: (x, y, the row that each of x is of, or None).
    """

    row_columns = {}  # noqa: RUF012
    optional_columns = ()
    label_columns = ()
    predicts_rows = True  # whether there is one output for each row of the user's

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=1,
        verbose="auto",
        callbacks=None,
        validation_split=0.0,
        validation_data=None,
        shuffle=True,
        class_weight=None,
        sample_weight=None,
        **kwargs,
    ):
        """`keras.Model.fit`, also on strings.

        Args:
            x: As Keras takes it; or a column of strings (list, numpy, pandas, tensor), a tuple or dict
                of columns, a list of dicts, a batched `tf.data.Dataset` of such and their labels.
            y: Labels, by name or by number.
            class_weight: {label, by name or number: factor}.
            **kwargs: And all others: as in Keras.
        """
        rest = {"epochs": epochs, "verbose": verbose, "callbacks": callbacks, **kwargs}
        if validation_data is not None:
            size = kwargs.get("validation_batch_size") or batch_size
            validation_data = self._validation(validation_data, size)
        if not hold_strings(x):
            return super().fit(
                x,
                y,
                batch_size=batch_size,
                validation_split=validation_split,
                validation_data=validation_data,
                shuffle=shuffle,
                class_weight=class_weight,
                sample_weight=sample_weight,
                **rest,
            )
        factors = None if class_weight is None else self.class_factors(class_weight)
        if isinstance(x, tf.data.Dataset):
            if validation_split or y is not None or sample_weight is not None:
                raise ValueError(
                    "`y`, `sample_weight` and `validation_split` must be left out with a dataset: it "
                    "holds labels and weights, and cannot be split."
                )
            return super().fit(
                self._of_dataset(x, factors), validation_data=validation_data, shuffle=False, **rest
            )
        rows = self._read(x, y, sample_weight)
        if factors is not None and "weights" in rows:
            raise ValueError(
                "`class_weight` and `sample_weight` must not be given together. Received: both."
            )
        count = _count(rows["columns"])
        train = count
        if validation_split and validation_data is None:
            train = int(count * (1 - validation_split))
            if not 0 < train < count:
                raise ValueError(
                    "`validation_split` must leave rows on both sides. "
                    f"Received: {validation_split} of {count} rows."
                )
            size = kwargs.get("validation_batch_size") or batch_size
            validation_data = self._of_rows(rows, np.arange(train, count), size)
        dataset = self._of_rows(rows, np.arange(train), batch_size, shuffle, factors)
        return super().fit(dataset, validation_data=validation_data, shuffle=False, **rest)

    def evaluate(self, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, **kwargs):
        """`keras.Model.evaluate`, also on strings; see `fit`."""
        if hold_strings(x):
            x, y, sample_weight = self._prepared(x, y, sample_weight, batch_size), None, None
            batch_size = None
        return super().evaluate(
            x, y, batch_size=batch_size, verbose=verbose, sample_weight=sample_weight, **kwargs
        )

    def predict(self, x, batch_size=None, **kwargs):
        """`keras.Model.predict`, also on strings: logits; `predict_text` gives labels by name."""
        if hold_strings(x):
            if not self.predicts_rows:
                raise ValueError(
                    f"`predict` of a {type(self).__name__} must get rows of token ids: a text may need "
                    "several. `predict_text` takes strings. Received: strings."
                )
            if isinstance(x, tf.data.Dataset):
                x = self._of_dataset(x, labelled=False)
            else:
                rows = self._read(x, labelled=False)
                x = self._of_rows(rows, batch_size=batch_size)
            batch_size = None
        return super().predict(x, batch_size=batch_size, **kwargs)

    def class_factors(self, class_weight):
        """The factor of each label's loss, (C,) float32."""
        raise ValueError(
            "`class_weight` must be None for a model whose labels are no classes. "
            f"Received: {class_weight}."
        )

    def _validation(self, data, batch_size):
        if isinstance(data, tuple):
            x, y, weights = (*data, None, None)[:3]
            return self._prepared(x, y, weights, batch_size) if hold_strings(x) else data
        return self._prepared(data, None, None, batch_size) if hold_strings(data) else data

    def _prepared(self, x, y, sample_weight, batch_size):
        """Batches of token rows in the order of the user's."""
        if isinstance(x, tf.data.Dataset):
            return self._of_dataset(x)
        return self._of_rows(self._read(x, y, sample_weight), batch_size=batch_size)

    def _named(self, x):
        """Columns of texts, and of labels, by name."""
        if self.tokenizer is None or not self.row_columns:
            has = "None" if self.row_columns else f"a {type(self).__name__}, which takes none"
            raise ValueError(
                f"`tokenizer` of the model must be set for strings. Received: strings for {has}."
            )
        found = named_columns(x, [*self.row_columns, *self.label_columns])
        missing = [
            name for name in self.row_columns if name not in found and name not in self.optional_columns
        ]
        if missing:
            raise ValueError(
                f"`x` must have the columns {', '.join(self.row_columns)}. Received: "
                f"{', '.join(map(str, found))}; not {', '.join(missing)}."
            )
        texts = {name: found[name] for name in self.row_columns if name in found}
        return texts, {name: found[name] for name in self.label_columns if name in found}

    def _labels(self, own, y):
        """What the labels are: a `y`, or columns that stand beside the texts."""
        if own and y is not None:
            raise ValueError(f"`y` must be None where `x` holds labels. Received: both, {list(own)}.")
        y = own or y
        if y is None:
            raise ValueError("Strings must come with labels. Received: `y` = None.")
        return y

    def _read(self, x, y=None, sample_weight=None, labelled=True):
        """Everything in memory: a dict of columns, labels and weights, as tensors."""
        texts, own = self._named(x)
        texts = {name: read_texts(c, name, self.row_columns[name]) for name, c in texts.items()}
        counts = {name: len(column) for name, column in texts.items()}
        if labelled:
            labels = self.read_y(self._labels(own, y))
            counts["labels"] = _count(labels)
        if sample_weight is not None:
            weights = np.asarray(sample_weight, "float32")
            if weights.ndim != 1:
                raise ValueError(
                    "`sample_weight` must have a number for each row, (N,), with strings. "
                    f"Received: shape {weights.shape}."
                )
            counts["sample_weight"] = len(weights)
        if len(set(counts.values())) > 1 or not next(iter(counts.values())):
            raise ValueError(f"Columns must have as many rows as each other. Received: {counts}.")
        rows = {"columns": {n: as_tensor(c, self.row_columns[n]) for n, c in texts.items()}}
        if labelled:
            rows["labels"] = self.numbered(labels, rows["columns"])
        if sample_weight is not None:
            rows["weights"] = tf.constant(weights)
        return rows

    def _of_rows(self, rows, numbers=None, batch_size=None, shuffle=False, factors=None):
        """Batches of some of the rows that `_read` gives."""
        numbers = np.arange(_count(rows["columns"])) if numbers is None else numbers
        batch_size = batch_size or _BATCH_SIZE
        dataset = tf.data.Dataset.from_tensor_slices(numbers)
        if shuffle == "batch":
            dataset = dataset.batch(batch_size).shuffle(-(-len(numbers) // batch_size))
        else:
            dataset = (dataset.shuffle(len(numbers)) if shuffle else dataset).batch(batch_size)
        most = {
            name: int(tf.reduce_max(column.row_lengths()))
            for name, column in rows["columns"].items()
            if isinstance(column, tf.RaggedTensor)
        }

        def element(chosen):
            part = tf.nest.map_structure(
                lambda values: tf.gather(values, chosen), rows, expand_composites=False
            )
            labels, weights = part.get("labels"), part.get("weights")
            return self._element(part["columns"], labels, weights, factors, most)

        return _in_background(dataset, element)

    def _of_dataset(self, dataset, factors=None, labelled=True):
        """A user's dataset of batches of strings as one of token rows."""
        spec = dataset.element_spec
        is_tuple = isinstance(spec, tuple)
        self._check_spec(spec[0] if is_tuple else spec)

        def element(*parts):
            x, y, weights = (*parts, None, None)[:3] if is_tuple else (parts[0], None, None)
            if not is_tuple and isinstance(spec, dict):
                (x,) = parts
            texts, own = self._named(x)
            columns = {name: _column(c, self.row_columns[name]) for name, c in texts.items()}
            labels = None
            if labelled:
                labels = self.numbered(self.read_y(self._labels(own, y)), columns)
            if weights is not None and factors is not None:
                raise ValueError(
                    "`class_weight` must be None for a dataset with sample weights. Received: both."
                )
            return self._element(columns, labels, weights, factors, {})

        return _in_background(dataset, element)

    def _check_spec(self, x):
        texts, _ = self._named(x)
        for name, spec in texts.items():
            depth = self.row_columns[name]
            if spec.dtype != tf.string or spec.shape.rank != depth:
                raise ValueError(
                    "A dataset must hold batches of strings: "
                    f"`{name}` of {'(B,)' if depth == 1 else '(B, strings)'}. "
                    f"Received: {spec.dtype.name} {spec.shape}."
                )

    def _element(self, columns, labels, weights, factors, most):
        """A batch as Keras takes it: (x,), (x, y) or (x, y, sample_weight); in the graph."""
        x, y, owners = self.token_rows(columns, labels, most)
        if labels is None:
            return (self._padded(x),)
        if weights is not None:
            weights = tf.cast(weights, tf.float32)
            weights = weights if owners is None else tf.gather(weights, owners)
        elif factors is not None:
            weights = self.weigh(y, factors)
        x, y = self._padded(x), self._padded_labels(y)
        if weights is None:
            return x, y
        if isinstance(y, dict):
            weights = dict.fromkeys(y, weights)
        elif y.shape.rank > 1 and weights.shape.rank > 1:
            weights = self._filled(weights, 0.0)
        return x, y, weights

    def _padded(self, x):
        padding = {"token_ids": self.tokenizer.pad_token_id}
        return {name: self._filled(value, padding.get(name, 0)) for name, value in x.items()}

    def _padded_labels(self, y):
        return y

    def _filled(self, x, value):
        """(..., T) filled up to `max_length`, where every row is to be that long."""
        if self.padding != "max_length":
            return x
        length = self.longest(None)
        missing = [[0, 0]] * (x.shape.rank - 1) + [[0, length - tf.shape(x)[-1]]]
        return tf.ensure_shape(tf.pad(x, missing, constant_values=value), [*x.shape[:-1], length])


def _column(column, depth):
    """A column of a dataset's batch; of several strings in each row ragged, without padding of ""."""
    if depth == 2 and not isinstance(column, tf.RaggedTensor):
        return tf.RaggedTensor.from_tensor(column, padding="")
    return column


def _count(columns):
    """Rows of one column, or of the first of a dict."""
    first = tf.nest.flatten(columns)[0]
    return int(first.nrows() if isinstance(first, tf.RaggedTensor) else first.shape[0])


def _in_background(dataset, element):
    """Batches in order, made while the model computes."""
    dataset = dataset.map(element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return dataset.prefetch(tf.data.AUTOTUNE)
