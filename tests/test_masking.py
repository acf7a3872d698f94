"""keras_bert.text.masking: a plain restatement, counts against their probabilities, refusals."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_bert.hashing import below, fold, uniform
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
MASKINGS = ("token", "whole_word", "span", "ngram")
SPAN = [0.2 * 0.8**k / (1 - 0.8**10) for k in range(10)]
NGRAM = [6 / 11, 3 / 11, 2 / 11]


def batch(seed=0, rows=ROWS):
    """Random rows [CLS] words [SEP] padding, ids 2, 5.., 3, 0, and the numbers of their words."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, WORDS, (rows, LENGTH)).astype("int32")
    lengths = rng.integers(3, LENGTH + 1, rows)[:, None]
    slot = np.arange(LENGTH)
    ids = np.where(slot == lengths - 1, 3, np.where(slot < lengths, ids, 0))
    ids[:, 0] = 2
    return ids, word_ids(ids, ~SPECIAL[ids], TOKENIZER).numpy()


def full_rows():
    ids = np.random.default_rng(0).integers(5, WORDS, (ROWS, LENGTH)).astype("int32")
    words = np.tile(np.arange(LENGTH, dtype="int32"), (ROWS, 1))
    words[:, [0, -1]] = -1
    return ids, words


def packed(rng):
    """One row of several examples with words of 1 to 6 pieces; the numbers start again in each."""
    row = []
    while len(row) < LENGTH:
        sizes = np.minimum(rng.geometric(0.6, rng.integers(0, 12)), 6)
        row += [-1] * rng.integers(0 if not row else 1, 3) + np.repeat(
            np.arange(len(sizes)), sizes
        ).tolist()
    return row[:LENGTH]


def mask(ids, words, epoch=0, max_predictions=8, **options):
    keys = fold(1, epoch, np.arange(len(ids), dtype="int32"))
    out = mask_tokens(ids, words, keys, TOKENIZER, max_predictions, **options)
    return {name: value.numpy() for name, value in out.items()}


def chosen_slots(out):
    rows, length = out["token_ids"].shape
    chosen = np.zeros((rows, length + 1), bool)
    slots = np.where(out["mask_weights"] > 0, out["mask_positions"], length)
    np.put_along_axis(chosen, slots, True, axis=1)
    return chosen[:, :length]


def cut_into_spans(words, draws, masking):
    """[[slots of each word] of each span], with the number of each span."""
    shares = {"whole_word": [1.0], "span": SPAN, "ngram": NGRAM}[masking]
    spans, number = {}, 0
    for is_gap, segment in itertools.groupby(range(len(words)), key=lambda slot: words[slot] < 0):
        segment = list(segment)
        if is_gap:
            number = segment[-1]
            continue
        left = [list(word) for _, word in itertools.groupby(segment, key=lambda slot: words[slot])]
        while left:
            draw = (int(draws[number] * 2**15) + 0.5) / 2**15
            length = next(
                (n for n, share in enumerate(np.cumsum(shares), 1) if draw < share), len(shares)
            )
            spans[number], left, number = left[:length], left[length:], number + 1
    return spans


def choose(words, draws, goal, begin, limit, masking):
    """The rule for one row, step by step: the slots that are taken, and the span of each."""
    spans = cut_into_spans(words, draws["length"], masking)
    number = {slots[0]: n for n, slots in enumerate(w for span in spans.values() for w in span)}
    word_at = {slots[0]: slots for span in spans.values() for slots in span}
    span_at = {slot: n for n, span in spans.items() for slots in span for slot in slots}
    begin = [slot for slot in range(len(words)) if words[slot] >= 0][begin]
    own = [slot for slot in span_at if span_at[slot] == span_at[begin]]

    def order(n):  # whole words draw by the word's number, from 1, others by that of their span
        return draws["order"][1 + number[spans[n][0][0]] if masking == "whole_word" else n]

    circle = [slot for slot in own if slot >= begin]
    for n in sorted(spans, key=order):
        if n != span_at[begin]:
            circle += [slot for slots in spans[n] for slot in slots]
    circle += [slot for slot in own if slot < begin]

    taken = []
    for slot in circle[:goal]:
        word = word_at.get(slot, [])
        if len(taken) + len(word) <= limit or not taken:
            taken += word
    if not taken:
        taken = next(word_at[slot] for slot in circle if slot in word_at)
    return {slot: span_at[slot] for slot in taken[:limit]}


