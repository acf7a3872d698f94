"""Choosing which tokens a masked LM must predict, as a pure function of a key for each row."""

from typing import Literal, get_args

import numpy as np
import tensorflow as tf

from keras_bert.hashing import below, uniform

Masking = Literal["token", "whole_word", "span", "ngram"]

# Streams of random numbers that share a row's key.
_ORDER, _FATE, _REPLACEMENT, _WINDOW, _LENGTH = range(5)

_DRAWS = 2**15  # a length is looked up with 15 random bits


def _draw_table(weights):
    """Lengths 1, 2, ..., each in as many of `_DRAWS` entries as its weight says."""
    shares = np.cumsum(weights / np.sum(weights))
    return 1 + np.searchsorted(shares[:-1], (np.arange(_DRAWS) + 0.5) / _DRAWS).astype("int32")


# How many words are chosen together.
_LENGTHS = {
    "span": _draw_table(0.8 ** np.arange(10)),  # geometric, p = 0.2, up to 10: 3.8 on average
    "ngram": _draw_table(1 / np.arange(1, 4)),
}


def word_ids(token_ids, is_candidate, tokenizer):
    """Numbers the words of each row by the ids alone: the pieces of one word share a number.

    Shapes (B rows, T tokens):
        token_ids     (B, T)  int32
        is_candidate  (B, T)  bool, false at special tokens and padding
        returns       (B, T)  int32, from 0; -1 where not a candidate
    """
    continues = tf.gather(tf.constant(tokenizer.is_continuation), token_ids)
    # a piece right behind a special token starts a word whatever it looks like
    starts = is_candidate & ~(continues & _behind(is_candidate))
    return tf.where(is_candidate, tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, -1)


def mask_tokens(
    token_ids,
    word_ids,
    keys,
    tokenizer,
    max_predictions,
    rate=0.15,
    masking="token",
    mask_share=0.8,
    random_share=0.1,
):
    """Picks a share of the candidate tokens and hides most of them (Devlin et al. 2018, section 3.1).

    Each row has a goal of round(rate * candidates) tokens, at least one where it has a candidate, at
    most `max_predictions`. What is chosen together depends on `masking`:

        token       each token by itself
        whole_word  the pieces of a word
        span        1 to 10 words, geometric with p = 0.2 (Joshi et al. 2020, section 3.1)
        ngram       n = 1 to 3 words, p(n) proportional to 1 / n (Lan et al. 2020, section 3.1)

    The words between two non-candidates are cut into spans of such lengths, one behind the other. The
    spans of a row are laid round a circle in random order, and the words that start among `goal`
    tokens, from a random token on, are taken. So every candidate is equally likely, wherever it stands
    and whatever the length of its word or span; words stay whole, and the count misses the goal by a
    part of a word at most. Spans have the lengths drawn, except at both ends of the `goal` tokens:
    there, as at the end of a segment, a span is cut.

    Two exceptions are at the expense of long words. One that would cross `max_predictions` is left
    out: with no room above a goal of 19, words of 2, 3, 4 pieces are 4, 9, 14 % less likely; with room
    for 3 more, not at all. And where no word starts among so few tokens, the next one is taken, if
    need be without its last pieces.

    With max_predictions = 3:

        token_ids       CLS 14  MASK  16  33  SEP     was: CLS 14 15 16 17 SEP
        mask_positions   2   4   0                    15 was masked, 17 replaced by a random word
        mask_ids        15  17   0
        mask_weights     1   1   0

    Shapes (B rows, T tokens, known when traced, P = max_predictions):
        token_ids     (B, T)  int32
        word_ids      (B, T)  int32: -1 where no candidate (special tokens, padding), else a number
                              that the pieces of a word share and the next word does not; it may
                              start again in each segment or packed example
        keys          (B,)    uint32; the same key draws the same tokens
        returns       token_ids (B, T), mask_positions, mask_ids (B, P) int32,
                      mask_weights (B, P) float32; positions ascend, padding is 0

    Args:
        tokenizer: For `[MASK]` and the words that may stand in for others (never a special token).
        rate: Share of candidates to predict.
        masking: What is chosen together.
        mask_share, random_share: Of the chosen tokens, how many become `[MASK]` and how many a random
            word; the rest stay as they are. A span shares its fate, though not its random words.
    """
    check_masking(masking)
    keys = keys[:, None]
    length = token_ids.shape[1]
    slots = tf.range(length, dtype=tf.int32)[None, :]  # (1, T)
    is_candidate = word_ids >= 0
    candidates = tf.reduce_sum(tf.cast(is_candidate, tf.int32), axis=1, keepdims=True)
    goal = tf.cast(tf.round(rate * tf.cast(candidates, tf.float32)), tf.int32)
    goal = tf.minimum(tf.maximum(goal, 1), tf.minimum(max_predictions, candidates))  # (B, 1)

    fated = slots  # what draws a fate of its own
    if masking == "token":
        score = tf.where(is_candidate, uniform(keys, _ORDER, slots), 2.0)
        order = _lowest(score, max_predictions)  # (B, P)
        chosen = tf.range(order.shape[1])[None, :] < goal
    else:
        new_number = word_ids != tf.pad(word_ids, [[0, 0], [1, 0]], constant_values=-1)[:, :-1]
        starts = is_candidate & new_number
        words = tf.cumsum(tf.cast(starts, tf.int32), axis=1)  # from 1, numbered through the row
        ranks = tf.cumsum(tf.cast(is_candidate, tf.int32), axis=1)  # of the candidates, from 1
        spans = words
        if masking in _LENGTHS:
            draws = tf.cast(_DRAWS * uniform(keys, _LENGTH, slots), tf.int32)
            lengths = tf.gather(tf.constant(_LENGTHS[masking]), draws)
            spans = _tile(starts, words, slots + 1 - ranks, lengths)
        fated = spans if masking == "span" else slots
        order, chosen = _window(keys, is_candidate, ranks, starts, words, spans, goal, max_predictions)

    positions = tf.sort(tf.where(chosen, order, length), axis=1)
    missing = max_predictions - positions.shape[1]  # where a row is shorter than `max_predictions`
    positions = tf.pad(positions, [[0, 0], [0, missing]], constant_values=length)
    real = positions < length
    positions = tf.where(real, positions, 0)
    true_ids = tf.gather(token_ids, positions, batch_dims=1)

    fated = positions if fated is slots else tf.gather(fated, positions, batch_dims=1)
    fate = uniform(keys, _FATE, fated)
    allowed = np.flatnonzero(~tokenizer.is_special).astype("int32")
    words = tf.gather(allowed, below(len(allowed), keys, _REPLACEMENT, positions))
    shown = tf.where(fate < mask_share + random_share, words, true_ids)
    shown = tf.where(fate < mask_share, tokenizer.mask_token_id, shown)
    # padded predictions write into a column of their own, which is cut off again
    targets = tf.where(real, positions, length)
    rows = tf.broadcast_to(tf.range(tf.shape(targets)[0])[:, None], tf.shape(targets))
    masked = tf.tensor_scatter_nd_update(
        tf.pad(token_ids, [[0, 0], [0, 1]]), tf.stack([rows, targets], axis=2), shown
    )
    return {
        "token_ids": masked[:, :length],
        "mask_positions": positions,
        "mask_ids": tf.where(real, true_ids, 0),
        "mask_weights": tf.cast(real, tf.float32),
    }


