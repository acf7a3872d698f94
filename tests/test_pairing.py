"""keras_bert.text.pairing: the original loop, plain Python, Hugging Face's library, rows by hand."""

import doctest
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_bert.text import pairing
from keras_bert.text.pairing import combine, frame, longest_first

CLS, SEP, PAD = 101, 102, 100


def tokenizer_with(separators):
    return SimpleNamespace(
        cls_token_id=CLS, sep_token_id=SEP, pad_token_id=PAD, pair_separators=separators
    )


TOKENIZER = tokenizer_with(1)


def ragged(rows, splits="int64"):
    return tf.ragged.constant(rows, dtype="int32", ragged_rank=1, row_splits_dtype=splits)


def original_loop(a, b, limit):
    kept = [a, b]
    while sum(kept) > limit:
        kept[0 if kept[0] > kept[1] else 1] -= 1
    return kept


def test_longest_first_is_the_original_loop():
    cases = [(a, b, limit) for a in range(9) for b in range(9) for limit in range(18)]
    ours = longest_first(*(tf.constant(x) for x in zip(*cases, strict=True)))
    assert np.stack(ours, axis=1).tolist() == [original_loop(*case) for case in cases]


# The same rules for one row, in plain Python.


def plain_row(a, b, separators, max_length, truncation, type_vocab_size):
    """Lists of slots without padding, from lists of (token id, start, end, word); None if too long."""
    room = max_length - 2 - (0 if b is None else separators)
    second = b or []
    if truncation == "longest_first":
        a_kept, b_kept = original_loop(len(a), len(second), room)
        a, second = a[:a_kept], second[:b_kept]
    while truncation == "only_first" and a and len(a) + len(second) > room:
        a = a[:-1]
    while truncation == "only_second" and second and len(a) + len(second) > room:
        second = second[:-1]
    if len(a) + len(second) > room:
        return None
    cls, sep = (CLS, 0, 0, -1), (SEP, 0, 0, -1)
    row = [(*x, 0) for x in [cls, *a, sep]]
    if b is not None:
        row += [(*sep, 0)] * (separators - 1)
        row += [(*x, int(type_vocab_size > 1)) for x in [*second, sep]]
    return row


NAMES = ("token_ids", "char_starts", "char_ends", "word_ids", "segment_ids")


def text_fields(rows):
    return {name: ragged([[x[i] for x in row] for row in rows]) for i, name in enumerate(NAMES[:4])}


numbers = st.integers(0, 99)
texts = st.lists(st.tuples(numbers, numbers, numbers, numbers), max_size=9)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_as_in_plain_python(data):
    is_pair = data.draw(st.booleans())
    separators = data.draw(st.sampled_from([1, 2]))
    multiple = data.draw(st.sampled_from([None, 1, 2, 4]))
    max_length = data.draw(st.sampled_from([8, 12, 16]))
    truncation = data.draw(st.sampled_from([None, *pairing.TRUNCATIONS]))
    padding = data.draw(st.sampled_from(["max_length", "longest"]))
    type_vocab_size = data.draw(st.sampled_from([1, 2]))
    if truncation == "only_second" and not is_pair:
        return
    pairs = data.draw(st.lists(st.tuples(texts, texts if is_pair else st.none()), max_size=4))
    types = 1 if separators == 2 else type_vocab_size  # such tokenizers say nothing of segments
    expected = [plain_row(*pair, separators, max_length, truncation, types) for pair in pairs]

    def run():
        return combine(
            text_fields([a for a, _ in pairs]),
            text_fields([b for _, b in pairs]) if is_pair else None,
            tokenizer=tokenizer_with(separators),
            max_length=max_length,
            truncation=truncation,
            padding=padding,
            pad_to_multiple_of=multiple,
            type_vocab_size=type_vocab_size,
        )

    if None in expected:
        with pytest.raises(tf.errors.InvalidArgumentError, match="must fit into `max_length`"):
            run()
        return
    width = max_length
    if padding == "longest":
        shortest = 2 + separators if is_pair else 2
        width = max([shortest, *(len(row) for row in expected)])
        while width % (multiple or 1):
            width += 1
    out = run()
    assert set(out) == {*NAMES, "padding_mask"}
    outside = (PAD, 0, 0, -1, 0)
    for i, name in enumerate(NAMES):
        rows = [[x[i] for x in row] + [outside[i]] * (width - len(row)) for row in expected]
        assert out[name].dtype == tf.int32
        assert out[name].shape == (len(pairs), width)
        assert out[name].numpy().tolist() == rows, name
    real = [[1] * len(row) + [0] * (width - len(row)) for row in expected]
    assert out["padding_mask"].numpy().tolist() == real


