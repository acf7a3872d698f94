"""keras_bert.text.packing: the fewest rows there can be, best fit one by one, plain rows, and back."""

import doctest
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_bert.text import packing
from keras_bert.text.packing import pack, pack_labels, plan_packing
from keras_bert.text.pairing import combine

CLS, SEP, PAD = 101, 102, 100
TOKENIZER = SimpleNamespace(cls_token_id=CLS, sep_token_id=SEP, pad_token_id=PAD, pair_separators=1)
T = 10
lengths_up_to_t = st.lists(st.integers(1, T), min_size=1, max_size=40)
limits = st.none() | st.integers(1, 12)


def rows_of(plan):
    """The examples of each row, as lists."""
    return [[int(e) for e in row if e >= 0] for row in plan.examples]


@settings(max_examples=200, deadline=None)
@given(lengths_up_to_t, limits)
def test_every_example_is_somewhere_once_and_no_row_is_overfull(lengths, limit):
    plan = plan_packing(lengths, T, limit)
    rows = rows_of(plan)
    assert sorted(itertools.chain(*rows)) == list(range(len(lengths)))
    assert all(1 <= len(row) <= (limit or T) for row in rows)
    assert max(sum(lengths[e] for e in row) for row in rows) <= T
    assert plan.examples.shape[1] == (limit or max(map(len, rows)))
    for row, members in zip(plan.examples, rows, strict=True):
        assert row.tolist() == members + [-1] * (len(row) - len(members))
    assert plan.fill_rate == pytest.approx(sum(lengths) / (len(rows) * T))


@settings(max_examples=200, deadline=None)
@given(lengths_up_to_t, limits)
def test_rows_are_filled_as_by_best_fit_one_by_one(lengths, limit):
    """Placing equal lengths together is a matter of speed alone."""
    rows = []  # of lengths
    for length in sorted(lengths, reverse=True):
        open_rows = [r for r in rows if sum(r) + length <= T and len(r) < (limit or T)]
        if not open_rows:
            rows.append([])
            open_rows = rows[-1:]
        # the fullest; among those the one with the fewest places left
        max(open_rows, key=lambda r: (sum(r), len(r))).append(length)
    ours = [[lengths[e] for e in row] for row in rows_of(plan_packing(lengths, T, limit))]
    # rows alike in both may take each other's examples, which changes no later choice
    assert sorted((sum(r), len(r)) for r in ours) == sorted((sum(r), len(r)) for r in rows)


def fewest_rows(lengths, limit):
    """By trying everything: each example into each row that is different from those tried."""
    best = len(lengths)

    def place(rest, rows):
        nonlocal best
        if len(rows) >= best:
            return
        if not rest:
            best = len(rows)
            return
        tried = set()
        for i, (room, places) in enumerate(rows):
            if room >= rest[0] and places and (room, places) not in tried:
                tried.add((room, places))
                place(rest[1:], [*rows[:i], (room - rest[0], places - 1), *rows[i + 1 :]])
        place(rest[1:], [*rows, (T - rest[0], limit - 1)])

    place(sorted(lengths, reverse=True), [])
    return best


def test_nearly_as_few_rows_as_there_can_be():
    rng, optimal, cases = np.random.default_rng(0), 0, 150
    for _ in range(cases):
        lengths = rng.integers(1, T + 1, rng.integers(1, 11)).tolist()
        fewest, ours = fewest_rows(lengths, T), len(plan_packing(lengths, T))
        assert fewest <= ours <= fewest + 1
        optimal += ours == fewest
    assert optimal >= 0.95 * cases


def test_a_limit_of_examples_costs_little_where_it_does_not_bind():
    rng = np.random.default_rng(0)
    for _ in range(100):
        lengths = rng.integers(2, T + 1, rng.integers(1, 10)).tolist()
        assert len(plan_packing(lengths, T, 3)) <= fewest_rows(lengths, 3) + 1