@pytest.mark.parametrize("masking", MASKINGS)
@pytest.mark.parametrize(("limit", "rate"), [(4, 0.15), (12, 0.2), (LENGTH, 0.9)])
def test_a_plain_restatement_takes_the_same_from_the_same_draws(masking, limit, rate):
    rng = np.random.default_rng(limit)
    words = np.array([packed(rng) for _ in range(120)], "int32")
    ids = np.where(words < 0, 3, rng.integers(5, WORDS, words.shape)).astype("int32")
    keys = fold(7, np.arange(len(ids)))
    out = mask_tokens(ids, words, keys, TOKENIZER, limit, rate, masking, 0.5, 0.25)
    streams = [
        uniform(keys[:, None], stream, np.arange(LENGTH + 1)[None]).numpy() for stream in range(5)
    ]
    replacements = 5 + below(WORDS - 5, keys[:, None], 2, np.arange(LENGTH)[None]).numpy()
    for row, (key, order, fate, length) in enumerate(
        zip(keys, *(streams[s] for s in (0, 1, 4)), strict=True)
    ):
        slots = [slot for slot in range(LENGTH) if words[row, slot] >= 0]
        goal = min(max(1, round(rate * len(slots))), limit)
        if masking == "token":
            taken = {slot: slot for slot in sorted(slots, key=lambda slot: order[slot])[:goal]}
        else:
            draws = {"order": order, "length": length}
            begin = int(below(len(slots), key, 3))
            taken = choose(words[row], draws, goal, begin, limit, masking)
        shown = ids[row].copy()
        for slot, span in taken.items():
            chance = fate[span if masking == "span" else slot]
            shown[slot] = (
                4 if chance < 0.5 else replacements[row, slot] if chance < 0.75 else shown[slot]
            )
        count = int(out["mask_weights"][row].numpy().sum())
        assert out["mask_positions"][row, :count].numpy().tolist() == sorted(taken)
        np.testing.assert_array_equal(out["token_ids"][row], shown)


@pytest.mark.parametrize("masking", MASKINGS)
def test_answers_belong_to_the_positions_and_the_rest_is_untouched(masking):
    ids, words = batch()
    out = mask(ids, words, masking=masking)
    chosen, real = chosen_slots(out), out["mask_weights"] > 0
    assert not (chosen & (words < 0)).any()  # never a special token, never padding
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
    ids, words = batch()
    goal = np.round(np.float32(0.15) * (words >= 0).sum(1).astype("float32"))
    np.testing.assert_array_equal(mask(ids, words)["mask_weights"].sum(1), np.clip(goal, 1, 8))
    many = mask(ids, words, max_predictions=3, rate=0.5)
    assert many["mask_weights"].sum(1).max() == 3
    words = np.where(words >= 0, np.arange(LENGTH), -1)  # of one piece: nothing crosses the goal
    for masking in ("whole_word", "span", "ngram"):
        count = mask(ids, words, masking=masking)["mask_weights"].sum(1)
        np.testing.assert_array_equal(count, np.clip(goal, 1, 8))


# Two segments, words of one to four pieces; the same in each row, to count by position.
PAIR = np.array(
    [-1, *"0012223", *"4555567", *"8", -1, *"0", *"1111", *"2345566", *"7889", -1, -1], "int32"
)


@pytest.mark.parametrize(
    ("masking", "options"),
    [("token", {}), ("token", {"max_predictions": 3, "rate": 0.5})]
    + [(masking, {"max_predictions": 12}) for masking in MASKINGS[1:]],
)
def test_every_candidate_is_equally_likely(masking, options):
    """At a segment's edge or not, in a long word or not; also where `max_predictions` caps tokens."""
    words = np.tile(PAIR, (ROWS, 1))
    ids, inside = np.full_like(words, 9), words[0] >= 0
    epochs, counts = 25, 0
    for epoch in range(epochs):
        counts += chosen_slots(mask(ids, words, epoch, masking=masking, **options)).sum(0)[inside]
    goal = min(round(options.get("rate", 0.15) * inside.sum()), options.get("max_predictions", 8))
    # each count is binomial, though those of neighbours depend on each other
    draws = stats.binom(epochs * ROWS, goal / inside.sum())
    p_values = 2 * np.minimum(draws.cdf(counts), draws.sf(counts - 1))
    assert p_values.min() > 1e-4 / len(counts), counts / draws.mean()


