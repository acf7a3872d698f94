"""keras_bert.data.pretraining and corpus: pairs, labels and rates, by counting.

The corpus names itself: every token is its own word, so a row tells where each of its tokens came from.
"""

import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from keras_bert.data.corpus import Corpus, find_chunks
from keras_bert.data.pretraining import NextSentenceData
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.training.optimizers import AdamW

LENGTH, SPECIALS = 32, 5


def corpus_of(sentence_lengths):
    """[[tokens of each sentence] of each document] -> a Corpus with tokens 5, 6, 7, ..."""
    sentences = [length for document in sentence_lengths for length in document]
    counts = [len(document) for document in sentence_lengths]
    return Corpus(
        np.arange(SPECIALS, SPECIALS + sum(sentences), dtype="int32"),
        np.concatenate([[0], np.cumsum(sentences)]).astype("int64"),
        np.concatenate([[0], np.cumsum(counts)]).astype("int64"),
        characters=0,
    )


def tokenizer_of(corpus):
    size = SPECIALS + len(corpus.tokens)
    return SimpleNamespace(
        vocabulary_size=size,
        is_special=np.arange(size) < SPECIALS,
        is_continuation=np.zeros(size, bool),
        pad_token_id=0,
        cls_token_id=2,
        sep_token_id=3,
        mask_token_id=4,
    )


@pytest.fixture(scope="module")
def corpus():
    """400 documents of sentences of 1 to 40 tokens: many short ones, a few long, as docstrings are."""
    rng = np.random.default_rng(0)
    counts = np.minimum(rng.geometric(0.12, 400), 60)
    return corpus_of([np.minimum(rng.geometric(0.06, count), 40).tolist() for count in counts])


@pytest.fixture(scope="module")
def data(corpus):
    return NextSentenceData(corpus, tokenizer_of(corpus), LENGTH, max_predictions=6, seed=3)


