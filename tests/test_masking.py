"""keras_bert.text.masking: counts against their probabilities, and what may never be chosen."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_bert.hashing import fold
from keras_bert.text.masking import mask_tokens, word_ids

WORDS = 200
SPECIAL = np.arange(WORDS) < 5
TOKENIZER = SimpleNamespace(
    vocabulary_size=WORDS,
    is_special=SPECIAL,
    is_continuation=(np.arange(WORDS) % 3 == 0) & ~SPECIAL,
    mask_token_id=4,
)
ROWS, LENGTH = 4000, 40


def batch(seed=0, lengths=None):
    """Random rows [CLS] words [SEP] padding, ids 2, 5.., 3, 0."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, WORDS, (ROWS, LENGTH)).astype("int32")
    lengths = rng.integers(3, LENGTH + 1, ROWS) if lengths is None else np.full(ROWS, lengths)
    slot = np.arange(LENGTH)
    ids = np.where(slot == lengths[:, None] - 1, 3, np.where(slot < lengths[:, None], ids, 0))
    ids[:, 0] = 2
    return ids, ~SPECIAL[ids]


def mask(ids, candidates, epoch=0, max_predictions=8, **options):
    keys = fold(1, epoch, np.arange(len(ids), dtype="int32"))
    out = mask_tokens(ids, candidates, keys, TOKENIZER, max_predictions, **options)
    return {name: value.numpy() for name, value in out.items()}


def chosen_slots(out):
    chosen = np.zeros((len(out["token_ids"]), LENGTH + 1), bool)
    slots = np.where(out["mask_weights"] > 0, out["mask_positions"], LENGTH)
    np.put_along_axis(chosen, slots, True, axis=1)
    return chosen[:, :LENGTH]


@pytest.mark.parametrize("whole_words", [False, True])
def test_answers_belong_to_the_positions_and_the_rest_is_untouched(whole_words):
    ids, candidates = batch()
    out = mask(ids, candidates, whole_words=whole_words)
    chosen, real = chosen_slots(out), out["mask_weights"] > 0
    assert not (chosen & ~candidates).any()  # never a special token, never padding
    assert (chosen.sum(1) == real.sum(1)).all()  # no position twice
    assert (chosen.sum(1) >= 1).all()
    expected = np.take_along_axis(ids, out["mask_positions"], 1)
    np.testing.assert_array_equal(out["mask_ids"], np.where(real, expected, 0))
    np.testing.assert_array_equal(out["token_ids"][~chosen], ids[~chosen])
    for positions, weights in zip(out["mask_positions"], out["mask_weights"], strict=True):
        count = int(weights.sum())
        assert (np.diff(positions[:count]) > 0).all()
        assert not weights[count:].any()
        assert not positions[count:].any()


def test_number_of_predictions_is_the_rounded_share():
    ids, candidates = batch()
    out = mask(ids, candidates)
    goal = np.round(np.float32(0.15) * candidates.sum(1).astype("float32"))
    np.testing.assert_array_equal(out["mask_weights"].sum(1), np.clip(goal, 1, 8))
    many = mask(ids, candidates, max_predictions=3, rate=0.5)
    assert many["mask_weights"].sum(1).max() == 3


@pytest.mark.parametrize("options", [{}, {"max_predictions": 3, "rate": 0.5}, {"whole_words": True}])
def test_every_candidate_is_equally_likely(options):
    """Also where `max_predictions` caps the count: the first words are not preferred."""
    ids, candidates = batch(lengths=LENGTH)
    if options.get("whole_words"):  # words of equal length, or long ones would be met more often
        ids[:, 1:-1] = np.where(np.arange(38) % 2, 6, 7)  # 7 ##6 7 ##6 ...
    counts = chosen_slots(mask(ids, candidates, **options)).sum(0)[1:-1]
    assert stats.chisquare(counts).pvalue > 1e-4
    assert counts.sum() > 10_000


