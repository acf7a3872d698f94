"""`predict_text` of the task models: against loops over the model's own logits, row by row."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import scramble

from keras_bert import (
    BertClassifier,
    BertMaskedLM,
    BertMultipleChoice,
    BertQuestionAnswering,
    BertTokenClassifier,
    EncoderConfig,
    WordPieceTokenizer,
)
from keras_bert.text.entities import entities

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "##x", "##y", ".", "who"]
TOKENIZER = WordPieceTokenizer(PIECES)
CONFIG = EncoderConfig(
    vocab_size=len(PIECES),
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=24,
    initializer_range=0.5,
)
TEXTS = ["ax b", "", "d. a", "who  Ax\tb — cxy d. a b c", "\u200b", "b " * 40, "b\ud7ff c"]
LAYOUTS = ["dense", "unpadded"]


def make(kind, layout="dense", **options):
    return scramble(kind(CONFIG, layout=layout, tokenizer=TOKENIZER, **options))


def logits_of(model, ids, segments=None):
    """Of one row, alone and without padding."""
    ids = np.array([ids], "int32")
    x = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
    if segments is not None:
        x["segment_ids"] = np.array([segments], "int32")
    return model(x)


def row_of(*texts, limit=24):
    ids = [TOKENIZER.tokenize(text).numpy().tolist() for text in texts]
    while sum(map(len, ids)) + 1 + len(ids) > limit:  # the longer one loses its end
        longest = len(ids) - 1 - int(np.argmax([len(each) for each in reversed(ids)]))
        ids[longest].pop()
    row, segments = [2], [0]
    for number, each in enumerate(ids):
        row += [*each, 3]
        segments += [number] * (len(each) + 1)
    return row, segments


@pytest.mark.parametrize("batch_size", [1, 3, 100])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_labels_of_texts_and_pairs(layout, batch_size):
    model = make(BertClassifier, layout, label_names=["no", "perhaps", "yes"])
    for columns in ([TEXTS], [TEXTS, TEXTS[::-1]]):
        found = model.predict_text(*columns, batch_size=batch_size)
        assert len(found) == len(TEXTS)
        for texts, got in zip(zip(*columns, strict=True), found, strict=True):
            logits = np.asarray(logits_of(model, *row_of(*texts)))[0]
            expected = np.exp(logits) / np.exp(logits).sum()
            np.testing.assert_allclose(list(got["probabilities"].values()), expected, atol=1e-5)
            assert list(got["probabilities"]) == ["no", "perhaps", "yes"]
            assert got["label"] == model.label_names[expected.argmax()]


def test_numbers_and_several_labels():
    model = make(BertClassifier, num_labels=1, problem_type="regression")
    for text, got in zip(TEXTS, model.predict_text(TEXTS), strict=True):
        expected = float(np.asarray(logits_of(model, *row_of(text)))[0, 0])
        assert got == {"score": pytest.approx(expected, abs=1e-5)}
    model = make(BertClassifier, label_names=["x", "y"], problem_type="multi_label")
    for text, got in zip(TEXTS, model.predict_text(TEXTS), strict=True):
        expected = 1 / (1 + np.exp(-np.asarray(logits_of(model, *row_of(text)))[0]))
        np.testing.assert_allclose(list(got["probabilities"].values()), expected, atol=1e-5)
        names = zip("xy", expected, strict=True)
        assert got["labels"] == [name for name, value in names if value > 0.5]


def windows_of(count, room, stride):
    starts = [0]
    while starts[-1] + room < count:
        starts.append(starts[-1] + stride)
    return [(start, min(room, count - start)) for start in starts]


def words_by_hand(model, text, max_length, stride):
    """(label, probability, start, end) of each word of a text."""
    pieces = {name: x.numpy() for name, x in TOKENIZER.tokenize_with_offsets(text).items()}
    ids, count = pieces["token_ids"].tolist(), len(pieces["token_ids"])
    best = {}
    for number, (start, size) in enumerate(windows_of(count, max_length - 2, stride)):
        row = [2, *ids[start : start + size], 3]
        logits = np.asarray(logits_of(model, row, [0] * len(row)))[0, 1:-1]
        for place in range(size):
            context = min(place, size - 1 - place)
            if (-context, number) < best.get(start + place, (1, 0))[:2]:
                best[start + place] = (-context, number, logits[place])
    words = []
    for piece in range(count):
        if piece and pieces["word_ids"][piece] == pieces["word_ids"][piece - 1]:
            words[-1][3] = int(pieces["char_ends"][piece])
            continue
        logits = best[piece][2]
        probabilities = np.exp(logits) / np.exp(logits).sum()
        start, end = (int(pieces[f"char_{name}s"][piece]) for name in ("start", "end"))
        words.append([int(probabilities.argmax()), probabilities.max(), start, end])
    return words


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("max_length", "stride"), [(24, None), (8, 3), (5, 1)])
def test_entities_of_texts_of_any_length(layout, max_length, stride):
    names = ["O", "B-p", "I-p", "B-q", "I-q"]
    model = make(BertTokenClassifier, layout, label_names=names)
    found = model.predict_text(TEXTS, batch_size=2, max_length=max_length, stride=stride)
    total = 0
    for text, got in zip(TEXTS, found, strict=True):
        words = words_by_hand(model, text, max_length, stride or max_length // 4)
        expected = entities([names[word[0]] for word in words])
        assert len(got) == len(expected)
        for each, (kind, first, end) in zip(got, expected, strict=True):
            assert each["label"] == kind
            assert (each["start"], each["end"]) == (words[first][2], words[end - 1][3])
            assert each["text"] == text[each["start"] : each["end"]]
            least = min(word[1] for word in words[first:end])
            assert each["score"] == pytest.approx(least, abs=1e-5)
        total += len(got)
    assert total > 10


def test_other_tags_are_given_for_each_word():
    model = make(BertTokenClassifier, label_names=["DET", "NOUN"])
    for text, got in zip(TEXTS, model.predict_text(TEXTS, max_length=8, stride=2), strict=True):
        words = words_by_hand(model, text, 8, 2)
        assert [model.label_names[word[0]] for word in words] == [each["label"] for each in got]
        assert [word[2:] for word in words] == [[each["start"], each["end"]] for each in got]


def answers_by_hand(model, question, context, max_length, stride, longest):
    """{(start, end): score} of all spans, and the score of none."""
    pieces = {name: x.numpy() for name, x in TOKENIZER.tokenize_with_offsets(context).items()}
    asked = TOKENIZER.tokenize(question).numpy().tolist()[: max_length // 2]
    ids, spans, none = pieces["token_ids"].tolist(), {}, np.inf
    for start, size in windows_of(len(ids), max_length - 3 - len(asked), stride):
        row = [2, *asked, 3, *ids[start : start + size], 3]
        segments = [0] * (len(asked) + 2) + [1] * (size + 1)
        logits = logits_of(model, row, segments)
        begin, end = (np.asarray(logits[f"{name}_positions"])[0] for name in ("start", "end"))
        none = min(none, begin[0] + end[0])
        first = len(asked) + 2
        for i in range(size):
            for j in range(i, min(size, i + longest)):
                chars = pieces["char_starts"][start + i], pieces["char_ends"][start + j]
                score = begin[first + i] + end[first + j]
                spans[chars] = max(score, spans.get(chars, -np.inf))
    return spans, none


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("max_length", "stride"), [(24, 6), (12, 2)])
def test_answers_are_the_best_spans_of_all_windows(layout, max_length, stride):
    model = make(BertQuestionAnswering, layout)
    contexts = TEXTS
    questions = ["who", "", "a b c d a b c d a b c d", "who b", "a", "d", "ax"]
    options = {"max_length": max_length, "stride": stride, "max_answer_length": 4}
    found = model.predict_text(questions, contexts, n_best=3, batch_size=2, **options)
    for question, context, got in zip(questions, contexts, found, strict=True):
        spans, none = answers_by_hand(model, question, context, max_length, stride, 4)
        ordered = sorted(spans.items(), key=lambda item: -item[1])[:3]
        assert [(each["start"], each["end"]) for each in got["answers"]] == [
            tuple(map(int, chars)) for chars, _ in ordered
        ]
        if not spans:
            assert got["answer"] == ""
            assert got["no_answer_margin"] == np.inf
            continue
        assert got["answer"] == context[got["start"] : got["end"]]
        assert got["no_answer_margin"] == pytest.approx(none - ordered[0][1], abs=1e-4)
        scores = np.array([*(score for _, score in ordered), none])
        expected = (np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum())[:-1]
        np.testing.assert_allclose([each["score"] for each in got["answers"]], expected, atol=1e-5)
    margins = sorted(each["no_answer_margin"] for each in found)
    some = model.predict_text(questions, contexts, no_answer_threshold=margins[2] + 1e-3, **options)
    assert sum(each["answer"] == "" for each in some) == len(questions) - 3


def test_choices():
    model = make(BertMultipleChoice)
    choices = [[text, "b c", f"{text} d"] for text in TEXTS]
    for context, options, got in zip(
        TEXTS, choices, model.predict_text(TEXTS, choices, batch_size=2), strict=True
    ):
        logits = []
        for option in options:
            row, segments = row_of(context, option)
            x = {"token_ids": [[row]], "padding_mask": [[[1] * len(row)]], "segment_ids": [[segments]]}
            x = {name: np.array(value, "int32") for name, value in x.items()}
            logits.append(float(np.asarray(model(x))[0, 0]))
        expected = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(got["probabilities"], expected, atol=1e-5)
        assert got["choice"] == expected.argmax()


def test_refusals():
    model = make(BertClassifier, num_labels=2)
    assert model.predict_text([]) == []
    for call, message in (
        (lambda: model.predict_text("one"), "must be a list of strings"),
        (lambda: model.predict_text(["a"], ["b", "c"]), r"as many in each list. Received: \[1, 2\]"),
        (lambda: model.predict_text(["a"], batch_size=0), "`batch_size` must be at least 1"),
        (lambda: model.predict_text(["a"], max_length=25), "`max_length` must be at most 24"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    tagger = make(BertTokenClassifier, num_labels=2)
    with pytest.raises(ValueError, match="stride=9, room for 6 tokens"):
        tagger.predict_text(["a"], max_length=8, stride=9)
    model.tokenizer = None
    with pytest.raises(ValueError, match="`tokenizer` of the model must be set"):
        model.predict_text(["a"])


@pytest.mark.parametrize(
    ("texts", "received"),
    [
        ([b"a"], "b'a' in row 0"),
        (["a", None], "None in row 1"),
        (["a", 3], "3 in row 1"),
        ([0.5], "0.5 in row 0"),
        ("a", "'a'"),
        (None, "None"),
        (7, "7"),
        (tf.constant("a"), "<tf.Tensor: shape=\\(\\), dtype=string"),
        (np.array("a"), "array\\('a'"),
        ([["a"]], r"\['a'\] in row 0"),
    ],
)
def test_what_is_no_list_of_strings(texts, received):
    for model, name in (
        (make(BertClassifier, num_labels=2), "text"),
        (make(BertTokenClassifier, num_labels=2), "text"),
        (make(BertMaskedLM), "text"),
    ):
        with pytest.raises(
            ValueError, match=f"`{name}` must be a list of strings. Received: {received}"
        ):
            model.predict_text(texts)
    for kind in (BertQuestionAnswering, BertMultipleChoice):
        with pytest.raises(ValueError, match=f"must be a list of strings. Received: {received}"):
            make(kind).predict_text(texts, [["a"]] if kind is BertMultipleChoice else ["a"])


@pytest.mark.parametrize("texts", [np.array(["a b"]), tf.constant(["a b"]), ("a b",)])
def test_columns_that_are_lists_too(texts):
    model = make(BertClassifier, num_labels=2)
    assert model.predict_text(texts) == model.predict_text(["a b"])


def test_choices_are_lists_of_strings():
    model = make(BertMultipleChoice)
    for choices, received in (
        ([[]], r"\[\] in row 0"),
        (["ab"], "'ab' in row 0"),
        ([["a", None]], "None in row 0"),
        ([None], "None in row 0"),
    ):
        with pytest.raises(
            ValueError, match=f"`choices` must be a list of lists.*Received: {received}"
        ):
            model.predict_text(["a"], choices)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_mask_is_answered_in_the_window_with_most_context(layout):
    model = make(BertMaskedLM, layout)
    texts = ["a [MASK] " * 25, "b", "[MASK]", "", "c " * 40 + "[MASK] d [MASK]"]
    found = model.predict_text(texts, top_k=2, batch_size=2)
    assert [len(masks) for masks in found] == [25, 0, 1, 0, 2]
    for text, masks in zip(texts, found, strict=True):
        ids = TOKENIZER.tokenize(text, parse_special_tokens=True).numpy().tolist()
        places = [place for place, piece in enumerate(ids) if piece == TOKENIZER.mask_token_id]
        for place, got in zip(places, masks, strict=True):
            _, start, size = max(
                (min(place - start, start + size - 1 - place), -start, size)
                for start, size in windows_of(len(ids), 22, 6)
                if start <= place < start + size
            )
            row = np.array([[2, *ids[-start : -start + size], 3]], "int32")
            x = {"token_ids": row, "padding_mask": np.ones_like(row)}
            logits = model({**x, "mask_positions": np.array([[place + start + 1]])})["masked_lm"]
            logits = np.asarray(logits)[0, 0]
            shares = np.exp(logits) / np.exp(logits).sum()
            best = np.argsort(-shares)[:2]
            assert [word for word, _ in got] == [PIECES[i] for i in best]
            np.testing.assert_allclose([score for _, score in got], shares[best], atol=1e-5)