def test_many_short_examples_fill_their_rows():
    """As many lengths as a large dataset has, spread like those of sentences."""
    lengths = np.random.default_rng(0).lognormal(3.2, 0.6, 1_000_000).astype(int).clip(3, 128)
    plan = plan_packing(lengths, 128)
    assert plan.fill_rate > 0.995
    assert len(plan) >= lengths.sum() / 128


def test_the_same_lengths_give_the_same_plan_whatever_holds_them():
    lengths = np.random.default_rng(0).integers(1, T, 100)
    plan = plan_packing(lengths, T)
    for same in (lengths.tolist(), tf.constant(lengths), lengths.astype("uint8")):
        np.testing.assert_array_equal(plan_packing(same, T).examples, plan.examples)


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([], {}, "at least one integer"),
        ([[1]], {}, r"Received: int64 of shape \(1, 1\)"),
        ([1.0], {}, "Received: float64"),
        ([1, 0], {}, "between 1 and `max_length` = 10. Received: lengths from 0 to 1"),
        ([1, 11], {}, "between 1 and `max_length` = 10. Received: lengths from 1 to 11"),
        ([1], {"max_examples": 0}, "`max_examples` must be at least 1. Received: 0"),
    ],
)
def test_refusals(lengths, options, message):
    with pytest.raises(ValueError, match=message):
        plan_packing(lengths, T, **options)


# Rows in the graph.

TEXTS = tf.ragged.constant([[21, 22, 23], [31], [41, 42], []], dtype=tf.int32)
FIELDS = combine(TEXTS, tokenizer=TOKENIZER, max_length=8, padding="do_not_pad")


def test_the_documented_rows():
    plan = plan_packing(FIELDS["token_ids"].row_lengths(), max_length=8)
    out = pack(FIELDS, plan.examples, 8, TOKENIZER)
    names = {"CLS": CLS, "SEP": SEP, "PAD": PAD}
    shown = {}
    for line in pack.__doc__.splitlines():
        name, *slots = line.split() or [""]
        if name in out and len(slots) == 16:
            shown[name] = [[int(names.get(x, x)) for x in half] for half in (slots[:8], slots[8:])]
    assert set(shown) == {"token_ids", "example_ids", "position_ids"}
    for name, rows in shown.items():
        assert out[name].numpy().tolist() == rows
    assert out["first_slots"].numpy().tolist() == [[0, 5], [0, 4]]
    assert out["padding_mask"].numpy().tolist() == [[1] * 8, [1] * 6 + [0] * 2]


def text_batch(lengths, seed=0):
    """Random texts of some lengths, with every field; all values above 0."""
    rng = np.random.default_rng(seed)
    return {
        name: tf.RaggedTensor.from_row_lengths(
            rng.integers(1, 99, sum(lengths)).astype("int32"), lengths
        )
        for name in ("token_ids", "char_starts", "char_ends", "word_ids")
    }


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 2), min_size=1, max_size=20), limits)
def test_rows_as_in_plain_python_and_back(lengths, limit):
    a, b = (text_batch(x, seed) for seed, x in enumerate(zip(*lengths, strict=True)))
    fields = combine(a, b, tokenizer=TOKENIZER, max_length=T, padding="do_not_pad")
    plan = plan_packing(fields["token_ids"].row_lengths(), T, limit)
    out = {name: x.numpy() for name, x in pack(fields, plan.examples, T, TOKENIZER).items()}
    assert set(out) == {*fields, "position_ids", "example_ids", "first_slots"}
    for first, members in zip(out["first_slots"], rows_of(plan), strict=True):
        starts = np.cumsum([0, *(len(fields["token_ids"][e]) for e in members)])[:-1]
        assert first.tolist() == [*starts, *[0] * (plan.examples.shape[1] - len(members))]
    rows = {name: x.to_list() for name, x in fields.items()}
    count = [len(row) for row in rows["token_ids"]]
    rows["position_ids"] = [list(range(n)) for n in count]
    places = {e: i for row in rows_of(plan) for i, e in enumerate(row, start=1)}
    rows["example_ids"] = [[places[e]] * n for e, n in enumerate(count)]
    for name, values in rows.items():
        fill = {"token_ids": PAD, "word_ids": -1}.get(name, 0)
        for row, members in zip(out[name], rows_of(plan), strict=True):
            expected = [v for e in members for v in values[e]]
            assert row.tolist() == expected + [fill] * (T - len(expected)), name
        assert plan.unpack_tokens(out[name]).to_list() == values