def test_eighty_ten_ten():
    ids, candidates = batch(lengths=LENGTH)
    out = mask(ids, candidates)
    chosen = chosen_slots(out)
    before, after = ids[chosen], out["token_ids"][chosen]
    masked, same = after == 4, after == before
    count, words = len(before), WORDS - 5
    # a random word is the true one in 1 of `words` cases
    expected = np.array([0.8, 0.1 + 0.1 / words, 0.1 - 0.1 / words]) * count
    observed = [masked.sum(), same.sum(), (~masked & ~same).sum()]
    assert stats.chisquare(observed, expected).pvalue > 1e-4
    random_words = after[~masked & ~same]
    assert random_words.min() >= 5  # never special
    assert stats.chisquare(np.bincount(random_words, minlength=WORDS)[5:]).pvalue > 1e-4


def test_fate_does_not_depend_on_the_choice():
    """Were both drawn from one stream, the first chosen tokens would be masked more often."""
    ids, candidates = batch(lengths=LENGTH)
    out = mask(ids, candidates, max_predictions=6)
    shown = np.take_along_axis(out["token_ids"], out["mask_positions"], 1)
    shares = (shown == 4).mean(0)
    assert np.abs(shares - 0.8).max() < 0.03


def test_epochs_differ_and_keys_repeat():
    ids, candidates = batch()
    first, again, other = (mask(ids, candidates, epoch) for epoch in (0, 0, 1))
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert (chosen_slots(first) & chosen_slots(other)).sum() < 0.3 * chosen_slots(first).sum()


@pytest.mark.parametrize("whole_words", [False, True])
def test_graph_and_xla_agree(whole_words):
    ids, candidates = batch()
    expected = mask(ids, candidates, whole_words=whole_words)
    for compiled in (False, True):
        run = tf.function(
            lambda ids, candidates, keys: mask_tokens(
                ids, candidates, keys, TOKENIZER, 8, whole_words=whole_words
            ),
            jit_compile=compiled,
        )
        out = run(ids, candidates, fold(1, 0, np.arange(ROWS, dtype="int32")))
        for name, value in expected.items():
            np.testing.assert_array_equal(out[name], value)


def test_words_are_numbered_by_their_first_piece():
    ids = np.array([[2, 7, 6, 9, 8, 3, 6, 7, 3, 0]], "int32")  # CLS 7 ##6 ##9 8 SEP ##6 7 SEP PAD
    numbers = word_ids(ids, ~SPECIAL[ids], TOKENIZER).numpy()
    assert numbers.tolist() == [[-1, 1, 1, 1, 2, -1, 3, 4, -1, -1]]


def test_words_are_chosen_whole_at_the_same_rate():
    ids, candidates = batch(lengths=LENGTH)
    out = mask(ids, candidates, max_predictions=12, whole_words=True)
    numbers = word_ids(ids, candidates, TOKENIZER).numpy()
    chosen, split = chosen_slots(out), 0
    for row in range(ROWS):
        taken = set(numbers[row][chosen[row]])
        whole = np.isin(numbers[row], list(taken)) & candidates[row]
        split += (whole != chosen[row]).any()
    assert split == 0
    goal = round(0.15 * (LENGTH - 2))
    assert abs(out["mask_weights"].sum(1).mean() - goal) < 0.1


def test_a_word_longer_than_max_predictions_is_cut_not_lost():
    ids = np.array([[2, 7, 6, 6, 6, 6, 6, 3]], "int32")
    out = mask_tokens(ids, ~SPECIAL[ids], fold(np.arange(1)), TOKENIZER, 3, whole_words=True)
    assert out["mask_weights"].numpy().tolist() == [[1, 1, 1]]


def test_rows_without_candidates_predict_nothing():
    ids = np.array([[2, 3, 3, 0], [0, 0, 0, 0]], "int32")
    for whole_words in (False, True):
        out = mask_tokens(ids, ~SPECIAL[ids], fold(np.arange(2)), TOKENIZER, 3, whole_words=whole_words)
        assert not out["mask_weights"].numpy().any()
        assert not out["mask_ids"].numpy().any()
        np.testing.assert_array_equal(out["token_ids"], ids)
