"""keras_bert.text.pairing: the original loop, and rows written by hand."""

from types import SimpleNamespace

import numpy as np
import tensorflow as tf

from keras_bert.text.pairing import join_pairs, longest_first

TOKENIZER = SimpleNamespace(cls_token_id=101, sep_token_id=102, pad_token_id=100)


def test_longest_first_is_the_original_loop():
    cases = [(a, b, limit) for a in range(1, 9) for b in range(1, 9) for limit in range(2, 18)]
    for a, b, limit in cases:
        kept = [a, b]
        while sum(kept) > limit:
            kept[0 if kept[0] > kept[1] else 1] -= 1
        ours = longest_first(tf.constant([a]), tf.constant([b]), tf.constant(limit))
        assert [int(n[0]) for n in ours] == kept, (a, b, limit)


def test_rows_by_hand():
    tokens = np.arange(20, dtype="int32")
    out = join_pairs(
        tokens,
        *(np.array(x, "int64") for x in ([7, 0], [2, 3], [15, 10], [1, 2])),
        max_length=8,
        tokenizer=TOKENIZER,
    )
    assert out["token_ids"].numpy().tolist() == [
        [101, 7, 8, 102, 15, 102, 100, 100],
        [101, 0, 1, 2, 102, 10, 11, 102],
    ]
    assert out["segment_ids"].numpy().tolist() == [[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1]]
    assert out["padding_mask"].numpy().tolist() == [[1] * 6 + [0] * 2, [1] * 8]


def test_segments_may_be_empty_and_lie_at_the_very_end():
    tokens = np.array([5, 6], "int32")
    out = join_pairs(
        tokens,
        *(np.array(x, "int64") for x in ([1, 2], [1, 0], [2, 0], [0, 2])),
        max_length=5,
        tokenizer=TOKENIZER,
    )
    assert out["token_ids"].numpy().tolist() == [[101, 6, 102, 102, 100], [101, 102, 5, 6, 102]]
