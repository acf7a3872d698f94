"""Strings in `fit`, `evaluate`, `predict`: the same numbers as of rows that were tokenized by hand."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_task_texts import CONFIG, TOKENIZER, logits_of, make, row_of
from test_task_texts import TEXTS as ALL_TEXTS

from keras_bert import (
    BertClassifier,
    BertDiscriminator,
    BertMultipleChoice,
    BertQuestionAnswering,
    BertTokenClassifier,
    TextPreprocessor,
)
from keras_bert.text.features import answer_rows, word_rows

TEXTS = ALL_TEXTS[:6]
NAMES = ["no", "perhaps", "yes"]
LABELS = ["no", "yes", "perhaps", "yes", "no", "perhaps"]
NUMBERS = np.array([NAMES.index(label) for label in LABELS], "int32")
PAIRS = TEXTS[::-1]


class Column:
    """What of a pandas Series is used; pandas itself is no requirement."""

    def __init__(self, values):
        self.values = np.array(values, object)
        self.dtype = self.values.dtype

    def tolist(self):
        return self.values.tolist()

    def __len__(self):
        return len(self.values)


def copy_of(model):
    copy = type(model).from_config(model.get_config())
    copy.set_weights(model.get_weights())
    copy.compile()
    return copy


def figures(model, *args, **kwargs):
    return model.evaluate(*args, verbose=0, return_dict=True, **kwargs)


def same(a, b):
    assert set(a) == set(b)
    for name in set(a) - {"loss"}:  # Keras's own, a mean of batch means
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def classifier():
    model = make(BertClassifier, label_names=NAMES)
    model.compile()
    return model


@pytest.mark.parametrize("padding", ["longest", "max_length"])
def test_fit_is_that_of_rows_tokenized_by_hand(padding):
    model = make(BertClassifier, label_names=NAMES, max_length=12, padding=padding)
    weights = np.array([1, 2, 0, 1, 3, 1], "float32")
    strings, rows = copy_of(model), copy_of(model)
    prepare = TextPreprocessor(TOKENIZER, max_length=12, padding=padding)
    got = strings.fit(
        (TEXTS, PAIRS),
        LABELS,
        batch_size=2,
        epochs=2,
        shuffle=False,
        sample_weight=weights,
        validation_data=(TEXTS[:3], LABELS[:3]),
        verbose=0,
    )
    x = tf.data.Dataset.from_tensor_slices((TEXTS, PAIRS, NUMBERS, weights)).batch(2)
    val = tf.data.Dataset.from_tensors((prepare(TEXTS[:3]), NUMBERS[:3]))
    x = x.map(lambda a, b, y, w: (prepare(a, b), y, w))
    expected = rows.fit(x, epochs=2, validation_data=val, verbose=0)
    same(got.history, expected.history)
    for a, b in zip(strings.weights, rows.weights, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_the_forms_of_columns(classifier):
    array = np.array(TEXTS), np.array(PAIRS, object)
    datasets = [
        tf.data.Dataset.from_tensor_slices(((TEXTS, PAIRS), labels)).batch(4)
        for labels in (LABELS, NUMBERS)
    ]
    expected = figures(
        classifier, dict(TextPreprocessor(TOKENIZER, 24, padding="longest")(TEXTS, PAIRS)), NUMBERS
    )
    rows = [{"id": 1, "text": a, "text_pair": b} for a, b in zip(TEXTS, PAIRS, strict=True)]
    for x, y in (
        ((TEXTS, PAIRS), LABELS),
        (array, Column(LABELS)),
        ({"text_pair": Column(PAIRS), "text": tf.constant(TEXTS)}, NUMBERS),
        (rows, np.array(LABELS)),
        *((each, None) for each in datasets),
    ):
        same(figures(classifier, x, y, batch_size=None if y is None else 4), expected)
    assert classifier._of_dataset(datasets[0]).cardinality() == 2


def test_predict_gives_a_row_of_logits_for_each_text(classifier):
    expected = [np.asarray(logits_of(classifier, *row_of(text)))[0] for text in TEXTS]
    for x in (TEXTS, tf.data.Dataset.from_tensor_slices(TEXTS).batch(4)):
        np.testing.assert_allclose(classifier.predict(x, verbose=0), expected, atol=1e-5)


def test_one_hot_rows_and_weights_of_classes(classifier):
    one_hot = np.eye(3, dtype="float32")[NUMBERS]
    expected = figures(classifier, TEXTS, LABELS)
    same(figures(classifier, TEXTS, one_hot), expected)
    same(figures(classifier, TEXTS, one_hot.astype("int32").tolist()), expected)
    shares = np.tile([[0.5, 0.25, 0.25]], (6, 1)).astype("float32")
    scores = np.concatenate([logits_of(classifier, *row_of(text)) for text in TEXTS])
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    loss = figures(classifier, TEXTS, shares)["loss"]
    assert loss == pytest.approx(-(shares * logs).sum(1).mean(), rel=1e-5)
    factors = np.array([1, 5, 0.5])
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    for y in (LABELS, one_hot):
        config = classifier.get_config()
        model = BertClassifier.from_config({**config, "config": {**config["config"], **still}})
        model.set_weights(classifier.get_weights())
        model.compile(keras.optimizers.SGD(0.0))
        weighed = model.fit(
            TEXTS, y, class_weight={"perhaps": 5, 2: 0.5}, batch_size=6, verbose=0
        ).history
        losses = -logs[np.arange(6), NUMBERS] * factors[NUMBERS]
        assert weighed["labels_loss"][0] == pytest.approx(
            losses.sum() / factors[NUMBERS].sum(), rel=1e-5
        )


@pytest.mark.parametrize(
    "options", [{"class_weights": [1, 2, 3], "focal_gamma": 2.0}, {"label_smoothing": 0.2}]
)
def test_options_of_the_loss_hold_for_one_hot_rows(options):
    model = make(BertClassifier, label_names=NAMES, **options)
    model.compile()
    same(figures(model, TEXTS, np.eye(3)[NUMBERS]), figures(model, TEXTS, NUMBERS))


def test_several_labels_and_numbers():
    model = make(BertClassifier, label_names=NAMES, problem_type="multi_label")
    model.compile()
    names = [["no"], [], ["yes", "no"], ["perhaps"], [], ["yes"]]
    rows = np.array([[name in each for name in NAMES] for each in names], "float32")
    same(figures(model, TEXTS, names), figures(model, TEXTS, rows))
    with pytest.raises(ValueError, match=r"among no, perhaps, yes. Received: 'oh' in row 2"):
        model.evaluate(TEXTS[:3], [["no"], [], ["yes", "oh"]])
    model = make(BertClassifier, num_labels=1)
    model.compile()
    scores = [row["score"] for row in model.predict_text(TEXTS)]
    loss = figures(model, TEXTS, [1, 2, 3.5, 0, 0, 0])["loss"]
    assert loss == pytest.approx(np.mean((np.array(scores) - [1, 2, 3.5, 0, 0, 0]) ** 2), rel=1e-4)
    with pytest.raises(ValueError, match="must be finite numbers. Received: nan in row 1"):
        model.evaluate(TEXTS[:2], [1.0, np.nan])


def test_order_is_drawn_anew_in_each_epoch(classifier):
    rows = classifier._read(["a"] * 50, np.arange(50) % 3)
    rows["labels"] = tf.range(50)
    for shuffle in (True, "batch"):
        dataset = classifier._of_rows(rows, batch_size=5, shuffle=shuffle)
        assert dataset.cardinality() == 10
        epochs = [np.concatenate([y for _, y in dataset.as_numpy_iterator()]) for _ in range(2)]
        assert all(sorted(each) == list(range(50)) for each in epochs)
        assert epochs[0].tolist() != epochs[1].tolist()
        if shuffle == "batch":
            assert all((np.diff(epoch.reshape(10, 5)) == 1).all() for epoch in epochs)


def test_validation_split_takes_the_last_rows():
    model = make(BertClassifier, label_names=NAMES)
    model.compile(keras.optimizers.SGD(0.0))
    got = model.fit(TEXTS, LABELS, validation_split=0.5, verbose=0).history
    assert got["val_loss"][0] == pytest.approx(figures(model, TEXTS[3:], LABELS[3:])["loss"], rel=1e-5)


SENTENCES = [["ax", "b", "c"] * 8, ["\u200b", "d"], ["who", "cxy"]]
TAGS = [["O", "B-p", "I-p"] * 8, ["B-p", "O"], ["O", "B-p"]]


@pytest.mark.filterwarnings("ignore:Gradients do not exist for variables .'encoder/pooler")
@pytest.mark.parametrize("padding", ["longest", "max_length"])
def test_tags_of_sentences(padding):
    names = ["O", "B-p", "I-p"]
    model = make(BertTokenClassifier, label_names=names, max_length=8, padding=padding)
    model.compile()
    words = word_rows(SENTENCES, TOKENIZER, 8, 2)
    numbers = [names.index(tag) for tags in TAGS for tag in tags]
    ids = words.inputs["token_ids"]
    x = {"token_ids": ids.to_tensor(), "padding_mask": tf.ones_like(ids).to_tensor()}
    expected = figures(model, x, words.label(numbers).to_tensor(-1))
    rows = [{"words": w, "tags": t} for w, t in zip(SENTENCES, TAGS, strict=True)]
    ragged = tf.ragged.constant(SENTENCES), tf.ragged.constant(TAGS)
    padded = tuple(each.to_tensor("") for each in ragged)
    same(figures(model, rows), expected)
    same(figures(model, SENTENCES, TAGS, batch_size=2), expected)
    for columns in (ragged, padded):
        same(figures(model, tf.data.Dataset.from_tensor_slices(columns).batch(2)), expected)
    model.fit(rows, class_weight={"B-p": 3}, epochs=2, verbose=0)
    for tags, message in (
        ([TAGS[0], ["O", "X"], TAGS[2]], r"among O, B-p, I-p. Received: 'X' in row 1"),
        ([TAGS[0], ["O"], TAGS[2]], r"a tag for each word. Received: \[1, 2\] in row 1"),
    ):
        with pytest.raises(ValueError, match=message):
            model.evaluate(SENTENCES, tags)
    with pytest.raises(ValueError, match="`predict_text` takes strings"):
        model.predict(SENTENCES)


QUESTIONS = [
    {
        "id": "1",
        "question": "who",
        "context": "a b c d " * 6,
        "answers": ["c d", "a"],
        "starts": [20, 0],
    },
    {"id": "2", "question": "ax", "context": "a", "answers": [], "starts": []},
]


@pytest.mark.filterwarnings("ignore:Gradients do not exist for variables .'encoder/pooler")
@pytest.mark.parametrize("padding", ["longest", "max_length"])
def test_questions_on_texts(padding):
    model = make(BertQuestionAnswering, max_length=16, padding=padding)
    model.compile()
    columns = {name: [row[name] for row in QUESTIONS] for name in QUESTIONS[0]}
    rows = answer_rows(columns["question"], columns["context"], TOKENIZER, 16, 4, 8)
    y = rows.label([20, -1], [23, -1])
    assert np.count_nonzero(y["start_positions"]) > 1
    assert len(rows.texts) > 4
    ids = rows.inputs["token_ids"]
    x = {"token_ids": ids.to_tensor(), "padding_mask": tf.ones_like(ids).to_tensor()}
    x["segment_ids"] = rows.inputs["segment_ids"].to_tensor()
    expected = figures(model, x, y)
    same(figures(model, QUESTIONS), expected)
    labels = {name: columns[name] for name in ("answers", "starts")}
    same(figures(model, (columns["question"], columns["context"]), labels, batch_size=1), expected)
    ragged = {
        name: tf.ragged.constant(value, dtype=tf.string if name == "answers" else tf.int32)
        if name in labels
        else tf.constant(value)
        for name, value in columns.items()
    }
    same(figures(model, tf.data.Dataset.from_tensor_slices(ragged).batch(2)), expected)
    model.fit(QUESTIONS, sample_weight=[1.0, 0.0], verbose=0)
    with pytest.raises(ValueError, match="where its start says. Received: 'c d' in row 0"):
        model.evaluate([{**QUESTIONS[0], "starts": [21, 0]}, QUESTIONS[1]])


def test_different_numbers_of_choices():
    model = make(BertMultipleChoice)
    model.compile()
    contexts, choices = ["a", "b c", "who"], [["c", "d", "a b"], ["b", "ax"], ["d"]]
    answers = model.predict_text(contexts, choices)
    logits = model.predict((contexts, choices), batch_size=1, verbose=0)
    assert logits.shape == (3, 3)
    for row, options in enumerate(choices):
        expected = []
        for option in options:
            ids, segments = row_of(contexts[row], option)
            x = {"token_ids": [[ids]], "padding_mask": [[[1] * len(ids)]], "segment_ids": [[segments]]}
            x = {name: np.array(value, "int32") for name, value in x.items()}
            expected.append(float(model(x)[0, 0]))
        np.testing.assert_allclose(logits[row, : len(options)], expected, atol=1e-5)
        assert (logits[row, len(options) :] == -1e9).all()
        shares = np.exp(expected) / np.exp(expected).sum()
        np.testing.assert_allclose(answers[row]["probabilities"], shares, atol=1e-5)
    losses = [-np.log(answers[row]["probabilities"][label]) for row, label in ((0, 2), (1, 0))]
    got = figures(model, (contexts, choices), [2, 0, -1])
    assert got["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    for x, y, message in (
        ((contexts, choices), [2, 2, 0], "number of a choice of their row.*Received: 2 in row 1"),
        ((contexts, [["a"], [], ["b"]]), [0, 0, 0], r"at least one. Received: \[\] in row 1"),
    ):
        with pytest.raises(ValueError, match=message):
            model.evaluate(x, y)


def test_a_file_brings_its_tokenizer(classifier, tmp_path):
    """In a process that has the file and nothing else."""
    classifier.save(tmp_path / "model.keras")
    code = (
        "import sys, json, keras, keras_bert\n"
        "model = keras.models.load_model(sys.argv[1])\n"
        "texts = json.loads(sys.argv[2])\n"
        "print('\\n' + json.dumps(model.predict_text(texts)))\n"
        "model.fit(texts, ['no'] * len(texts), verbose=0)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model.keras"), json.dumps(TEXTS)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout.strip().splitlines()[-1]) == [
        {"label": row["label"], "probabilities": pytest.approx(row["probabilities"], abs=1e-6)}
        for row in classifier.predict_text(TEXTS)
    ]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (TEXTS, [*LABELS[:5], "oh"], "among no, perhaps, yes. Received: 'oh' in row 5"),
        (TEXTS, [0, 1, 2, 3, 0, 0], "must be 0 to 2, or -1 to ignore. Received: 3 in row 3"),
        (TEXTS, [0, 1, None, 3, 0, 0], "all be names, or numbers. Received: None in row 2"),
        (TEXTS, [0.5] * 6, "names or whole numbers. Received: 0.5 in row 0"),
        (TEXTS, np.zeros((6, 2)), r"must be \(N, 3\). Received: float32 of shape \(6, 2\)"),
        (TEXTS, np.zeros((6, 3)), r"shares that sum to 1. Received: \[0.0, 0.0, 0.0\] in row 0"),
        (TEXTS, LABELS[:5], "as many rows as each other. Received: {'text': 6, 'labels': 5}"),
        (TEXTS, None, "must come with labels"),
        (["a", None], [0, 1], "`text` must be a list of strings. Received: None in row 1"),
        ({"text": ["a"], "txt": ["b"]}, [0], r"among text, text_pair. Received: \['txt'\]"),
        ({"text_pair": ["b"]}, [0], "Received: text_pair; not text"),
        ("a", [0], "`text` must be a list of strings. Received: 'a'"),
    ],
)
def test_refusals(classifier, x, y, message):
    with pytest.raises(ValueError, match=message):
        classifier.evaluate(x, y)


def test_refusals_of_datasets_and_models(classifier):
    texts = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS))
    with pytest.raises(
        ValueError, match=r"batches of strings: `text` of \(B,\). Received: string \(\)"
    ):
        classifier.fit(texts)
    wrong = tf.data.Dataset.from_tensor_slices((TEXTS, ["oh"] * 6)).batch(2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="among no, perhaps, yes"):
        classifier.evaluate(wrong, verbose=0)
    with pytest.raises(ValueError, match="Received: 'oh'"):
        classifier.fit(TEXTS, LABELS, class_weight={"oh": 1})
    with pytest.raises(ValueError, match="`tokenizer` of the model must be set for strings"):
        BertClassifier(CONFIG, num_labels=2).predict(["a"])
    with pytest.raises(ValueError, match="a BertDiscriminator, which takes none"):
        BertDiscriminator(CONFIG, tokenizer=TOKENIZER).predict(["a"])
