"""keras_bert.data.pretraining: rates, purity, slices and padding, by counting."""

import dataclasses
import itertools
import re

import numpy as np
import pytest
import tensorflow as tf
from counting_corpus import (
    PAD,
    SEP,
    SPECIALS,
    assert_equal_batches,
    corpus_of,
    docstring_like_corpus,
    joined,
    original_tokens,
    tokenizer_of,
)
from scipy import stats

from keras_bert.data.objectives import OBJECTIVES
from keras_bert.data.pretraining import PretrainingData
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.training.optimizers import AdamW

LENGTH = 32
CORPUS = docstring_like_corpus()


def make(objective="next_sentence", corpus=CORPUS, **options):
    options = {"max_length": LENGTH, "max_predictions": 6, "seed": 3, **options}
    return PretrainingData(corpus, tokenizer_of(corpus), objective, **options)


def take(dataset, count=-1):
    return list(dataset.take(count).as_numpy_iterator())


@pytest.fixture(scope="module")
def data():
    return make()


@pytest.fixture(scope="module")
def epochs(data):
    """About six epochs of batches, as arrays."""
    return joined(take(data.training_batches(64), 6 * len(data) // 64))


def test_masks_and_segments_fit_the_tokens(epochs):
    x, y, weights = epochs
    ids = original_tokens(x, y, weights)
    np.testing.assert_array_equal(x["padding_mask"], ids != PAD)
    after_first_sep = np.cumsum(ids == SEP, axis=1) - (ids == SEP) >= 1
    np.testing.assert_array_equal(x["segment_ids"], after_first_sep & (ids != PAD))
    assert (weights["sentence"] == 1).all()
    assert {name: value.dtype for part in (x, y) for name, value in part.items()} == dict.fromkeys(
        ["token_ids", "padding_mask", "segment_ids", "mask_positions", "masked_lm", "sentence"],
        np.dtype("int32"),
    )


def test_fifteen_percent_is_predicted(epochs):
    x, y, weights = epochs
    words = (original_tokens(x, y, weights) >= SPECIALS).sum(1)
    goal = np.clip(np.round(np.float32(0.15) * words.astype("float32")), 1, 6)
    np.testing.assert_array_equal(weights["masked_lm"].sum(1), goal)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_two_builds_and_a_later_start_give_the_same_bits(objective):
    data, again, other = make(objective), make(objective), make(objective, seed=4)
    steps = len(data) // 10 + 3  # into the second epoch
    first = take(data.training_batches(10), steps)
    start = steps - 5
    assert_equal_batches(first[start:], take(again.training_batches(10, start), 5))
    assert data.fingerprint() == again.fingerprint()
    assert data.describe(0, 10) != other.describe(0, 10)
    some = tf.range(50, dtype=tf.int64)
    x, other_x = (d.examples(some, some)[0]["token_ids"].numpy() for d in (data, other))
    assert (x != other_x).any(axis=1).mean() > 0.9


def test_fingerprints_tell_text_and_objective_and_length_apart():
    other = corpus_of([[5, 5]] * 3)
    settings = [
        {},
        {"objective": "sentence_order"},
        {"objective": "full_sentences"},
        {"max_length": 24},
        {"corpus": other},
    ]
    assert len({make(**options).fingerprint() for options in settings}) == len(settings)


def test_every_epoch_and_seed_has_an_order_of_its_own():
    """The shuffling op alone knows 256 orders of a thousand examples, whatever its keys."""
    small = corpus_of([[20] * 2] * 40)
    orders = set()
    for seed in (0, 256, -1, 2**31):
        data = make(corpus=small, seed=seed, short_rate=0.0)
        x, y, weights = next(data.training_batches(40 * 100).as_numpy_iterator())
        first_of_a = original_tokens(x, y, weights)[:, 1]
        orders |= set(map(tuple, first_of_a.reshape(100, 40)))
    assert len(orders) == 4 * 100


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_epoch_differs_from_the_one_before(objective):
    data = make(objective)
    steps = len(data) // 16
    batches = take(data.training_batches(16), 2 * steps)
    rows = [joined(part)[0]["token_ids"] for part in (batches[:steps], batches[steps:])]
    same = {tuple(row) for row in rows[0]} & {tuple(row) for row in rows[1]}
    assert len(same) < 0.1 * len(data)


def test_whole_words_reach_the_masks():
    tokenizer = tokenizer_of(CORPUS)
    tokenizer.is_continuation = (np.arange(tokenizer.vocabulary_size) % 2 == 0) & ~tokenizer.is_special
    data = PretrainingData(CORPUS, tokenizer, "next_sentence", LENGTH, 6, masking="whole_word")
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


def shared(batches_of, pipelines, replicas):
    """The global batches that replicas get together, rows in the order of the replicas."""
    local, streams = replicas // pipelines, []
    for pipeline in range(pipelines):
        context = tf.distribute.InputContext(pipelines, pipeline, replicas)
        streams.append(batches_of(context))
    steps = len(streams[0]) // local
    assert {len(stream) for stream in streams} == {steps * local}
    return [
        joined(batch for stream in streams for batch in stream[step * local : (step + 1) * local])
        for step in range(steps)
    ]


@pytest.mark.parametrize(
    ("objective", "pipelines", "replicas"),
    [("next_sentence", 1, 2), ("sentence_order", 2, 2), ("full_sentences", 2, 4)],
)
def test_replicas_share_the_batches_of_one(objective, pipelines, replicas):
    data, steps, start = make(objective), 4, len(make(objective)) // 8 - 2  # across two epochs
    training = shared(
        lambda context: take(data.training_batches(8, start, context), steps * replicas // pipelines),
        pipelines,
        replicas,
    )
    assert_equal_batches(training, take(data.training_batches(8, start), steps))
    evaluation = shared(
        lambda context: take(data.evaluation_batches(8, 19, context)), pipelines, replicas
    )
    assert_equal_batches(evaluation, take(data.evaluation_batches(8, 19)))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_evaluation_has_every_example_once_in_full_batches(objective):
    data = make(objective, short_rate=0.0)
    batches = data.evaluation_batches(50)
    assert int(batches.cardinality()) == -(-len(data) // 50)
    x, y, weights = joined(take(batches))
    assert len(x["token_ids"]) == 50 * int(batches.cardinality()) > len(data)
    numbers = np.arange(len(data))
    expected = data.examples(tf.zeros(len(data), tf.int64), tf.constant(numbers))
    for part, part_expected in zip((x, y, weights), expected, strict=True):
        for name, values in part_expected.items():
            np.testing.assert_array_equal(part[name][: len(data)], values)
    for values in weights.values():
        assert not values[len(data) :].any()
        assert values[: len(data)].any(axis=tuple(range(1, values.ndim))).all()
    spec = batches.element_spec[0]["token_ids"]
    assert spec.shape == [50, LENGTH]
    assert int(data.training_batches(8).cardinality()) == tf.data.INFINITE_CARDINALITY


def test_fewer_and_more_examples_than_there_are(data):
    some = joined(take(data.evaluation_batches(50, examples=70)))
    chunks = np.arange(70) * len(data) // 70
    assert len(set(chunks)) == 70
    expected = data.examples(tf.zeros(70, tf.int64), tf.constant(chunks))
    np.testing.assert_array_equal(some[0]["token_ids"][:70], expected[0]["token_ids"])
    assert some[2]["masked_lm"].sum() == expected[2]["masked_lm"].numpy().sum()
    assert some[2]["sentence"].tolist() == [1.0] * 70 + [0.0] * 30

    count = len(data) + 33
    more = joined(take(data.evaluation_batches(50, count)))
    again = data.examples(tf.ones(33, tf.int64), tf.range(33, dtype=tf.int64))
    np.testing.assert_array_equal(more[0]["token_ids"][len(data) : count], again[0]["token_ids"])
    assert more[2]["sentence"].sum() == count


def test_keras_counts_what_it_sees(toy_config):
    """No ghost step: as many optimizer steps as batches, and exact figures over a padded batch."""
    data = make(corpus=corpus_of([[7, 9, 3, 12]] * 150))
    config = dataclasses.replace(
        toy_config,
        vocab_size=data.tokenizer.vocabulary_size,
        max_position_embeddings=LENGTH,
    )
    model = BertPretrainer(config, layout="unpadded")
    model.compile(AdamW(1e-3))
    model.fit(data.training_batches(4), epochs=2, steps_per_epoch=3, verbose=0)
    assert int(model.optimizer.iterations) == 6
    figures = model.evaluate(data.evaluation_batches(30, examples=100), return_dict=True, verbose=0)
    chunks = np.arange(100) * len(data) // 100
    x, y, w = data.examples(tf.zeros(100, tf.int64), tf.constant(chunks))
    for name, logits in model(x).items():
        logits = logits.numpy().astype("float64")
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        picked = np.take_along_axis(log_probs, y[name].numpy()[..., None], -1)[..., 0]
        right = logits.argmax(-1) == y[name].numpy()
        for figure, values in (("loss", -picked), ("accuracy", right)):
            expected = np.average(values, weights=w[name])
            assert figures[f"{name}_{figure}"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_step_can_be_described_and_looked_at(objective):
    data = make(objective)
    step = len(data) // 8  # its batch lies in two epochs
    text = data.describe(step, 8)
    found = [
        (int(epoch), int(number))
        for epoch, numbers in re.findall(r"epoch (\d+): examples ([\d ]+)", text)
        for number in numbers.split()
    ]
    assert {epoch for epoch, _ in found} == ({0, 1} if len(data) % 8 else {1})
    epochs, numbers = map(tf.constant, zip(*found, strict=True))
    batch = data.examples(tf.cast(epochs, tf.int64), tf.cast(numbers, tf.int64))
    expected = next(data.training_batches(8, step).as_numpy_iterator())
    assert_equal_batches([batch], [expected])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_rates_and_counts(objective):
    data = make(objective)
    x, _, _ = next(data.training_batches(512).as_numpy_iterator())
    assert data.fill_rate() == pytest.approx(x["padding_mask"].mean())
    counts = data.word_counts()
    assert counts.tolist() == [0] * SPECIALS + [1] * len(CORPUS.tokens)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_short_rates_default_to_those_of_the_papers(objective):
    expected = 0.0 if objective == "full_sentences" else 0.1
    default, explicit = make(objective), make(objective, short_rate=expected)
    assert_equal_batches(take(default.training_batches(64), 2), take(explicit.training_batches(64), 2))


def test_labels_of_the_order_follow_neither_epoch_nor_example():
    data = make("sentence_order")
    count = len(data)
    numbers = tf.range(40 * count, dtype=tf.int64)
    _, y, _ = data.examples(numbers // count, numbers % count)
    labels = y["sentence"].numpy().reshape(40, count)
    for axis in (0, 1):
        ones = labels.sum(axis)
        spread = ((ones - labels.shape[axis] / 2) ** 2).sum() / (labels.shape[axis] / 4)
        assert 1e-4 < stats.chi2.sf(spread, len(ones)) < 1 - 1e-4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_predictions": 40}, "max_predictions=40, max_length=32"),
        ({"max_predictions": 0}, "max_predictions=0"),
        ({"masking_rate": 1.5}, "masking_rate.*1.5"),
        ({"short_rate": -0.1}, "short_rate.*-0.1"),
        ({"masking": "word"}, "masking.*'token' or 'whole_word'.*Received: 'word'"),
        ({"objective": "nsp"}, "objective.*Received: 'nsp'"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(ValueError, match=words):
        make(**options)
