"""Where pieces lie in a text, in Python characters: maps through UTF-8 and through normalisation."""

import numpy as np
import tensorflow as tf

_CODE_POINTS = 0x110000
_SURROGATES = slice(0xD800, 0xE000)
PRINTABLE_ASCII = r"[\t\n\r -~]*"


def for_each_code_point(function):
    """Applies a function of (N,) strings to all characters; (0x110000,), zero at surrogates."""
    points = np.delete(np.arange(_CODE_POINTS, dtype="int32"), _SURROGATES)
    with tf.init_scope(), tf.device("CPU"):
        values = function(tf.strings.unicode_encode(points[:, None], "UTF-8")).numpy()
    table = np.zeros(_CODE_POINTS, values.dtype)
    table[points] = values
    return table


def row_ids(ragged):
    """The row of each value of a (B, n) RaggedTensor, int32.

    `value_rowids` builds a matrix of all rows by the longest one: a single long text among many would
    take all memory.
    """
    ends = ragged.row_splits[1:-1, None]
    size = tf.size(ragged.values, ends.dtype) + 1  # empty last rows end behind the last value
    return tf.cumsum(tf.scatter_nd(ends, tf.ones_like(ends[:, 0], tf.int32), [size])[:-1])


def bytes_to_chars(text, byte_offsets):
    """Turns offsets in UTF-8 bytes into offsets in characters.

    Shapes (B texts):
        text          (B,)                string, valid UTF-8
        byte_offsets  (B, offsets) ragged int
        returns       the same            int32, characters that begin before that byte
    """

    def count(rows, offsets):
        own = tf.gather(text, rows)
        content = tf.io.decode_raw(tf.strings.reduce_join(own), tf.uint8)
        begins = tf.cast(tf.bitwise.bitwise_and(content, 0xC0) != 0x80, tf.int32)
        chars = tf.concat([[0], tf.cumsum(begins)], 0)  # begun before each byte of all texts
        row_starts = tf.gather(tf.cumsum(tf.strings.length(own), exclusive=True), row_ids(offsets))
        return [tf.gather(chars, row_starts + offsets.values) - tf.gather(chars, row_starts)]

    return update_rows(~tf.strings.regex_full_match(text, PRINTABLE_ASCII), [byte_offsets], count)[0]


def through_normalization(text, byte_starts, byte_ends, lengths, is_mark=None):
    """Turns byte ranges of a normalised text into character ranges of the text itself.

    The normalisation must act on one character at a time. A range holds every character that gave a
    byte of it, and the dropped combining marks behind: `e` + U+0301, cut down to `e`, is two
    characters long. Other dropped characters belong to no range that ends before them.

    Shapes (B texts):
        text                   (B,)              string, valid UTF-8
        byte_starts, byte_ends (B, ranges) ragged int32, none of them empty
        lengths                (0x110000,) int32 how many bytes each character becomes
        is_mark                (0x110000,) bool  which characters are dropped combining marks, if any
        returns                char_starts, char_ends, ragged as the ranges, int32
    """

    chars = tf.strings.unicode_decode(text, "UTF-8")  # (B, chars)
    splits = tf.cast(chars.row_splits, tf.int32)
    # bytes before each character of all texts, one after another
    before = tf.concat([[0], tf.cumsum(tf.gather(lengths, chars.values))], 0)
    # the character of a byte is the last one that begins there or before
    char_at = tf.cumsum(tf.math.bincount(before[:-1], minlength=before[-1] + 1)) - 1
    rows = row_ids(byte_starts)
    shift = tf.gather(tf.gather(before, splits), rows)
    first = tf.gather(char_at, shift + byte_starts.values)
    behind = tf.gather(char_at, shift + byte_ends.values - 1) + 1
    if is_mark is not None:
        # a run of marks ends at the next character that is none
        others = ~tf.gather(is_mark, chars.values)
        places = tf.concat([tf.where(others)[:, 0], [tf.size(others, tf.int64)]], 0)
        number = tf.concat([[0], tf.cumsum(tf.cast(others, tf.int32))], 0)
        behind = tf.cast(tf.gather(places, tf.gather(number, behind)), tf.int32)
        behind = tf.minimum(behind, tf.gather(splits, rows + 1))
    row_starts = tf.gather(splits, rows)
    return byte_starts.with_values(first - row_starts), byte_ends.with_values(behind - row_starts)


def update_rows(chosen, ragged, function):
    """Replaces the values in chosen rows, whose number may be small, or none.

    Shapes (B rows):
        chosen    (B,)  bool
        ragged    list of (B, n) ragged int, of the same row splits
        function  takes the indices of some rows, and these rows of each; gives their flat new values
        returns   a list like `ragged`, int32
    """
    ragged = [values.with_values(tf.cast(values.values, tf.int32)) for values in ragged]
    rows = tf.where(chosen)[:, 0]
    splits = ragged[0].row_splits
    places = tf.ragged.range(tf.gather(splits, rows), tf.gather(splits, rows + 1)).values[:, None]
    updates = function(rows, *(tf.gather(values, rows) for values in ragged))
    return [
        values.with_values(tf.tensor_scatter_nd_update(values.values, places, new))
        for values, new in zip(ragged, updates, strict=True)
    ]


def count_in_rows(begins):
    """Numbers what begins where `begins` is true, from 0 in each row: (B, n) ragged bool -> int32."""
    counts = tf.cumsum(tf.cast(begins.values, tf.int32))
    before = tf.gather(tf.concat([[0], counts], 0), begins.row_starts())
    return begins.with_values(counts - 1 - tf.gather(before, row_ids(begins)))


def word_spans(char_starts, char_ends, word_ids):
    """The character range of each word, from its first piece to its last.

    Shapes (B texts):
        char_starts, char_ends, word_ids  (B, pieces) ragged int32, as `tokenize_with_offsets` gives
        returns                           two of (B, words) ragged int32
    """
    begins = tf.concat([word_ids[:, :1] >= 0, word_ids[:, 1:] != word_ids[:, :-1]], axis=1)
    ends = tf.concat([begins[:, 1:], word_ids[:, -1:] >= 0], axis=1)
    return tf.ragged.boolean_mask(char_starts, begins), tf.ragged.boolean_mask(char_ends, ends)