def check_masking(masking):
    """Refuses what is no name of a `Masking`."""
    if masking not in get_args(Masking):
        raise ValueError(
            f"`masking` must be {' or '.join(map(repr, get_args(Masking)))}. Received: {masking!r}."
        )


def _behind(flags):
    """Whether the slot before is flagged, (B, T)."""
    return tf.pad(flags, [[0, 0], [1, 0]])[:, :-1]


def _lowest(score, count):
    """Slots of the lowest scores, rising, (B, min(count, T)); of equal ones the first comes first."""
    return tf.math.top_k(-score, min(count, score.shape[1])).indices


def _tile(starts, words, gaps, lengths):
    """Cuts each segment's words into spans of random lengths, all in closed form.

    Every slot has drawn a length, which is more than enough: a segment uses those from the gap before
    it on, one for each span. With single-piece words:

        words    . 1 2 3 . 4 5 .
        lengths  2 3 1 2 1 1 2 1
        returns  . 0 0 1 . 4 5 .    slot of the length: no two segments share a number

    Shapes (B rows, T tokens):
        starts   (B, T)  bool, where a word begins
        words    (B, T)  int32, from 1, numbered through the row
        gaps     (B, T)  int32, how many non-candidates there are up to each slot, this one included
        lengths  (B, T)  int32
        returns  (B, T)  int32, of no meaning where not a candidate
    """
    ends = tf.cumsum(lengths, axis=1)
    gap = tf.searchsorted(gaps, gaps)  # (B, T), slot of the gap before; 0 where there is none
    # count words from the lengths before their segment on: the first end that reaches one is its span's
    shift = (ends - lengths) - (words - tf.cast(starts, tf.int32))
    return tf.searchsorted(ends, words + tf.gather(shift, gap, batch_dims=1))


def _window(keys, is_candidate, ranks, starts, words, spans, goal, max_predictions):
    """Lays the spans round a circle and takes the words that start in a window of `goal` tokens.

    Shapes (B rows, T tokens, R = min(P, T)):
        is_candidate  (B, T)  bool
        ranks         (B, T)  int32, how many candidates there are up to each slot
        starts        (B, T)  bool, where a word begins
        words, spans  (B, T)  int32, the numbers of each token's word and span
        goal          (B, 1)  int32
        returns       order (B, R) int32, slots of tokens; chosen (B, R) bool
    """
    candidates, last = ranks[:, -1:], ranks.shape[1] - 1
    begin = 1 + below(tf.maximum(candidates, 1), keys, _WINDOW)  # the window's first candidate
    slot = tf.minimum(tf.searchsorted(ranks, begin), last)  # (B, 1)
    word, span, is_start = (tf.gather(x, slot, batch_dims=1) for x in (words, spans, starts))
    first_word = tf.where(is_start, word, word + 1)
    left_over = is_candidate & (words == word) & (ranks >= begin) & ~is_start
    goal -= tf.reduce_sum(tf.cast(left_over, tf.int32), axis=1, keepdims=True)
    # open the circle at the first whole word: those before it in its span come last
    score = tf.where(words < first_word, 1.0, -1.0)
    score = tf.where(spans == span, score, uniform(keys, _ORDER, spans))
    order = _lowest(tf.where(is_candidate, score, 2.0), max_predictions + 1)

    place = tf.range(order.shape[1])[None, :]  # (1, P + 1), or (1, T) where that is less
    begins = tf.gather(starts, order, batch_dims=1)
    number = tf.cumsum(tf.cast(begins, tf.int32), axis=1)  # of each token's word, in this order
    taken = tf.reduce_sum(tf.cast(begins & (place < goal), tf.int32), axis=1, keepdims=True)
    too_long = (number == taken) & (place == max_predictions) & (place < candidates)
    taken -= tf.reduce_sum(tf.cast(too_long, tf.int32), axis=1, keepdims=True)
    chosen = (number <= tf.maximum(taken, 1)) & (place < candidates)
    return order[:, :max_predictions], chosen[:, :max_predictions]
