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
    return [word for word, _ in located_words(text, lowercase, strip_accents)]


def located_words(text, lowercase=True, strip_accents=None, ideographs_alone=True):
    """The normalised words, each with the place in `text` that each of its characters is from."""
    strip_accents = lowercase if strip_accents is None else strip_accents
    cleaned = [(c, place) for place, c in enumerate(text) if not is_dropped(c)]
    runs = [[]]
    for c, place in cleaned:
        if is_space(c) or c.isspace():  # str.split, too, takes more for white space
            runs.append([])
        elif ideographs_alone and is_ideograph(c):
            runs += [[(c, place)], []]
        else:
            runs[-1].append((c, place))
    found = []
    for run in runs:
        word = "".join(c for c, _ in run)
        folded = word.lower() if lowercase else word
        places = [place for c, place in run for _ in (c.lower() if lowercase else c)]
        if strip_accents:
            places = [p for c, p in zip(folded, places, strict=True) for _ in strip_marks(c)]
            folded = strip_marks(folded)
        found.append(("", []))
        for c, place in zip(folded, places, strict=True):
            if is_punctuation(c):
                found += [(c, [place]), ("", [])]
            else:
                found[-1] = (found[-1][0] + c, [*found[-1][1], place])
    return [(word, places) for word, places in found if word]


def pieces(word, vocabulary, unknown="[UNK]", max_word_length=200):
    """Greedy longest match from the left; one `unknown` for a word with an unmatched rest."""
    return [piece for piece, _, _ in located_pieces(word, vocabulary, unknown, max_word_length)]


def located_pieces(word, vocabulary, unknown="[UNK]", max_word_length=200):
    """The same, with the range of characters of the word that each piece covers."""
    if len(word) > max_word_length:
        return [(unknown, 0, len(word))]
    found, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            if prefix + word[start:end] in vocabulary:
                break
        else:
            return [(unknown, 0, len(word))]
        found.append((prefix + word[start:end], start, end))
        start = end
    return found


def tokenize(text, vocabulary, lowercase=True, strip_accents=None):
    """Token ids of `text`; `vocabulary` maps each piece to its id."""
    return [piece[0] for piece in tokenize_with_offsets(text, vocabulary, lowercase, strip_accents)]


def tokenize_with_offsets(text, vocabulary, lowercase=True, strip_accents=None, **options):
    """(id, start, end, number of its word) of each piece of `text`."""
    strip_accents = lowercase if strip_accents is None else strip_accents
    found = []
    for number, (word, places) in enumerate(
        located_words(text, lowercase, strip_accents, options.get("ideographs_alone", True))
    ):
        for piece, start, end in located_pieces(word, vocabulary):
            stop = places[end - 1] + 1
            # a dropped mark belongs to the letter before it
            while strip_accents and stop < len(text) and unicodedata.category(text[stop]) == "Mn":
                stop += 1
            found.append((vocabulary[piece], places[start], stop, number))
    return found