@pytest.mark.parametrize("masking", MASKINGS)
def test_no_edge_is_preferred(masking):
    """One chosen token of each row, so that the counts of positions are independent."""
    ids, words = full_rows()
    counts = 0
    for epoch in range(5):
        out = mask(ids, words, epoch, masking=masking)
        one = np.random.default_rng(epoch).integers(0, out["mask_weights"].sum(1).astype(int))
        position = np.take_along_axis(out["mask_positions"], one[:, None], 1)
        counts += np.bincount(position[:, 0], minlength=LENGTH)[1:-1]
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize(("masking", "shares"), [("span", SPAN), ("ngram", NGRAM)])
def test_lengths_follow_their_distribution(masking, shares):
    """What a window of `goal` tokens shows of spans that follow each other at random.

    A span of length l lies in it whole at goal - l + 1 of its places; a longer one leaves l tokens of
    its beginning or of its end at one place each. Few of the many spans of a row are taken, so runs of
    chosen tokens rarely consist of two.
    """
    rows, length, goal = 1500, 3000, 12
    ids = np.full((rows, length), 9, "int32")
    words = np.tile(np.arange(length, dtype="int32"), (rows, 1))
    out = mask(ids, words, max_predictions=goal, rate=goal / length, masking=masking)
    chosen = np.pad(chosen_slots(out), [[0, 0], [1, 1]]).astype(int)
    ends = np.diff(chosen, axis=1)
    runs = np.nonzero(ends < 0)[1] - np.nonzero(ends > 0)[1]
    lengths = np.arange(1, len(shares) + 1)
    longer = 1 - np.cumsum(shares)
    expected = rows * ((goal - lengths + 1) * shares + 2 * longer) / (lengths @ shares)
    counts = np.bincount(runs, minlength=goal)[1 : len(shares) + 1]
    assert counts.sum() == pytest.approx(expected.sum(), rel=0.03)
    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-4


def test_words_stay_whole_and_the_rate_holds():
    ids, words = batch()
    goal = np.maximum(np.round(0.15 * (words >= 0).sum(1)), 1)
    long = (words >= 0).sum(1) > 20  # in short rows at least one word is chosen
    for masking in ("whole_word", "span", "ngram"):
        out = mask(ids, words, max_predictions=16, masking=masking)
        chosen = chosen_slots(out)
        same_word = (words[:, 1:] == words[:, :-1]) & (words[:, 1:] >= 0)
        assert not (same_word & (chosen[:, 1:] != chosen[:, :-1])).any()
        off = (out["mask_weights"].sum(1) - goal)[long]
        assert abs(off.mean()) < 4 * off.std() / np.sqrt(len(off))


@pytest.mark.parametrize("masking", MASKINGS)
def test_eighty_ten_ten(masking):
    """By the first chosen token of each row, since those of a span share their fate."""
    ids, words = full_rows()
    outs = [mask(ids, words, epoch, masking=masking) for epoch in range(4)]
    before = np.concatenate([out["mask_ids"][:, 0] for out in outs])
    after = np.concatenate(
        [np.take_along_axis(o["token_ids"], o["mask_positions"], 1)[:, 0] for o in outs]
    )
    masked, same = after == 4, after == before
    count, others = len(before), WORDS - 5
    # a random word is the true one in 1 of `others` cases
    expected = np.array([0.8, 0.1 + 0.1 / others, 0.1 - 0.1 / others]) * count
    observed = [masked.sum(), same.sum(), (~masked & ~same).sum()]
    assert stats.chisquare(observed, expected).pvalue > 1e-4
    random_words = after[~masked & ~same]
    assert random_words.min() >= 5  # never special
    assert stats.chisquare(np.bincount(random_words, minlength=WORDS)[5:]).pvalue > 1e-4


@pytest.mark.parametrize("masking", MASKINGS)
def test_fate_does_not_depend_on_the_choice(masking):
    """Were both drawn from one stream, the first chosen tokens would be masked more often."""
    ids, words = full_rows()
    out = mask(ids, words, max_predictions=6, masking=masking)
    shown = np.take_along_axis(out["token_ids"], out["mask_positions"], 1)
    shares = (shown == 4).mean(0)
    assert np.abs(shares - 0.8).max() < 0.03


