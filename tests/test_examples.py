"""keras_bert.data.examples and text.features: what a batch holds, and which token stands for what."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.data.examples import Examples
from keras_bert.data.packed_examples import PackedExamples
from keras_bert.text.features import answer_rows, choice_rows, text_rows, word_rows
from keras_bert.text.wordpiece import WordPieceTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "##x", "##y", ".", "who"]
TOKENIZER = WordPieceTokenizer(PIECES)
LENGTHS = np.random.default_rng(0).integers(1, 9, 137)


def make_examples(labels=None, **options):
    ids = tf.ragged.constant([[number] * length for number, length in enumerate(LENGTHS)], tf.int32)
    inputs = {"token_ids": ids, "segment_ids": tf.zeros_like(ids)}
    return Examples(inputs, labels, pad_token_id=999, **options)


def numbers_of(x):
    return x["token_ids"][:, 0].tolist()


def test_an_epoch_meets_each_example_once_in_batches_of_like_length():
    examples = make_examples(np.arange(137), seed=3)
    steps = examples.steps_per_epoch(4)
    assert steps == 35
    data = examples.training_batches(4, epochs=2).take(2 * steps).as_numpy_iterator()
    epochs = [[next(data) for _ in range(steps)] for _ in range(2)]
    orders = []
    for batches in epochs:
        real = [number for x, y, w in batches for number, weight in zip(y, w, strict=True) if weight]
        assert sorted(real) == list(range(137))
        orders.append(real)
        widths = [LENGTHS[y[w > 0]] for _, y, w in batches]
        assert np.mean([lengths.max() - lengths.min() for lengths in widths]) < 0.7
        firsts = np.array([lengths.mean() for lengths in widths])
        assert np.abs(np.corrcoef(firsts, np.arange(steps))[0, 1]) < 0.5  # batches are shuffled
    assert orders[0] != orders[1]
    for x, y, w in epochs[0]:
        assert numbers_of(x) == [number if weight else 0 for number, weight in zip(y, w, strict=True)]
        lengths = x["padding_mask"].sum(1)
        assert lengths.tolist() == LENGTHS[numbers_of(x)].tolist()
        assert (x["token_ids"][x["padding_mask"] == 0] == 999).all()
        assert x["token_ids"].shape[1] == lengths.max()


def test_a_start_in_the_middle_and_replicas_get_the_same_batches():
    examples = make_examples(np.arange(137))
    whole = [y.tolist() for _, y, _ in examples.training_batches(8, 2).take(30).as_numpy_iterator()]
    tail = [y.tolist() for _, y, _ in examples.training_batches(8, 2, 11).take(19).as_numpy_iterator()]
    assert tail == whole[11:]
    parts = []
    for pipeline in range(2):
        context = tf.distribute.InputContext(2, pipeline, 2)
        data = examples.training_batches(8, 2, 0, context).take(30)
        parts.append([y.tolist() for _, y, _ in data.as_numpy_iterator()])
    assert [a + b for a, b in zip(*parts, strict=True)] == whole


def test_evaluation_meets_all_once_and_shapes_can_be_fixed():
    examples = make_examples(np.arange(137), length=9)
    found = []
    for x, y, w in examples.evaluation_batches(8).as_numpy_iterator():
        assert x["token_ids"].shape == (8, 9)
        found += y[w > 0].tolist()
    assert sorted(found) == list(range(137))
    spec = examples.training_batches(8, 1).element_spec
    assert spec[0]["token_ids"].shape.as_list()[1] == 9


def test_labels_of_tokens_and_several_rows():
    ids = tf.ragged.constant([[5, 6], [7], [8, 9, 9], [4]], tf.int32)
    inputs = {"token_ids": ids, "segment_ids": tf.zeros_like(ids)}
    by_token = Examples(inputs, tf.ragged.constant([[1, 2], [3], [4, 5, 6], [0]], tf.int32), 0)
    x, y, w = by_token.batch(tf.constant([1, 0, -1], tf.int64))
    assert y.numpy().tolist() == [[3, -1], [1, 2], [1, 2]]
    assert w.numpy().tolist() == [1, 1, 0]
    choices = Examples(inputs, np.array([1, 0], "int32"), 0, rows=2)
    x, y, _ = choices.batch(tf.constant([1, 0], tf.int64))
    assert x["token_ids"].numpy().tolist() == [[[8, 9, 9], [4, 0, 0]], [[5, 6, 0], [7, 0, 0]]]
    assert x["padding_mask"].numpy().tolist() == [[[1, 1, 1], [1, 0, 0]], [[1, 1, 0], [1, 0, 0]]]
    assert y.numpy().tolist() == [0, 1]
    with pytest.raises(ValueError, match="at least one example"):
        Examples({"token_ids": ids[:0]}, None, 0)


def test_a_word_is_labelled_once_whatever_the_windows():
    """Words of one to three pieces; one that the tokenizer deletes."""
    sentences = [["ax", "b", "cxy"], ["\u200b", "d."], ["a"] * 11]
    numbers = np.arange(3 + 2 + 11)
    for max_length in (32, 6, 5):
        rows = word_rows(sentences, TOKENIZER, max_length, stride=2)
        labels = rows.label(numbers)
        flat = labels.values.numpy()
        assert sorted(flat[flat >= 0].tolist()) == [n for n in numbers if n != 3]
        ids = rows.inputs["token_ids"].to_list()
        pieces = {
            label: PIECES[ids[row][slot]]
            for row, of_row in enumerate(labels.to_list())
            for slot, label in enumerate(of_row)
            if label >= 0
        }
        assert [pieces[n] for n in (0, 1, 2, 4)] == ["a", "b", "c", "d"]
        outputs = [np.array(each) for each in ids]
        read = rows.read(outputs, missing=-7)
        assert read[3] == -7
        assert [PIECES[number] for number in (read[0], read[2], read[4])] == ["a", "c", "d"]
        assert max(map(len, ids)) <= max_length


def test_an_answer_is_the_tokens_that_hold_it_or_none():
    context = "ax b cx d. a b c d a b"
    start = context.index("cx d")
    for max_length, windows in ((32, 1), (10, 4)):
        rows = answer_rows(["who b", "who"], [context] * 2, TOKENIZER, max_length, stride=3)
        labels = rows.label([start, -1], [start + 4, -1])
        found = 0
        for row, text in enumerate(rows.texts):
            begin, end = (labels[f"{name}_positions"][row] for name in ("start", "end"))
            if begin:
                assert text == 0
                chars = rows.char_starts[row][begin], rows.char_ends[row][end]
                assert context[int(chars[0]) : int(chars[1])] == "cx d"
                found += 1
            else:
                assert end == 0
        assert found >= 1
        assert (rows.texts == 0).sum() == windows


def test_rows_of_pairs_and_choices():
    rows = text_rows(["a b", "c"], ["d", "a"], TOKENIZER, max_length=16)
    assert rows.inputs["token_ids"].to_list() == [[2, 5, 6, 3, 8, 3], [2, 7, 3, 5, 3]]
    assert rows.inputs["segment_ids"].to_list() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]
    flat = choice_rows(["a", "b"], [["c", "d"], ["c", "c d"]], TOKENIZER, max_length=16)
    assert flat.inputs["token_ids"].to_list()[3] == [2, 6, 3, 7, 8, 3]


# --- several examples in a row


def make_packed(count=60, length=12, **options):
    """Example n is made of the id n + 5, two to nine times; its label is n."""
    lengths = np.random.default_rng(0).integers(2, 10, count)
    ids = tf.RaggedTensor.from_row_lengths(np.repeat(np.arange(count) + 5, lengths), lengths)
    ids = tf.cast(ids, tf.int32)
    inputs = {"token_ids": ids, "segment_ids": tf.zeros_like(ids)}
    return PackedExamples(inputs, np.arange(count), TOKENIZER, length, **options)


def test_an_epoch_of_packed_rows_meets_each_example_once_with_its_label():
    examples, epochs = make_packed(), []
    steps = examples.steps_per_epoch(8)
    batches = examples.training_batches(8, epochs=2)
    spec = batches.element_spec
    assert spec[0]["token_ids"].shape == (examples.rows_per_batch(8), 12)
    for number, (x, y, w) in enumerate(batches.take(2 * steps).as_numpy_iterator()):
        if number % steps == 0:
            epochs.append([])
        for row, place in np.argwhere(w > 0):
            ids = x["token_ids"][row][x["example_ids"][row] == place + 1]
            assert set(ids) == {y[row, place] + 5}
            epochs[-1].append(y[row, place])
        assert (w.sum(1) > 0).sum() == (x["padding_mask"].any(1)).sum()
    assert [sorted(epoch) for epoch in epochs] == [list(range(60))] * 2
    assert epochs[0] != epochs[1]
    held = [int(w.sum()) for _, _, w in examples.evaluation_batches(8).as_numpy_iterator()]
    assert sum(held) == 60
    assert abs(np.mean(held[:-1]) - 8) < 2
    first = examples.describe(0, 8)
    assert sorted(first.removeprefix("epoch 0: examples ").split()) == sorted(
        str(n) for n in epochs[0][: len(first.split()) - 3]
    )


def test_a_start_within_packed_rows_and_shares_of_replicas():
    examples = make_packed(replicas=2)
    assert examples.rows_per_batch(8) % 2 == 0
    whole = [x["token_ids"] for x, *_ in examples.training_batches(8, 2).take(6).as_numpy_iterator()]
    later = examples.training_batches(8, 2, start_step=4).take(2).as_numpy_iterator()
    for expected, (x, *_) in zip(whole[4:], later, strict=True):
        np.testing.assert_array_equal(x["token_ids"], expected)
    parts = []
    for pipeline in range(2):
        context = tf.distribute.InputContext(2, pipeline, 2)
        (batch,) = examples.training_batches(8, 2, 0, context).take(1).as_numpy_iterator()
        parts.append(batch[0]["token_ids"])
    np.testing.assert_array_equal(np.concatenate(parts), whole[0])


def test_labels_of_tokens_lie_with_their_tokens_and_others_are_refused():
    ids = tf.ragged.constant([[5, 6], [7], [8, 9, 9]], tf.int32)
    labels = tf.ragged.constant([[1, -1], [0], [2, 3, 4]], tf.int32)
    inputs = {"token_ids": ids, "segment_ids": tf.zeros_like(ids)}
    examples = PackedExamples(inputs, labels, TOKENIZER, 4)
    x, y, w = examples.batch(tf.constant([[2, 1], [0, -1]], tf.int64))
    assert y.numpy().tolist() == [[2, 3, 4, 0], [1, -1, -1, -1]]
    assert x["example_ids"].numpy().tolist() == [[1, 1, 1, 2], [1, 1, 0, 0]]
    assert w.shape == y.shape
    for wrong in ({"start_positions": np.zeros(3)}, np.zeros(1)):
        with pytest.raises(ValueError, match="one label for each text"):
            PackedExamples(inputs, wrong, TOKENIZER, 4)