@settings(max_examples=60, deadline=None)
@given(lengths_up_to_t, limits, st.sampled_from([(), (3,), (2, 2)]))
def test_labels_and_results_keep_their_examples(lengths, limit, inner):
    plan = plan_packing(lengths, T, limit)
    labels = np.random.default_rng(0).normal(size=(len(lengths), *inner)) + 10
    packed, weights = pack_labels(labels, plan.examples)
    assert packed.shape == (*plan.examples.shape, *inner)
    np.testing.assert_array_equal(weights, plan.examples >= 0)
    assert weights.dtype == tf.float32
    assert not packed.numpy()[weights.numpy() == 0].any()
    np.testing.assert_array_equal(plan.unpack(packed), labels)


def test_states_of_tokens_come_back_with_all_their_axes():
    plan = plan_packing([3, 5, 4, 2], T)
    states = np.random.default_rng(0).normal(size=(len(plan), T, 2, 3))
    back = plan.unpack_tokens(states)
    assert back.shape.as_list() == [4, None, 2, 3]
    for row, members in zip(states, rows_of(plan), strict=True):
        start = 0
        for e in members:
            end = start + len(back[e])
            np.testing.assert_array_equal(back[e], row[start:end])
            start = end
    assert back.row_lengths().numpy().tolist() == [3, 5, 4, 2]


def test_results_of_another_shape_are_refused():
    plan = plan_packing([3, 5, 4, 2], T)
    with pytest.raises(ValueError, match=r"begin with the shape \(2, 10\).*Received: \(1, 10\)"):
        plan.unpack_tokens(np.zeros((1, T)))
    with pytest.raises(ValueError, match="one for every place in every row"):
        plan.unpack(np.zeros((2, T)))


def test_a_pipeline_for_training():
    """Shuffled rows in tf.data: static shapes, and every label meets its own text."""
    count = 50
    lengths = np.random.default_rng(0).integers(1, 9, count)
    ids = np.repeat(np.arange(count, dtype="int32"), lengths)  # each text says its own number
    texts = tf.RaggedTensor.from_row_lengths(ids, lengths)
    fields = combine(texts, tokenizer=TOKENIZER, max_length=16, padding="do_not_pad")
    plan = plan_packing(fields["token_ids"].row_lengths(), 16, max_examples=4)
    rows = tf.data.Dataset.from_tensor_slices(plan.examples).shuffle(len(plan), seed=0)
    batches = rows.batch(2, drop_remainder=True).map(
        lambda e: (pack(fields, e, 16, TOKENIZER), *pack_labels(np.arange(count), e))
    )
    x, y, weights = batches.element_spec
    assert x["first_slots"].shape == (2, 4)
    assert {spec.shape for name, spec in x.items() if name != "first_slots"} == {(2, 16)}
    assert y.shape == weights.shape == (2, 4)
    seen = []
    for x, y, weights in batches.as_numpy_iterator():
        for row, column in np.argwhere(weights):
            tokens = x["token_ids"][row][x["example_ids"][row] == column + 1]
            assert tokens[0] == CLS
            assert tokens[-1] == SEP
            assert set(tokens[1:-1]) == {y[row, column]}
            seen.append(y[row, column])
    assert len(set(seen)) == len(seen) >= count - 4


def test_a_plan_for_other_lengths_is_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most `max_length` = 8 tokens"):
        pack(FIELDS, [[0, 2]], 8, TOKENIZER)


def test_examples_in_the_documentation():
    assert doctest.testmod(packing).failed == 0