# Hugging Face's library, but for pairs under longest_first: it breaks ties the other way.

PIECES = ["zero", "one", "two", "three", "four", "five", "six", "sev", "##en", "eight", "nine"]
A = ["one two three", "four", "", "five six seven eight nine one", "  ", "one one"]
B = ["six seven", "eight nine one two three", "one", "four five six", "", "two three"]


def their_tokenizer(separators):
    words = {**{piece: i for i, piece in enumerate(PIECES)}, "[CLS]": CLS, "[SEP]": SEP}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token="zero"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    processors, ends = tokenizers.processors, (("[SEP]", SEP), ("[CLS]", CLS))
    if separators == 1:
        tokenizer.post_processor = processors.BertProcessing(*ends)
    else:
        tokenizer.post_processor = processors.RobertaProcessing(*ends, False, False)
    return tokenizer


def their_fields(encodings):
    """Lists of rows in our names."""
    return {
        "token_ids": [e.ids for e in encodings],
        "padding_mask": [e.attention_mask for e in encodings],
        "segment_ids": [e.type_ids for e in encodings],
        "char_starts": [[start for start, _ in e.offsets] for e in encodings],
        "char_ends": [[end for _, end in e.offsets] for e in encodings],
        "word_ids": [[-1 if i is None else i for i in e.word_ids] for e in encodings],
    }


@pytest.mark.parametrize("separators", [1, 2])
@pytest.mark.parametrize("case", ["longest_first", "only_first", "pair only_first", "pair only_second"])
def test_as_hugging_faces_library(case, separators):
    theirs = their_tokenizer(separators)
    is_pair, truncation = "pair" in case, case.split()[-1]
    a, b = (
        {
            name: ragged(rows)
            for name, rows in their_fields(theirs.encode_batch(x, add_special_tokens=False)).items()
            if name in NAMES[:4]
        }
        for x in (A, B)
    )
    max_length = 12 if is_pair else 8
    theirs.enable_truncation(max_length, strategy=truncation)
    theirs.enable_padding(pad_id=PAD, pad_token="[PAD]", pad_to_multiple_of=4)
    encodings = theirs.encode_batch(list(zip(A, B, strict=True)) if is_pair else A)
    assert any(e.overflowing for e in encodings)  # something was cut
    ours = combine(
        a,
        b if is_pair else None,
        tokenizer=tokenizer_with(separators),
        max_length=max_length,
        truncation=truncation,
        padding="longest",
        pad_to_multiple_of=4,
    )
    assert {name: x.numpy().tolist() for name, x in ours.items()} == their_fields(encodings)


def test_texts_without_tokens_leave_their_separators():
    for a, b, separators, row in [
        ([], None, 1, [CLS, SEP, PAD, PAD, PAD]),
        ([], None, 2, [CLS, SEP, PAD, PAD, PAD]),
        ([], [], 1, [CLS, SEP, SEP, PAD, PAD]),
        ([], [], 2, [CLS, SEP, SEP, SEP, PAD]),
        ([7], [], 1, [CLS, 7, SEP, SEP, PAD]),
        ([], [7], 2, [CLS, SEP, SEP, 7, SEP]),
    ]:
        b = None if b is None else ragged([b])
        out = combine(ragged([a]), b, tokenizer=tokenizer_with(separators), max_length=5)
        assert out["token_ids"].numpy().tolist() == [row]


