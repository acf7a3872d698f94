"""Two segments in one row: `[CLS] a [SEP] b [SEP]`, and how to cut them to fit."""

import tensorflow as tf


def longest_first(a_lengths, b_lengths, limit):
    """How many tokens of each segment remain when the longer one gives up a token at a time.

    The loop of google-research/bert (`truncate_seq_pair`), in closed form; on a tie `b` gives way.

    Shapes (B pairs):
        a_lengths, b_lengths  (B,)  int
        limit                 (B,) or ()  int, at least 2: most tokens of both together
        returns               two of (B,)

    >>> [int(n) for n in longest_first(tf.constant(10), tf.constant(3), tf.constant(8))]
    [5, 3]
    """
    a_kept = tf.minimum(a_lengths, tf.maximum(limit - b_lengths, limit - limit // 2))
    return a_kept, tf.minimum(b_lengths, limit - a_kept)


def join_pairs(tokens, a_starts, a_lengths, b_starts, b_lengths, max_length, tokenizer):
    """Cuts pairs of segments out of one flat array of tokens, into padded rows.

    With a = [7 8], b = [9] and max_length = 8:

        token_ids     CLS  7   8  SEP  9  SEP PAD PAD
        segment_ids    0   0   0   0   1   1   0   0
        padding_mask   1   1   1   1   1   1   0   0

    Shapes (B pairs, N flat tokens, T = max_length):
        tokens                (N,)  int32
        a_starts, b_starts    (B,)  int64, where the segments begin in `tokens`
        a_lengths, b_lengths  (B,)  int64; together at most T - 3
        returns               a dict of int32 (B, T), as in the batch vocabulary
    """
    slot = tf.range(max_length, dtype=tf.int64)[None, :]  # (1, T)
    a_starts, a_lengths, b_starts, b_lengths = (
        x[:, None] for x in (a_starts, a_lengths, b_starts, b_lengths)
    )
    first_sep = a_lengths + 1
    last_sep = first_sep + b_lengths + 1
    in_a = (slot >= 1) & (slot < first_sep)
    in_b = (slot > first_sep) & (slot < last_sep)
    source = tf.where(in_a, a_starts + slot - 1, b_starts + slot - first_sep - 1)
    words = tf.gather(tokens, tf.where(in_a | in_b, source, 0))
    is_sep = (slot == first_sep) | (slot == last_sep)
    special = tf.where(is_sep, tokenizer.sep_token_id, tokenizer.pad_token_id)
    special = tf.where(slot == 0, tokenizer.cls_token_id, special)
    return {
        "token_ids": tf.where(in_a | in_b, words, special),
        "padding_mask": tf.cast(slot <= last_sep, tf.int32),
        "segment_ids": tf.cast((slot > first_sep) & (slot <= last_sep), tf.int32),
    }
