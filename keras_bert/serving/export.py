"""SavedModels that take strings and return answers, in the form that TF Serving loads."""

import inspect
import json
import os
import posixpath

import numpy as np
import tensorflow as tf

from keras_bert.files import write_atomically
from keras_bert.models.loading import check_vocabulary
from keras_bert.models.signatures import DEFAULT, Signature
from keras_bert.serving.guide import guide
from keras_bert.serving.stored_weights import StoredWeights
from keras_bert.serving.versions import new_draft, publish, write_server_files
from keras_bert.serving.warmup import read_warmup, write_warmup

FACTS = "assets.extra/model.json"
TOKENIZER = "assets.extra/tokenizer"
_WARMUP_ROWS = (1, 8)


def export_saved_model(
    model,
    tokenizer=None,
    base_dir=None,
    *,
    weights="float32",
    layout="unpadded",
    serialized_examples=False,
    model_name=None,
    **options,
):
    """Writes `base_dir/<version>/`, as TF Serving expects it, and returns that path.

    Signatures: `serving_default`, and for classifiers `text_pair`, take strings; `token_ids` takes what
    a client has tokenised; `serialized_examples`, if asked for, takes tf.Examples with the columns of
    `serving_default`. What they return is told by `keras_bert.models.signatures`. The vocabulary is
    inside the graph; the tokenizer's files and the labels lie in `assets.extra/`.

    The directory is written beside its place, its warm-up requests are answered, and then it is
    renamed: a server that watches `base_dir` never sees half of it, and of several exports at once each
    gets a version. A process that is killed may leave a `draft-...`, which servers pass over.

    Args:
        model: A model of this package that answers text; one made under a strategy, too.
        tokenizer: The tokenizer whose vocabulary it was trained on; None for the model's own.
        base_dir: Directory of versions; the next free number is taken.
        weights: How they are stored, "float32", "bfloat16" or "int8": see `stored_weights`.
        layout: How the graph lays out tokens; "dense" computes padding too.
        serialized_examples: Whether that signature is wanted.
        model_name: Name that the server is to know the model by; None for that of `base_dir`.
        **options: Of the model's `text_signatures`, such as `max_length`, `pairs` or `n_best`.

    Raises:
        ValueError: When the model answers no text, when tokenizer and model disagree about the size of
            the vocabulary, or when an option does not fit.
    """
    if base_dir is None:
        raise ValueError("`base_dir` must be a directory. Received: None.")
    base_dir = os.fspath(base_dir).rstrip("/")
    tokenizer = model.tokenizer if tokenizer is None else tokenizer
    if tokenizer is None:
        raise ValueError("`tokenizer` must be given where the model has none. Received: None.")
    if not hasattr(model, "text_signatures"):
        raise ValueError(
            f"The model must have a head that answers text. Received: a {type(model).__name__}."
        )
    check_vocabulary(tokenizer, model.config, may_be_smaller=tokenizer is model.tokenizer)
    known = list(inspect.signature(model.text_signatures).parameters)[1:]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"Options for a {type(model).__name__} must be among {', '.join(known)}. "
            f"Received: {', '.join(unknown)}."
        )
    signatures = model.text_signatures(tokenizer, **options)
    if serialized_examples:
        signatures["serialized_examples"] = _of_examples(signatures[DEFAULT])
    model_name = model_name or posixpath.basename(base_dir)
    draft = new_draft(base_dir)
    try:
        _write_module(draft, model, tokenizer, signatures, weights, layout)
        _write_extra(draft, model, tokenizer, weights, options)
        requests = [
            (name, {column: np.resize(value, (rows, *np.shape(value)[1:])) for column, value in sample})
            for name, sample in ((name, each.sample.items()) for name, each in signatures.items())
            for rows in _WARMUP_ROWS
        ]
        write_warmup(draft, model_name, requests)
        replay_warmup(draft)
        path = publish(base_dir, draft)
    finally:
        if tf.io.gfile.exists(draft):
            tf.io.gfile.rmtree(draft)
    write_server_files(base_dir, model_name, guide(model_name, signatures))
    return path


def replay_warmup(directory):
    """Answers the warm-up requests of an export, as a server does that loads it."""
    served = tf.saved_model.load(directory).signatures
    for name, columns in read_warmup(directory):
        rows = len(next(iter(columns.values())))
        for output, value in served[name](**{k: tf.constant(v) for k, v in columns.items()}).items():
            if value.shape.rank == 0 or value.shape[0] != rows:
                raise ValueError(
                    "Every result must have a row for each request. "
                    f"Received: {output} of shape {value.shape} for {rows} requests to {name}."
                )


def _write_module(directory, model, tokenizer, signatures, weights, layout):
    module = tf.Module()
    module.tokenizer = tokenizer
    stored = StoredWeights(model.weights, weights)
    module.weights = stored.variables
    module.loaded = stored.loaded

    def traced(signature):
        @tf.function(autograph=False)
        def answer(**columns):
            with stored.scope():
                return signature.answer(**columns)

        return answer.get_concrete_function(**signature.columns)

    before = model.encoder.layout
    model.encoder.layout = layout
    try:
        functions = {name: traced(signature) for name, signature in signatures.items()}
    finally:
        model.encoder.layout = before
    tf.saved_model.save(module, directory, signatures=functions)


def _of_examples(signature):
    """The same answers for serialized tf.Examples, whose features are the signature's columns."""
    features = {
        name: tf.io.FixedLenFeature([], tf.string)
        if spec.shape.rank == 1
        else tf.io.RaggedFeature(tf.string)
        for name, spec in signature.columns.items()
    }

    def answer(examples):
        columns = tf.io.parse_example(examples, features)
        dense = {
            name: value.to_tensor() if isinstance(value, tf.RaggedTensor) else value
            for name, value in columns.items()
        }
        return signature.answer(**dense)

    def bytes_of(value):
        values = np.atleast_1d(value).tolist()
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[v.encode() for v in values]))

    rows = [
        dict(zip(signature.sample, row, strict=True))
        for row in zip(*signature.sample.values(), strict=True)
    ]
    sample = [
        tf.train.Example(
            features=tf.train.Features(feature={name: bytes_of(value) for name, value in row.items()})
        ).SerializeToString()
        for row in rows
    ]
    columns = {"examples": tf.TensorSpec([None], tf.string, "examples")}
    return Signature(columns, answer, {"examples": np.array(sample, object)})


def _write_extra(directory, model, tokenizer, weights, options):
    """What clients may want to know of the model; servers pass over it."""
    facts = {
        "model": type(model).__name__,
        "model_type": model.config.model_type,
        "max_length": model.config.max_length,
        "weights": weights,
        "options": options,
        **{name: getattr(model, name) for name in model.head_options},
    }
    tf.io.gfile.makedirs(posixpath.join(directory, posixpath.dirname(FACTS)))
    write_atomically(posixpath.join(directory, FACTS), json.dumps(facts, indent=2, ensure_ascii=False))
    tokenizer.save_pretrained(posixpath.join(directory, TOKENIZER))
