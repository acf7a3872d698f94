"""Long texts as overlapping windows, and back: every token is read, and answered for once.

    text      0 1 2 3 4 5 6 7 8          room 5, stride 3
    windows   0 1 2 3 4
                    3 4 5 6 7
                          6 7 8

All of it is arithmetic on lengths, in the graph; windows are numbered text by text.
"""

import tensorflow as tf

from keras_bert.text.pairing import frame


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


def window_rows(text, question=None, *, tokenizer, max_length, stride, type_vocab_size=2):
    """Rows `[CLS] window [SEP]`, or `[CLS] question [SEP] window [SEP]`, for windows over texts.

    Shapes (B texts, W windows of all of them, T = tokens of the longest row):
        text, question  dicts of (B, pieces) ragged int32: token_ids, and other fields of the text
        returns         a dict of the rows (W, T) int32: token_ids, padding_mask, segment_ids and the
                        text's fields; and the windows (W,) int32: texts, starts, sizes as `windows` has
                        them, and first_slots, where in the row the window begins

    Args:
        tokenizer: The tokenizer that made the ids.
        max_length: Most tokens in a row, special ones included.
        stride: Tokens from the beginning of a window to that of the next.
        type_vocab_size: Of the encoder; below 2, segment ids are all 0.

    Raises:
        ValueError: When windows without a question would skip tokens.
        tf.errors.InvalidArgumentError: When a question leaves less room than `stride`.
    """
    fields = {name: tf.cast(ragged.values, tf.int32) for name, ragged in text.items()}
    ids = text["token_ids"]
    text_starts = tf.cast(ids.row_starts(), tf.int32)
    lengths = tf.cast(ids.row_lengths(), tf.int32)
    if question is None:
        check_stride(max_length - 2, stride)
        texts, starts, sizes = windows(lengths, max_length - 2, stride)
        a, b, separators = (tf.gather(text_starts, texts) + starts, sizes), None, 1
        first_slots = tf.ones_like(texts)
    else:
        separators = tokenizer.pair_separators
        asked = question["token_ids"]
        question_lengths = tf.cast(asked.row_lengths(), tf.int32)
        room = max_length - 2 - separators - question_lengths
        tf.debugging.assert_greater_equal(
            room,
            stride,
            "Every question must leave room for at least `stride` tokens of its text. Received: less "
            f"room than stride = {stride} in rows of {max_length} tokens.",
        )
        texts, starts, sizes = windows(lengths, room, stride)
        # the questions' tokens stand before the texts' in the flat arrays
        shift = tf.shape(asked.values)[0]
        fields = {
            name: tf.concat(
                [asked.values if name == "token_ids" else tf.zeros_like(asked.values), values], axis=0
            )
            for name, values in fields.items()
        }
        question_starts = tf.cast(asked.row_starts(), tf.int32)
        a = tuple(tf.gather(each, texts) for each in (question_starts, question_lengths))
        b = (tf.gather(text_starts, texts) + starts + shift, sizes)
        first_slots = a[1] + 1 + separators
    # one value more, for slots without a text to look at where there are no tokens at all
    fields = {name: tf.concat([values, [0]], axis=0) for name, values in fields.items()}
    length = tf.reduce_max(tf.concat([first_slots + sizes + 1, [2 + separators]], axis=0))
    rows = frame(fields, a, b, length, tokenizer, separators, type_vocab_size)
    return {**rows, "texts": texts, "starts": starts, "sizes": sizes, "first_slots": first_slots}
