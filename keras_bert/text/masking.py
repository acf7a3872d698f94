"""Choosing which tokens a masked LM must predict, as a pure function of a key for each row."""

import tensorflow as tf

from keras_bert.hashing import below, uniform

# Streams of random numbers that share a row's key.
_ORDER, _FATE, _REPLACEMENT, _TIE = range(4)


def word_ids(token_ids, is_candidate, tokenizer):
    """Numbers the words of each row: the pieces of one word share a number.

    Shapes (B rows, T tokens):
        token_ids     (B, T)  int32
        is_candidate  (B, T)  bool, false at special tokens and padding
        returns       (B, T)  int32, from 1; -1 where not a candidate
    """
    continues = tf.gather(tf.constant(tokenizer.is_continuation), token_ids)
    # a piece right behind a special token starts a word whatever it looks like
    before = tf.pad(is_candidate, [[0, 0], [1, 0]])[:, :-1]
    starts = is_candidate & ~(continues & before)
    return tf.where(is_candidate, tf.cumsum(tf.cast(starts, tf.int32), axis=1), -1)


def mask_tokens(
    token_ids,
    is_candidate,
    keys,
    tokenizer,
    max_predictions,
    rate=0.15,
    whole_words=False,
    mask_share=0.8,
    random_share=0.1,
):
    """Picks a share of the candidate tokens and hides most of them (Devlin et al. 2018, section 3.1).

    Each row predicts round(rate * candidates) tokens, at least one where it has a candidate, at most
    `max_predictions`; every candidate is as likely as any other, capped or not. With `whole_words` the
    pieces of a word are chosen together, and a word that would cross the count is taken when that
    brings the count nearer to it: so long words are chosen somewhat less often than short ones, and
    much less where `max_predictions` caps the count. With max_predictions = 3:

        token_ids       CLS 14  MASK  16  33  SEP     was: CLS 14 15 16 17 SEP
        mask_positions   2   4   0                    15 was masked, 17 replaced by a random word
        mask_ids        15  17   0
        mask_weights     1   1   0

    Shapes (B rows, T tokens, P = max_predictions):
        token_ids     (B, T)  int32
        is_candidate  (B, T)  bool: false at special tokens and padding
        keys          (B,)    uint32; the same key draws the same tokens
        returns       token_ids (B, T), mask_positions, mask_ids (B, P) int32,
                      mask_weights (B, P) float32; positions ascend, padding is 0

    Args:
        tokenizer: For `[MASK]`, the words that may stand in for others (never a special token), and
            which pieces continue a word.
        rate: Share of candidates to predict.
        mask_share, random_share: Of the chosen tokens, how many become `[MASK]` and how many a random
            word; the rest stay as they are.
    """
    keys = keys[:, None]
    length = token_ids.shape[1]
    slots = tf.range(length, dtype=tf.int32)[None, :]  # (1, T)
    units = word_ids(token_ids, is_candidate, tokenizer) if whole_words else slots

    # Order the units by chance; the pieces of a unit share its number and stay together.
    score = tf.where(is_candidate, uniform(keys, _ORDER, units), 2.0)
    order = tf.argsort(score, axis=1, stable=True)[:, :max_predictions]  # (B, P)
    candidates = tf.reduce_sum(tf.cast(is_candidate, tf.int32), axis=1, keepdims=True)
    goal = tf.cast(tf.round(rate * tf.cast(candidates, tf.float32)), tf.int32)
    goal = tf.minimum(tf.maximum(goal, 1), tf.minimum(max_predictions, candidates))  # (B, 1)
    if whole_words:
        tie = below(2, keys, _TIE)
        chosen = _whole_units(score, order, 2 * goal - tie, max_predictions)
    else:
        chosen = tf.range(max_predictions)[None, :] < goal

    positions = tf.sort(tf.where(chosen, order, length), axis=1)
    real = positions < length
    positions = tf.where(real, positions, 0)
    true_ids = tf.gather(token_ids, positions, batch_dims=1)

    fate = uniform(keys, _FATE, positions)
    allowed = tf.constant([i for i in range(tokenizer.vocabulary_size) if not tokenizer.is_special[i]])
    words = tf.gather(allowed, below(len(allowed), keys, _REPLACEMENT, positions))
    shown = tf.where(fate < mask_share + random_share, tf.cast(words, tf.int32), true_ids)
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


def _whole_units(score, order, twice_goal, max_predictions):
    """Which of the ordered tokens (B, P) belong to units that are taken whole; the goal is doubled."""
    ordered = tf.gather(score, order, batch_dims=1)
    same_unit = ordered[:, :, None] == ordered[:, None, :]  # (B, P, P)
    # a unit's size counts all of its pieces, also those cut off behind max_predictions
    size = tf.reduce_sum(tf.cast(ordered[:, :, None] == score[:, None, :], tf.int32), axis=2)
    rank = tf.range(max_predictions)[None, None, :]
    start = tf.reduce_min(tf.where(same_unit, rank, max_predictions), axis=2)  # (B, P)
    nearer = 2 * start + size <= twice_goal  # than without the unit
    fits = start + size <= max_predictions
    first = start == 0  # one unit always is taken, if need be without its last pieces
    return ((nearer & fits) | first) & (ordered < 2.0)