@pytest.mark.parametrize("padding", pairing.PADDINGS)
def test_a_batch_without_rows(padding):
    out = combine(ragged([]), ragged([]), tokenizer=TOKENIZER, max_length=6, padding=padding)
    assert out["token_ids"].shape[0] == 0
    if padding == "longest":
        assert out["token_ids"].shape[1] == 3  # as wide as the special tokens


def test_ragged_rows_are_the_padded_ones_without_padding():
    a, b = text_fields([[(7, 0, 1, 0)], []]), text_fields([[(8, 0, 2, 0), (9, 3, 4, 1)], []])
    options = {"tokenizer": TOKENIZER, "max_length": 8}
    padded, out = combine(a, b, **options), combine(a, b, **options, padding="do_not_pad")
    assert out["token_ids"].to_list() == [[CLS, 7, SEP, 8, 9, SEP], [CLS, SEP, SEP]]
    assert set(out) == set(padded)
    for name, rows in out.items():
        expected = [padded[name][0, :6].numpy().tolist(), padded[name][1, :3].numpy().tolist()]
        assert rows.to_list() == expected


IDS = ragged([[1, 2, 3], [], [4, 5, 6, 7, 8, 9], [1]])
OTHERS = ragged([[4], [5, 6, 7, 8], [9, 1], []])
STRINGS = tf.constant(["1 2 3", "", "4 5 6 7 8 9", "1"])


def split(text):
    """A tokenizer as simple as can be: numbers are their own ids."""
    words = tf.strings.split(text)
    return words.with_values(tf.strings.to_number(words.values, tf.int32))


class Exported(tf.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = {"tokenizer": TOKENIZER, "max_length": 8, **options}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, text):
        return combine(split(text), split(text), **self.options)


def test_everywhere_the_same(tmp_path):
    """Eagerly, in a graph, with XLA, in tf.data and from a SavedModel."""
    expected = combine(IDS, IDS, tokenizer=TOKENIZER, max_length=8)
    module = Exported()
    tf.saved_model.save(module, str(tmp_path))
    batches = tf.data.Dataset.from_tensors(STRINGS).map(module)
    compiled = tf.function(
        lambda a, b: combine(a, b, tokenizer=TOKENIZER, max_length=8), jit_compile=True
    )
    for out in (
        module(STRINGS),
        tf.saved_model.load(str(tmp_path))(STRINGS),
        next(iter(batches)),
        compiled(IDS, IDS),
        combine(
            *(IDS.with_row_splits_dtype(tf.int32) for _ in "ab"), tokenizer=TOKENIZER, max_length=8
        ),
    ):
        for name, value in expected.items():
            np.testing.assert_array_equal(out[name], value)
    assert batches.element_spec["token_ids"].shape[1] == 8


