"""Long texts as overlapping windows, and back: every token is read, and answered for once.

    text      0 1 2 3 4 5 6 7 8          room 5, stride 3
    windows   0 1 2 3 4
                    3 4 5 6 7
                          6 7 8

All of it is arithmetic on lengths, in the graph; windows are numbered text by text.
"""

import tensorflow as tf


def check_stride(room, stride):
    """Refuses windows that would skip tokens or never end.

    Raises:
        ValueError: When `stride` is not at least 1 and at most `room`.
    """
    if not 1 <= stride <= room:
        raise ValueError(
            "`stride` must be at least 1 and at most the room that a window has for the text. "
            f"Received: stride={stride}, room for {room} tokens."
        )


def windows(lengths, room, stride):
    """Cuts texts into windows that begin `stride` tokens after each other; the last may be shorter.

    A text without tokens has one window, an empty one.

    Shapes (B texts, W windows of all of them):
        lengths  (B,)        int, tokens of each text
        room     (B,) or ()  int, most tokens of a window of each text
        stride   ()          int, see `check_stride`
        returns  three of (W,) int32: which text each window is of, where in it the window begins, and
                 how many tokens it has
    """
    lengths = tf.cast(lengths, tf.int32)
    room = tf.broadcast_to(tf.cast(room, tf.int32), tf.shape(lengths))
    beyond = tf.maximum(lengths - room, 0)
    counts = 1 + (beyond + stride - 1) // stride  # (B,)
    texts = tf.repeat(tf.range(tf.size(lengths)), counts)  # (W,)
    number = tf.range(tf.size(texts)) - tf.gather(tf.cumsum(counts, exclusive=True), texts)
    starts = number * stride
    return texts, starts, tf.minimum(tf.gather(lengths, texts) - starts, tf.gather(room, texts))


def best_slots(texts, starts, sizes, lengths):
    """For each token of each text, the place in a window where it has most context on both sides.

    The rule of google-research/bert for SQuAD: of the windows that hold a token, the one where the
    nearer end of the window is farthest counts; on a tie, the first.

    Shapes (B texts, W windows, M tokens of all windows, N tokens of all texts):
        texts, starts, sizes  (W,)  int32, as `windows` gives them
        lengths               (B,)  int, tokens of each text
        returns               two of (N,) int32: the window, and the token's place in it
    """
    lengths = tf.cast(lengths, tf.int32)
    window = tf.repeat(tf.range(tf.size(sizes)), sizes)  # (M,)
    place = tf.range(tf.size(window)) - tf.gather(tf.cumsum(sizes, exclusive=True), window)
    context = tf.minimum(place, tf.gather(sizes, window) - 1 - place)
    first = tf.gather(tf.cumsum(lengths, exclusive=True), texts) + starts  # (W,)
    token = tf.gather(first, window) + place  # (M,), in [0, N)
    count = tf.reduce_sum(lengths)
    most = tf.math.unsorted_segment_max(context, token, count)
    index = tf.where(context == tf.gather(most, token), tf.range(tf.size(token)), tf.int32.max)
    chosen = tf.math.unsorted_segment_min(index, token, count)
    return tf.gather(window, chosen), tf.gather(place, chosen)