def test_neighbours_share_their_fate_in_spans_only():
    ids, words = full_rows()
    agree = {}
    for masking in MASKINGS:
        out = mask(ids, words, masking=masking, mask_share=0.5, random_share=0.5)
        chosen, masked = chosen_slots(out), out["token_ids"] == 4
        pairs = chosen[:, 1:] & chosen[:, :-1]
        agree[masking] = (masked[:, 1:] == masked[:, :-1])[pairs].mean()
    # neighbours are now and then of two spans
    assert agree.pop("span") > 0.9
    assert max(agree.values()) < 0.55


def test_only_the_borders_of_words_count():
    """Numbers of any tokenizer give the same choice, whether or not they go on over a gap."""
    words = np.tile(PAIR, (50, 1))
    second = np.cumsum(words < 0, axis=1) > 1
    other = np.where(words < 0, words, words * 7 + 1000 * second)
    ids = np.full_like(words, 9)
    for masking in MASKINGS:
        first, again = (mask(ids, numbers, masking=masking) for numbers in (words, other))
        np.testing.assert_array_equal(first["mask_positions"], again["mask_positions"])


def test_epochs_differ_and_keys_repeat():
    ids, words = batch()
    for masking in MASKINGS:
        first, again, other = (mask(ids, words, epoch, masking=masking) for epoch in (0, 0, 1))
        for name in first:
            np.testing.assert_array_equal(first[name], again[name])
        assert (chosen_slots(first) & chosen_slots(other)).sum() < 0.3 * chosen_slots(first).sum()


@pytest.mark.parametrize("masking", MASKINGS)
def test_graph_and_xla_agree(masking):
    ids, words = batch()
    rng = np.random.default_rng(1)
    words[:500] = [packed(rng) for _ in range(500)]
    expected = mask(ids, words, masking=masking)
    for compiled in (False, True):
        run = tf.function(
            lambda ids, words, keys: mask_tokens(ids, words, keys, TOKENIZER, 8, masking=masking),
            jit_compile=compiled,
        )
        out = run(ids, words, fold(1, 0, np.arange(ROWS, dtype="int32")))
        for name, value in expected.items():
            np.testing.assert_array_equal(out[name], value)


def test_words_are_numbered_by_their_first_piece():
    ids = np.array([[2, 7, 6, 9, 8, 3, 6, 7, 3, 0]], "int32")  # CLS 7 ##6 ##9 8 SEP ##6 7 SEP PAD
    numbers = word_ids(ids, ~SPECIAL[ids], TOKENIZER).numpy()
    assert numbers.tolist() == [[-1, 0, 0, 0, 1, -1, 2, 3, -1, -1]]


@pytest.mark.parametrize("masking", MASKINGS[1:])
def test_a_word_longer_than_max_predictions_is_cut_not_lost(masking):
    words = np.tile(np.array([-1, 0, 0, 0, 0, 0, 0, -1], "int32"), (20, 1))
    out = mask(np.full_like(words, 9), words, max_predictions=3, masking=masking)
    assert out["mask_positions"].tolist() == [[1, 2, 3]] * 20
    assert out["mask_weights"].all()


@pytest.mark.parametrize("masking", MASKINGS)
def test_rows_without_candidates_predict_nothing(masking):
    ids = np.array([[2, 3, 3, 0], [0, 0, 0, 0]], "int32")
    out = mask(ids, np.full_like(ids, -1), max_predictions=3, masking=masking)
    assert not out["mask_weights"].any()
    assert not out["mask_ids"].any()
    np.testing.assert_array_equal(out["token_ids"], ids)


@pytest.mark.parametrize("masking", MASKINGS)
def test_rows_shorter_than_max_predictions_are_padded(masking):
    ids = np.array([[7, 8, 9]], "int32")
    out = mask(ids, np.array([[0, 1, 2]], "int32"), max_predictions=5, rate=1.0, masking=masking)
    assert out["mask_positions"].tolist() == [[0, 1, 2, 0, 0]]
    assert out["mask_ids"].tolist() == [[7, 8, 9, 0, 0]]
    assert out["mask_weights"].tolist() == [[1, 1, 1, 0, 0]]


def test_unknown_masking_is_refused():
    ids, words = batch(rows=1)
    with pytest.raises(ValueError, match="'token' or 'whole_word' or 'span' or 'ngram'.*'words'"):
        mask(ids, words, masking="words")
