"""Text to words as the released BERT does it, as graph ops: clean, fold, split.

Every rule but that of the Greek final sigma, which keeps its length, looks at one code point at a
time, so each is a regular expression or a Unicode op over a batch of strings. The tables are those
of the Unicode versions that TensorFlow carries: a character newer than 2020 may be treated
otherwise than by a given Python. All strings here must be valid UTF-8.
"""

import functools

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.text.offsets import for_each_code_point, row_ids

MAX_WORD_LENGTH = 200  # BERT's own, in characters after normalisation
# A control character that cleaning drops from every text, so that it can mark what we put in.
MARKER = "\x01"

# RE2 takes surrogates and bytes that are no UTF-8 at all for something else than these characters.
_VALID = r"[\x00-\x{D7FF}\x{E000}-\x{10FFFF}]*"
_DROPPED = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F\p{Cf}\x{FFFD}]+"
_MARKS = r"\p{Mn}+"
_SPACES = r"\t\n\r\p{Z}"
_PUNCTUATION = r"!-/:-@\[-`{-~\p{P}"
_IDEOGRAPHS = (
    r"\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}"
    r"\x{2B740}-\x{2B81F}\x{2B820}-\x{2CEAF}\x{2F800}-\x{2FA1F}"
)
# Most characters of which no word is made; the exact set repeated 200 times is too large for RE2.
_SURELY_BETWEEN_WORDS = r"\x00-/:-@\[-`{-\x7F\x{2010}-\x{2029}\x{3000}-\x{3003}"


def rewrite_where(chosen, rewrite, text):
    """Applies `rewrite` to the chosen strings alone.

    Where few or none are chosen this costs next to nothing, and unlike `tf.cond` it lets one odd
    string leave the rest of its batch on the short way.

    Shapes:
        chosen   (B,)  bool
        text     (B,)  string
        returns  (B,)  string
    """
    where = tf.where(chosen)  # (chosen, 1)
    return tf.tensor_scatter_nd_update(text, where, rewrite(tf.gather_nd(text, where)))


def drop_invalid_bytes(text):
    """Drops what is not UTF-8 from a (B,) string tensor, as BERT does when it decodes bytes."""
    invalid = ~tf.strings.regex_full_match(text, _VALID)
    return rewrite_where(
        invalid,
        lambda broken: tf.strings.unicode_transcode(broken, "UTF-8", "UTF-8", errors="ignore"),
        text,
    )


def normalize(text, lowercase=True, strip_accents=True):
    """Cleans a (B,) string tensor and, if asked, lower-cases it and strips its accents.

    Dropped are U+0000, U+FFFD and the categories Cc and Cf, but for tab, newline and carriage
    return. Accents are the category Mn after canonical decomposition.
    """

    text = tf.strings.regex_replace(text, _DROPPED, "")
    if lowercase:
        # ASCII first: under a Turkish locale ICU would turn I into a dotless i
        text = tf.strings.lower(tf.strings.lower(text), "utf-8")
    if strip_accents:
        text = tf_text.normalize_utf8(text, "NFD")
        text = tf.strings.regex_replace(text, _MARKS, "")
    return text


def simple_pattern(limit, beyond_ascii=True):
    """RE2 pattern of texts in which `normalize` only lower-cases ASCII, without words over the limit.

    They are made of printable ASCII, tabs and newlines; and, beyond ASCII, of the dashes, quotation
    marks and dots of English typography.
    """
    between = r"\t\n\r -/:-@\[-`{-~" + (r"\x{2010}-\x{2027}" if beyond_ascii else "")
    return rf"(?:[0-9A-Za-z]{{0,{limit}}}[{between}])*[0-9A-Za-z]{{0,{limit}}}"


@functools.cache
def normalized_lengths(lowercase, strip_accents):
    """How many bytes `normalize` makes of each code point, (0x110000,) int32."""
    lengths = for_each_code_point(
        lambda chars: tf.strings.length(normalize(chars, lowercase, strip_accents))
    )
    return _constant(lengths)


@functools.cache
def combining_marks():
    """Which code points are of category Mn, (0x110000,) bool."""
    return _constant(for_each_code_point(lambda chars: tf.strings.regex_full_match(chars, _MARKS)))


def separators(ideographs=True):
    """RE2 patterns of one character: white space, and what is a word of its own."""
    alone = _PUNCTUATION + (_IDEOGRAPHS if ideographs else "")
    return f"[{_SPACES}]", f"[{alone}]"


def space_out(text):
    """Puts U+0020, and no other white space, between the words of a normalised (B,) tensor."""
    space, alone = separators()
    text = tf.strings.regex_replace(text, space, " ")
    return tf.strings.regex_replace(text, f"({alone})", r" \1 ")


def split_words(text):
    """The words of a normalised (B,) string tensor, as a (B, words) RaggedTensor."""
    return tf.strings.split(space_out(text))


@functools.cache
def _inside_words(ideographs):
    space, alone = separators(ideographs)
    words = f"[^{space[1:-1]}{alone[1:-1]}]"
    return _constant(for_each_code_point(lambda chars: tf.strings.regex_full_match(chars, words)))


def _constant(table):
    with tf.init_scope(), tf.device("CPU"):  # for all graphs that use it, not a copy in each
        return tf.constant(table)


def mark_long_words(text, limit, ideographs=True):
    """Puts `MARKER` behind each word of more than `limit` characters in a normalised (B,) tensor."""

    def rewrite(text):
        chars = tf.strings.unicode_decode(text, "UTF-8")  # (B, chars)
        rows = tf.cast(row_ids(chars), tf.int64)
        inside = tf.gather(_inside_words(ideographs), chars.values)
        # a new run at each character between words, and in each text
        run = tf.cumsum(tf.cast(~inside, tf.int64)) + rows
        next_run = tf.concat([run[1:], [-1]], 0)
        size = tf.math.bincount(tf.cast(tf.boolean_mask(run, inside), tf.int32))
        size = tf.gather(tf.pad(size, [[0, 1]]), tf.minimum(run, tf.size(size, tf.int64)))
        copies = 1 + tf.cast(inside & (run != next_run) & (size > limit), tf.int64)
        places = tf.cumsum(copies)
        marks = tf.boolean_mask(places - 1, copies > 1)[:, None]
        marked = tf.tensor_scatter_nd_update(
            tf.repeat(chars.values, copies), marks, tf.fill(tf.shape(marks)[:1], ord(MARKER))
        )
        splits = tf.gather(tf.concat([[0], places], 0), chars.row_splits)
        return tf.strings.unicode_encode(tf.RaggedTensor.from_row_splits(marked, splits), "UTF-8")

    between = _SURELY_BETWEEN_WORDS + (r"\x{4E00}-\x{9FFF}" if ideographs else "")
    maybe_long = rf"(?s).*[^{between}]{{{limit + 1}}}.*"
    return rewrite_where(tf.strings.regex_full_match(text, maybe_long), rewrite, text)
