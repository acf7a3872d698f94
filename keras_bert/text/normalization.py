"""Text to words as the released BERT does it, as graph ops: clean, fold, split.

Every rule but that of the Greek final sigma looks at one code point at a time, so each is a
regular expression or a Unicode op over a batch of strings. The tables are those of the Unicode
versions that TensorFlow carries: a character newer than 2020 may be treated otherwise than by a
given Python.
"""

import tensorflow as tf
import tensorflow_text as tf_text

MAX_WORD_LENGTH = 200  # BERT's own, in characters after normalisation
# A control character that cleaning drops from every text, so that it can mark what we put in.
MARKER = "\x01"

# RE2 takes surrogates and bytes that are no UTF-8 at all for something else than these characters.
_VALID = r"[\x00-\x{D7FF}\x{E000}-\x{10FFFF}]*"
_PLAIN = r"[\t\n\r -~]*"  # ASCII without control characters: the rules have nothing to do
_DROPPED = r"[\x00\x02-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F\p{Cf}\x{FFFD}%s]+"
_MARKS = r"\p{Mn}+"
_SPACES = r"[\t\n\r\p{Z}]"
_PUNCTUATION = r"!-/:-@\[-`{-~\p{P}"
_IDEOGRAPHS = (
    r"\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}"
    r"\x{2B740}-\x{2B81F}\x{2B820}-\x{2CEAF}\x{2F800}-\x{2FA1F}"
)
_ALONE = rf"([{_PUNCTUATION}{_IDEOGRAPHS}])"
# Most characters of which no word is made; the exact set repeated 200 times is too large for RE2.
_SURELY_BETWEEN_WORDS = r"\x00-/:-@\[-`{-\x7F\x{3000}-\x{3003}\x{4E00}-\x{9FFF}"


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


def normalize(text, lowercase=True, strip_accents=True, keep_marker=False):
    """Cleans a (B,) string tensor and, if asked, lower-cases it and strips its accents.

    Dropped are U+0000, U+FFFD, invalid UTF-8 and the categories Cc and Cf, but for tab, newline and
    carriage return. Accents are the category Mn after canonical decomposition.
    """

    def rewrite(text):
        text = drop_invalid_bytes(text)
        dropped = _DROPPED % ("" if keep_marker else MARKER)
        text = tf.strings.regex_replace(text, dropped, "")
        if lowercase:
            # ASCII first: under a Turkish locale ICU would turn I into a dotless i
            text = tf.strings.lower(tf.strings.lower(text), "utf-8")
        if strip_accents:
            text = tf_text.normalize_utf8(text, "NFD")
            text = tf.strings.regex_replace(text, _MARKS, "")
        return text

    plain = tf.strings.regex_full_match(text, _PLAIN)
    return rewrite_where(~plain, rewrite, tf.strings.lower(text) if lowercase else text)


def space_out(text):
    """Puts U+0020, and no other white space, between the words of a normalised (B,) tensor."""
    text = tf.strings.regex_replace(text, _SPACES, " ")
    return tf.strings.regex_replace(text, _ALONE, r" \1 ")


def split_words(text):
    """The words of a normalised (B,) string tensor, as a (B, words) RaggedTensor."""
    return tf.strings.split(space_out(text))


def replace_long_words(text, limit, replacement):
    """Replaces the words of more than `limit` characters in a normalised (B,) string tensor.

    Words that begin with `MARKER` are of any length.
    """

    def rewrite(text):
        long_word = rf"(^| )[^ {MARKER}][^ ]{{{limit},}}"
        return tf.strings.regex_replace(space_out(text), long_word, rf"\1{replacement}")

    maybe_long = rf"(?s).*[^{_SURELY_BETWEEN_WORDS}]{{{limit + 1}}}.*"
    return rewrite_where(tf.strings.regex_full_match(text, maybe_long), rewrite, text)