@pytest.fixture(scope="module")
def epochs(data):
    """About six epochs of batches, as arrays."""
    batches = list(data.training_batches(64).take(6 * len(data) // 64).as_numpy_iterator())
    return [
        {name: np.concatenate([batch[part][name] for batch in batches]) for name in batches[0][part]}
        for part in range(3)
    ]


def original_tokens(x, y, weights):
    ids, rows = x["token_ids"].copy(), np.arange(len(x["token_ids"]))[:, None]
    real = weights["masked_lm"] > 0
    rows = np.broadcast_to(rows, real.shape)[real]
    ids[rows, x["mask_positions"][real]] = y["masked_lm"][real]
    return ids


def segments(row):
    """Tokens of `a` and of `b`, checked for [CLS] a [SEP] b [SEP] padding."""
    row = row.tolist()
    first, last = (index for index, token in enumerate(row) if token == 3)
    assert row[0] == 2
    assert not any(row[last + 1 :])
    return row[1:first], row[first + 1 : last]


def test_pairs_lie_where_their_label_says(corpus, epochs):
    x, y, weights = epochs
    starts = set(corpus.sentence_offsets.tolist())
    owner = np.repeat(
        np.repeat(np.arange(corpus.documents), np.diff(corpus.document_offsets)),
        np.diff(corpus.sentence_offsets),
    )
    for row, label in zip(original_tokens(x, y, weights), y["sentence"], strict=True):
        a, b = (np.array(segment) - SPECIALS for segment in segments(row))
        for segment in (a, b):
            assert (np.diff(segment) == 1).all()
            assert len(segment) >= 1
            assert owner[segment[0]] == owner[segment[-1]]
        assert a[-1] + 1 in starts  # a ends, and b begins, with a sentence
        assert b[0] in starts
        if label:
            assert owner[a[0]] != owner[b[0]]
        else:
            assert a[-1] + 1 == b[0]


def test_masks_and_segments_fit_the_tokens(epochs):
    x, y, weights = epochs
    ids = original_tokens(x, y, weights)
    np.testing.assert_array_equal(x["padding_mask"], ids != 0)
    after_first_sep = np.cumsum(ids == 3, axis=1) - (ids == 3) >= 1
    np.testing.assert_array_equal(x["segment_ids"], after_first_sep & (ids != 0))
    assert (weights["sentence"] == 1).all()
    assert {name: value.dtype for part in (x, y) for name, value in part.items()} == dict.fromkeys(
        ["token_ids", "padding_mask", "segment_ids", "mask_positions", "masked_lm", "sentence"],
        np.dtype("int32"),
    )


def test_labels_are_even_and_tell_nothing_of_length(epochs):
    x, y, weights = epochs
    labels = y["sentence"]
    assert stats.binomtest(int(labels.sum()), len(labels)).pvalue > 1e-4
    lengths = np.array([[len(s) for s in segments(row)] for row in original_tokens(x, y, weights)])
    for statistic in (lengths[:, 0], lengths[:, 1], lengths.sum(1)):
        best = max(  # accuracy of the best threshold on a length
            max(np.mean((statistic > cut) == labels), np.mean((statistic <= cut) == labels))
            for cut in range(LENGTH)
        )
        assert best < 0.56


def test_other_documents_are_drawn_evenly(corpus, epochs):
    x, y, weights = epochs
    rows = original_tokens(x, y, weights)[y["sentence"] == 1]
    starts = np.array([segments(row)[1][0] for row in rows]) - SPECIALS
    sentence = np.searchsorted(corpus.sentence_offsets, starts, side="right") - 1
    document = np.searchsorted(corpus.document_offsets, sentence, side="right") - 1
    usable = np.diff(corpus.document_offsets) >= 2
    counts = np.bincount(document, minlength=corpus.documents)
    assert not counts[~usable].any()
    assert stats.chisquare(counts[usable]).pvalue > 1e-4


def test_a_tenth_of_the_rows_is_short():
    long = corpus_of([[20] * 40] * 30)
    for rate, expected in ((0.1, 0.1), (0.0, 0.0), (1.0, 1.0)):
        data = NextSentenceData(long, tokenizer_of(long), LENGTH, 6, short_rate=rate)
        batches = data.training_batches(500).take(8).as_numpy_iterator()
        lengths = np.concatenate([x["padding_mask"].sum(1) for x, _, _ in batches])
        room = LENGTH - 3
        # short lengths are uniform on 2..room, so one in room - 1 of them is full all the same
        share = expected * (1 - 1 / (room - 1))
        assert abs((lengths < LENGTH).mean() - share) < 0.025
        if rate == 1:
            assert stats.chisquare(np.bincount(lengths - 5, minlength=room - 1)).pvalue > 1e-4


def test_fifteen_percent_is_predicted(epochs):
    x, y, weights = epochs
    words = (original_tokens(x, y, weights) >= SPECIALS).sum(1)
    goal = np.clip(np.round(np.float32(0.15) * words.astype("float32")), 1, 6)
    np.testing.assert_array_equal(weights["masked_lm"].sum(1), goal)


def test_every_chunk_comes_once_in_an_epoch(corpus, data):
    chunks = find_chunks(corpus, LENGTH - 3, min_sentences=2)
    assert len(data) == len(chunks)
    whole = NextSentenceData(corpus, tokenizer_of(corpus), LENGTH, 6, short_rate=0.0)
    rows = len(whole)
    seen = []
    for x, y, weights in whole.training_batches(1).take(rows).as_numpy_iterator():
        a, _ = segments(original_tokens(x, y, weights)[0])
        seen.append(np.searchsorted(corpus.sentence_offsets[chunks[:, 1]], a[-1] - SPECIALS, "right"))
    assert sorted(seen) == list(range(1, rows + 1))


def test_two_builds_and_a_later_start_give_the_same_bits(corpus, data):
    again = NextSentenceData(corpus, tokenizer_of(corpus), LENGTH, max_predictions=6, seed=3)
    steps = len(data) // 10 + 3  # into the second epoch
    first = list(data.training_batches(10).take(steps).as_numpy_iterator())
    second = list(again.training_batches(10).take(steps).as_numpy_iterator())
    start = steps - 5
    tail = list(again.training_batches(10, start).take(5).as_numpy_iterator())
    other = NextSentenceData(corpus, tokenizer_of(corpus), LENGTH, max_predictions=6, seed=4)
    assert_equal_batches(first, second)
    assert_equal_batches(first[start:], tail)
    different = next(other.training_batches(10).as_numpy_iterator())
    assert (different[0]["token_ids"] != first[0][0]["token_ids"]).any()


def assert_equal_batches(some, others):
    for one, other in zip(some, others, strict=True):
        for part, part_other in zip(one, other, strict=True):
            for name, value in part.items():
                np.testing.assert_array_equal(value, part_other[name])


def test_every_epoch_and_seed_has_an_order_of_its_own():
    """The shuffling op alone knows 256 orders of a thousand examples, whatever its keys."""
    small = corpus_of([[20] * 2] * 40)
    orders = set()
    for seed in (0, 256, -1, 2**31):
        data = NextSentenceData(small, tokenizer_of(small), LENGTH, 6, seed=seed, short_rate=0.0)
        x, y, weights = next(data.training_batches(40 * 300).as_numpy_iterator())
        first_of_a = original_tokens(x, y, weights)[:, 1]
        orders |= set(map(tuple, first_of_a.reshape(300, 40)))
    assert len(orders) == 4 * 300


def test_an_epoch_differs_from_the_one_before(data):
    count = len(data) // 16 * 16
    rows = [
        np.concatenate([x["token_ids"] for x, _, _ in batches.take(count // 16).as_numpy_iterator()])
        for batches in (data.training_batches(16), data.training_batches(16, count // 16 + 1))
    ]
    same = {tuple(row) for row in rows[0]} & {tuple(row) for row in rows[1]}
    assert len(same) < 0.1 * count


def test_whole_words_reach_the_masks(corpus):
    tokenizer = tokenizer_of(corpus)
    tokenizer.is_continuation = (np.arange(tokenizer.vocabulary_size) % 2 == 0) & ~tokenizer.is_special
    data = NextSentenceData(corpus, tokenizer, LENGTH, 6, masking="whole_word")
    x, y, weights = next(data.training_batches(64).as_numpy_iterator())
    pairs = 0
    for row, predicted, weight in zip(
        original_tokens(x, y, weights), y["masked_lm"], weights["masked_lm"], strict=True
    ):
        chosen = set(predicted[weight > 0].tolist())
        for token, behind in itertools.pairwise(row):
            if token % 2 and behind == token + 1:  # an odd token starts the word of the even one behind
                assert (token in chosen) == (behind in chosen)
                pairs += token in chosen
    assert pairs > 50


def test_evaluation_has_every_example_once_and_a_known_size(data):
    batches = data.evaluation_batches(50)
    sizes = [len(x["token_ids"]) for x, _, _ in batches.as_numpy_iterator()]
    assert sum(sizes) == len(data)
    assert int(batches.cardinality()) == len(sizes) == -(-len(data) // 50)
    some = data.evaluation_batches(50, examples=70)
    assert [len(x["token_ids"]) for x, _, _ in some] == [50, 20]
    assert int(data.training_batches(8).cardinality()) == -1  # infinite


def test_keras_counts_what_it_sees(data, toy_config):
    """No ghost step: as many optimizer steps as batches, and exact figures over a partial batch."""
    config = dataclasses.replace(
        toy_config,
        vocab_size=data.tokenizer.vocabulary_size,
        max_position_embeddings=LENGTH,
    )
    model = BertPretrainer(config, layout="unpadded")
    model.compile(AdamW(1e-3))
    model.fit(data.training_batches(4), epochs=2, steps_per_epoch=3, verbose=0)
    assert int(model.optimizer.iterations) == 6
    batches = data.evaluation_batches(30, examples=100)
    figures = model.evaluate(batches, return_dict=True, verbose=0)
    total = weight = right = 0
    for x, y, w in batches.as_numpy_iterator():
        logits = model(x)["masked_lm"].numpy().astype("float64")
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        picked = np.take_along_axis(log_probs, y["masked_lm"][..., None], -1)[..., 0]
        total -= (picked * w["masked_lm"]).sum()
        right += ((logits.argmax(-1) == y["masked_lm"]) * w["masked_lm"]).sum()
        weight += w["masked_lm"].sum()
    assert figures["masked_lm_loss"] == pytest.approx(total / weight, rel=1e-5)
    assert figures["masked_lm_accuracy"] == pytest.approx(right / weight, rel=1e-5)


def test_chunks_by_hand():
    corpus = corpus_of([[4, 4, 4, 1], [9], [20, 1, 1], [2, 2]])
    chunks = find_chunks(corpus, 8, min_sentences=2).tolist()
    assert chunks == [[0, 0, 2], [0, 2, 4], [2, 5, 8], [3, 8, 10]]
    assert find_chunks(corpus, 8, min_sentences=1).tolist()[2:4] == [[1, 4, 5], [2, 5, 6]]


@pytest.mark.parametrize(
    ("documents", "options", "words"),
    [
        ([[5, 5, 5]], {}, "at least two documents.*Received: 1 such of 1 documents"),
        ([[5, 5], [5], [5]], {}, "Received: 1 such of 3 documents"),
        ([[5, 5]] * 3, {"max_length": 4}, "max_length.*Received: 4"),
        ([[5, 5]] * 3, {"max_predictions": 40}, "max_predictions=40, max_length=32"),
        ([[5, 5]] * 3, {"max_predictions": 0}, "max_predictions=0"),
        ([[5, 5]] * 3, {"masking_rate": 1.5}, "masking_rate.*1.5"),
        ([[5, 5]] * 3, {"masking": "word"}, "masking.*'token' or 'whole_word'.*Received: 'word'"),
    ],
)
def test_refusals(documents, options, words):
    corpus = corpus_of(documents)
    with pytest.raises(ValueError, match=words):
        NextSentenceData(corpus, tokenizer_of(corpus), **{"max_length": 32, **options})


def test_documents_of_one_sentence_are_counted(corpus, data):
    assert data.documents_left_out == (np.diff(corpus.document_offsets) < 2).sum() > 0
