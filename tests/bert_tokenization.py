"""The released BERT tokenisation in plain Python: what the graph tokenizer is compared with.

Written from the description of the algorithm, a character at a time, with `unicodedata` and `str`.
"""

import unicodedata

IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def is_dropped(c):
    return c in "\0\ufffd" or (unicodedata.category(c) in ("Cc", "Cf") and c not in "\t\n\r")


def is_space(c):
    return c in "\t\n\r" or unicodedata.category(c) == "Zs"


def is_ideograph(c):
    return any(first <= ord(c) <= last for first, last in IDEOGRAPHS)


def is_punctuation(c):
    if c.isascii():
        return c.isprintable() and not c.isalnum() and c != " "
    return unicodedata.category(c).startswith("P")


def strip_marks(word):
    return "".join(c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")


def words(text, lowercase=True, strip_accents=None):
    """Splits `text` into normalised words; `strip_accents=None` follows `lowercase`."""
    strip_accents = lowercase if strip_accents is None else strip_accents
    cleaned = ""
    for c in text:
        if not is_dropped(c):
            cleaned += f" {c} " if is_ideograph(c) else " " if is_space(c) else c
    spaced = ""
    for word in cleaned.split():
        word = word.lower() if lowercase else word
        word = strip_marks(word) if strip_accents else word
        spaced += "".join(f" {c} " if is_punctuation(c) else c for c in word) + " "
    return spaced.split()


def pieces(word, vocabulary, unknown="[UNK]", max_word_length=200):
    """Greedy longest match from the left; one `unknown` for a word with an unmatched rest."""
    if len(word) > max_word_length:
        return [unknown]
    found, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            if prefix + word[start:end] in vocabulary:
                break
        else:
            return [unknown]
        found.append(prefix + word[start:end])
        start = end
    return found


def tokenize(text, vocabulary, lowercase=True, strip_accents=None):
    """Token ids of `text`; `vocabulary` maps each piece to its id."""
    return [
        vocabulary[piece]
        for word in words(text, lowercase, strip_accents)
        for piece in pieces(word, vocabulary)
    ]