@pytest.mark.parametrize("truncation", ["do_not_truncate", "only_first", "only_second"])
def test_nothing_is_cut_in_silence(truncation, tmp_path):
    """Rows that stay too long stop the graph, wherever it runs: here texts of 6 and 6 in 8 slots."""
    module = Exported(truncation=truncation)
    tf.saved_model.save(module, str(tmp_path))
    batches = tf.data.Dataset.from_tensors(STRINGS).map(module)
    message = f"`max_length` = 8 tokens, 3 of them special, after truncation {truncation}"
    for run in (
        lambda: combine(IDS, IDS, **module.options),
        lambda: module(STRINGS),
        lambda: tf.saved_model.load(str(tmp_path))(STRINGS),
        lambda: next(iter(batches)),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            run()


def test_a_text_may_lose_all_of_its_tokens():
    a, b = ragged([[1, 2]]), ragged([[3, 4, 5]])
    out = combine(a, b, tokenizer=TOKENIZER, max_length=6, truncation="only_first")
    assert out["token_ids"].numpy().tolist() == [[CLS, SEP, 3, 4, 5, SEP]]


def test_different_numbers_of_rows_are_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match="same number of rows"):
        combine(IDS, OTHERS[:1], tokenizer=TOKENIZER, max_length=16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"truncation": "longest"}, "`truncation` must be one of longest_first.*'longest'"),
        ({"truncation": "only_second", "b": None}, "must come with a `b`"),
        ({"padding": "max"}, "`padding` must be one of max_length, longest.*'max'"),
        ({"max_length": 3}, "room for a token beside 3 special ones. Received: 3"),
        ({"max_length": 2, "b": None}, "room for a token beside 2"),
        ({"pad_to_multiple_of": 3}, "multiple.*max_length=8, pad_to_multiple_of=3"),
        ({"pad_to_multiple_of": 4, "padding": "do_not_pad"}, "must be None"),
        ({"a": IDS.to_tensor()}, r"`a` must hold ragged tensors.*token_ids = int32 \(4, 6\)"),
        ({"a": IDS[0]}, r"ragged tensors.*int32 \(3,\)"),
        ({"b": [[1], [2]]}, "`b` must hold ragged tensors.*token_ids = list"),
        ({"a": {"ids": IDS}}, r"field token_ids.*\['ids'\]"),
        ({"a": {"token_ids": IDS, "words": IDS}}, "may have char_starts.*words"),
        ({"a": {"token_ids": IDS, "word_ids": IDS}}, "same fields.*'word_ids'"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        combine(**{"a": IDS, "b": OTHERS, "tokenizer": TOKENIZER, "max_length": 8, **options})


# Rows cut out of one flat array.


def test_rows_by_hand():
    out = frame(
        {"token_ids": np.arange(20, dtype="int32")},
        *(
            (np.array(x, "int64"), np.array(n, "int64"))
            for x, n in ([[7, 0], [2, 3]], [[15, 10], [1, 2]])
        ),
        length=8,
        tokenizer=TOKENIZER,
    )
    assert out["token_ids"].numpy().tolist() == [
        [CLS, 7, 8, SEP, 15, SEP, PAD, PAD],
        [CLS, 0, 1, 2, SEP, 10, 11, SEP],
    ]
    assert out["segment_ids"].numpy().tolist() == [[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1]]
    assert out["padding_mask"].numpy().tolist() == [[1] * 6 + [0] * 2, [1] * 8]


def test_texts_may_be_empty_and_lie_at_the_very_end():
    out = frame(
        {"token_ids": np.array([5, 6], "int32")},
        *(
            (np.array(x, "int64"), np.array(n, "int64"))
            for x, n in ([[1, 2], [1, 0]], [[2, 0], [0, 2]])
        ),
        length=5,
        tokenizer=TOKENIZER,
    )
    assert out["token_ids"].numpy().tolist() == [[CLS, 6, SEP, SEP, PAD], [CLS, SEP, 5, 6, SEP]]


def test_examples_in_the_documentation():
    assert doctest.testmod(pairing).failed == 0
    a, b = text_fields([[(7, 0, 1, 0), (8, 1, 2, 0)]]), text_fields([[(9, 0, 1, 0)]])
    out = combine(a, b, tokenizer=TOKENIZER, max_length=8)
    for line in combine.__doc__.splitlines():
        for name in ("token_ids", "padding_mask", "word_ids", "segment_ids"):
            if f"  {name}  " in line:
                shown = line.split(name)[1].split()[:8]
                names = {"CLS": CLS, "SEP": SEP, "PAD": PAD}
                assert [int(names.get(x, x)) for x in shown] == out[name][0].numpy().tolist()
