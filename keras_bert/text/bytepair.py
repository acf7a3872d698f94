"""Byte-level BPE as GPT-2 and RoBERTa use it, as TensorFlow graph ops."""

import functools
import itertools
import json
import os
import struct

import keras
import numpy as np
import tensorflow as tf

from keras_bert.files import read_text
from keras_bert.text.added_tokens import AddedToken
from keras_bert.text.normalization import drop_invalid_bytes
from keras_bert.text.offsets import for_each_code_point, row_ids
from keras_bert.text.sentence_piece_model import SentencePieceOp
from keras_bert.text.tokenizer import Tokenizer

# Stands before, between and behind the texts of a batch, which become one string: no UTF-8 has it.
_BORDER_BYTE = b"\xff"
# What the pattern that splits words tells apart; _SPACE and _WHITE, all else, are its white space.
_BORDER, _LETTER, _NUMBER, _OTHER, _SPACE, _WHITE = range(6)
_WHITE_SPACE = [*b"\t\n\v\f\r", 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F]
_WHITE_SPACE += [0x205F, 0x3000]
# Letters and numbers of Unicode 15.1 and 16: Hugging Face's tables have them, those of RE2 do not.
_NEW_LETTERS = (
    r"\x{1C89}\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D4A}-\x{10D65}"
    r"\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}"
    r"\x{113B7}\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{13460}-\x{143FA}\x{16100}-\x{1611D}"
    r"\x{16D40}-\x{16D6C}\x{18CFF}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2EBF0}-\x{2EE5D}"
)
_NEW_NUMBERS = (
    r"\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{16130}-\x{16139}\x{16D70}-\x{16D79}"
    r"\x{1CCF0}-\x{1CCF9}\x{1E5F1}-\x{1E5FA}"
)


@keras.saving.register_keras_serializable(package="keras_bert")
class BytePairTokenizer(Tokenizer):
    """Splits strings into pieces of bytes exactly as the tokenizer of RoBERTa and GPT-2.

    A text is cut into words: "'s" and its like, or a run of letters, of numbers or of other
    characters, each with one U+0020 in front if there is one; or what is left of white space. The
    bytes of a word are merged, best merge first, until no neighbours are in `merges`. Nothing is
    normalised or unknown, so `detokenize` gives the text back.

    In files and errors each byte is shown as a character: "Ġthe" is " the", "Ã©" is "é".

    Args:
        vocabulary: Path of a `vocab.json`; a dict from pieces to ids; or the list of pieces, whose
            ids are their positions.
        merges: Path of a `merges.txt`, or its lines ("Ġt he") or pairs, the best first.
        add_prefix_space: Whether a text that does not begin with U+0020 gets one, so that its first
            word is cut like any other. `detokenize` cannot know of it and keeps it.
        pad_token, unk_token, cls_token, sep_token, mask_token: Special tokens, str or AddedToken.
        added_tokens: Further tokens, str or AddedToken, that are found in a text as they stand and
            never split; the ones that are not in the vocabulary get the ids behind it, in order.
        parse_special_tokens: Whether "<mask>", "</s>" ... in a text become their own ids. Off by
            default: whoever writes the text should not steer the model with it.

    Example:

    >>> special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    >>> merges = ["Ġ t", "h e", "Ġt he"]
    >>> vocabulary = [*special, *byte_alphabet(), "Ġt", "he", "Ġthe"]
    >>> tokenizer = BytePairTokenizer(vocabulary, merges)
    >>> ids = tokenizer.tokenize("the thé")
    >>> [piece.decode() for piece in tokenizer.pieces(ids).numpy()]
    ['t', 'he', 'Ġt', 'h', 'Ã', '©']
    >>> tokenizer.detokenize(ids).numpy().decode()
    'the thé'
    """

    pair_separators = 2

    def __init__(
        self,
        vocabulary,
        merges,
        add_prefix_space=False,
        pad_token="<pad>",
        unk_token="<unk>",
        cls_token="<s>",
        sep_token="</s>",
        mask_token=AddedToken("<mask>", lstrip=True),  # noqa: B008 (frozen)
        added_tokens=(),
        parse_special_tokens=False,
    ):
        pieces, source = _read_pieces(vocabulary)
        self._own_pieces = len(pieces)
        super().__init__(
            pieces,
            {
                "pad_token": pad_token,
                "unk_token": unk_token,
                "cls_token": cls_token,
                "sep_token": sep_token,
                "mask_token": mask_token,
            },
            added_tokens,
            parse_special_tokens,
            source=source,
        )
        self.add_prefix_space = add_prefix_space
        pairs = _read_merges(merges, set(pieces))
        # not a list: tf.Module would search it, pair by pair, for variables at every save
        self._merges = np.array([" ".join(pair) for pair in pairs], object)
        missing = sorted(set(byte_alphabet()) - set(pieces))
        if missing:
            raise ValueError(
                "The vocabulary must hold each of the 256 bytes as a piece: a text may have any. "
                f"Received: {source} without {', '.join(missing[:20])}"
                f"{', ...' if len(missing) > 20 else ''}."
            )
        with tf.init_scope():  # constants that every graph may capture
            self._build_tables({**dict.fromkeys(byte_alphabet(), 0), **_ranks_of_pieces(pairs)})

    def _build_tables(self, ranks):
        vocabulary, alphabet, classes = self.vocabulary, byte_alphabet(), _classes()
        ids = {piece: i for i, piece in enumerate(vocabulary)}
        self._border_id = ids[alphabet[_BORDER_BYTE[0]]]
        self._op = SentencePieceOp(_as_sentence_piece_model(vocabulary, ranks))
        self._whole_words = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                list(ranks), [ids[piece] for piece in ranks], tf.string, tf.int32
            ),
            default_value=-1,
        )
        self._alphabet = tf.constant([ord(c) for c in alphabet])
        by_byte = np.full(256, _BORDER, "uint8")
        by_byte[:128] = classes[:128]
        self._byte_classes, self._char_classes = tf.constant(by_byte), tf.constant(classes)

        space = alphabet[ord(" ")]
        sizes = [len(piece) for piece in vocabulary]
        # U+0020 at the ends of a piece, unless it is nothing else
        cores = [piece.strip(space) or piece for piece in vocabulary]
        left = [piece.index(core) for piece, core in zip(vocabulary, cores, strict=True)]
        sides = zip(sizes, left, map(len, cores), strict=True)
        self._sizes, self._left = tf.constant(sizes), tf.constant(left)
        self._right = tf.constant([size - begin - core for size, begin, core in sides])
        as_they_stand = {*self.special_token_ids, *(ids[token.content] for token in self._added_tokens)}
        self._texts = tf.constant(
            [
                piece.encode() if i in as_they_stand else _to_bytes(piece) or piece.encode()
                for i, piece in enumerate(vocabulary)
            ]
        )

    def _split(self, text):
        ids, _, _ = self._cut(self._prefixed(drop_invalid_bytes(text)))
        return self._rows(ids, ids)[0]

    def _split_with_offsets(self, text):
        prefixed = self._prefixed(text)
        ids, words, content = self._cut(prefixed)
        sizes = tf.gather(self._sizes, ids)
        byte_ends = tf.cumsum(sizes)  # of the whole batch: pieces are all that its bytes are
        chars = tf.cumsum(tf.cast(_begins_char(content), tf.int32))  # begun up to each byte
        # a piece may begin and end inside a character: it has the whole of it
        starts = tf.gather(chars, byte_ends - sizes) - 1 + tf.gather(self._left, ids)
        ends = tf.gather(chars, byte_ends - 1) - tf.gather(self._right, ids)
        starts_word = tf.ragged.range(words).values == 0

        row_starts = tf.boolean_mask(ends, ids == self._border_id)[:-1]  # behind the border of a row
        row_starts += tf.strings.length(prefixed) - tf.strings.length(text)  # not in `text`
        ids, starts, ends, starts_word = self._rows(ids, ids, starts, ends, starts_word)
        row_starts = tf.gather(row_starts, row_ids(ids))
        starts, ends = (
            places.with_values(tf.maximum(places.values - row_starts, 0)) for places in (starts, ends)
        )
        return ids, starts, ends, starts_word

    def _prefixed(self, text):
        return tf.strings.regex_replace(text, "^([^ ])", r" \1") if self.add_prefix_space else text

    def _cut(self, text):
        """The pieces of all texts in one row, with a border piece before, between and behind them.

        Shapes (B texts, W words, P pieces, N bytes):
            text     (B,)  string, valid UTF-8
            returns  ids      (P,)  int32
                     lengths  (W,)  int32  pieces of each word; a border is a word
                     content  (N,)  int32  the bytes
        """
        text = tf.strings.reduce_join(tf.strings.join([text, _BORDER_BYTE]))
        content = tf.io.decode_raw(tf.strings.join([_BORDER_BYTE, text]), tf.uint8)
        content = tf.cast(content, tf.int32)
        splits = tf.concat([self._word_starts(content), [tf.size(content, tf.int64)]], 0)
        chars = tf.gather(self._alphabet, content)
        words = tf.RaggedTensor.from_row_splits(chars, splits, validate=False)
        words = tf.strings.unicode_encode(words, "UTF-8")

        # most words are pieces; merging the others is what costs most
        whole = self._whole_words.lookup(words)
        others = tf.where(whole < 0)
        distinct, number = tf.unique(tf.gather_nd(words, others))
        pieces = tf.gather(self._op.tokenize(distinct), number)
        lengths = tf.tensor_scatter_nd_update(
            tf.ones_like(whole), others, tf.cast(pieces.row_lengths(), tf.int32)
        )
        places = tf.range(tf.reduce_sum(lengths))
        by_word = tf.RaggedTensor.from_row_lengths(places, lengths, validate=False)
        ids = tf.gather(whole, row_ids(by_word))
        return tf.tensor_scatter_nd_update(ids, tf.where(ids < 0), pieces.values), lengths, content

    def _word_starts(self, content):
        """Where words begin, as an index of (N,) bytes; each border byte is a word."""
        places = tf.where(_begins_char(content))[:, 0]  # (C,) of each character
        first = tf.gather(content, places)
        classes = tf.gather(self._byte_classes, first)
        wide = tf.where((first >= 0x80) & (first < _BORDER_BYTE[0]))
        points = _decode(content, tf.gather(places, wide[:, 0]))
        classes = tf.tensor_scatter_nd_update(classes, wide, tf.gather(self._char_classes, points))
        return tf.boolean_mask(places, _begins_word(first, classes))

    def _rows(self, ids, *features):
        """Makes ragged (B, pieces) of each feature (P,) of the pieces, and drops those of borders."""
        inside = ids != self._border_id
        borders = tf.where(~inside)[:, 0]  # (B + 1,)
        splits = borders - tf.range(tf.size(borders, tf.int64))
        return [
            tf.RaggedTensor.from_row_splits(tf.boolean_mask(feature, inside), splits, validate=False)
            for feature in features
        ]

    def _continues_word(self, piece):
        """Whether the piece begins with a letter, a number, or inside a character.

        No space in front tells the rest of a word from the first word of a text as little as
        Hugging Face's word masking does, but punctuation is a word of its own.
        """
        content = _to_bytes(piece)
        if not content:
            return False
        if 0x80 <= content[0] < 0xC0:
            return True
        # a part of a character is judged by one that begins alike
        char = (content + b"\xa1\xa1\xa1").decode("utf-8", "replace")[0]
        return bool(_classes()[ord(char)] in (_LETTER, _NUMBER))

    def detokenize(self, ids, skip_special_tokens=False):
        """Joins the bytes of pieces: the text that they come from, byte for byte.

        Shapes (T tokens):
            ids      (..., T), dense or ragged  int
            returns  (...)                      string; no UTF-8 where a part of a character is left
        """
        text = tf.gather(self._texts, ids)
        if skip_special_tokens:
            text = tf.where(tf.gather(self.is_special, ids), "", text)
        return tf.strings.reduce_join(text, axis=-1)

    def _hugging_face_config(self):
        return {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": self.add_prefix_space}

    def _vocabulary_files(self):
        pieces = {piece: i for i, piece in enumerate(self.vocabulary[: self._own_pieces])}
        return {
            "merges.txt": "".join(f"{line}\n" for line in ["#version: 0.2", *self._merges]),
            "vocab.json": json.dumps(pieces, ensure_ascii=False),
        }

    def get_config(self):
        return {
            "vocabulary": list(self.vocabulary[: self._own_pieces]),
            "merges": self._merges.tolist(),
            "add_prefix_space": self.add_prefix_space,
            **super().get_config(),
        }


@functools.cache
def byte_alphabet():
    """The 256 characters that show bytes in a vocabulary.

    >>> byte_alphabet()[32:36], byte_alphabet()[10]
    ('Ġ!"#', 'Ċ')
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return "".join(chr(byte if byte in visible else next(others)) for byte in range(256))


@functools.cache
def _byte_of():
    return {char: byte for byte, char in enumerate(byte_alphabet())}


def _to_bytes(piece):
    """The bytes that a piece shows, or None where a character shows none."""
    try:
        return bytes(map(_byte_of().__getitem__, piece))
    except KeyError:
        return None


@functools.cache
def _classes():
    """The class of each code point, (0x110000,) uint8."""
    classes = np.full(0x110000, _OTHER, "uint8")
    for kind, members in (_LETTER, rf"\p{{L}}{_NEW_LETTERS}"), (_NUMBER, rf"\p{{N}}{_NEW_NUMBERS}"):
        matches = functools.partial(tf.strings.regex_full_match, pattern=f"[{members}]")
        classes[for_each_code_point(matches)] = kind
    classes[_WHITE_SPACE] = _WHITE
    classes[ord(" ")] = _SPACE
    return classes


def _begins_char(content):
    return tf.bitwise.bitwise_and(content, 0xC0) != 0x80


def _decode(content, places):
    """The code points of the characters of two or more bytes that begin at `places`."""
    first = tf.gather(content, places)
    size = 2 + tf.cast(first >= 0xE0, tf.int32) + tf.cast(first >= 0xF0, tf.int32)
    points = tf.bitwise.bitwise_and(first, tf.bitwise.right_shift(0x7F, size))
    last = tf.size(content, tf.int64) - 1
    for k in (1, 2, 3):
        byte = tf.gather(content, tf.minimum(places + k, last))
        points = tf.where(k < size, points * 64 + tf.bitwise.bitwise_and(byte, 0x3F), points)
    return points


def _begins_word(first, classes):
    r"""Which characters begin a word.

    The rule is GPT-2's pattern, which RE2 cannot match, since it looks ahead:
    `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`.

    Shapes (C characters, borders among them; one at each end):
        first    (C,)  int32  first byte of each
        classes  (C,)  uint8
        returns  (C,)  bool
    """
    before, behind = tf.pad(classes[:-1], [[1, 0]]), tf.pad(classes[1:], [[0, 1]])
    # White space begins a word, and its last character another one unless nothing follows it.
    # U+0020 in that place is the begin of what follows.
    begins = tf.where(
        classes >= _SPACE,
        (before < _SPACE) | ((behind != _BORDER) & (behind < _SPACE)),
        (classes == _BORDER) | ((classes != before) & (before != _SPACE)),
    )
    # "'s" is a word where its apostrophe begins one, and a letter behind it begins the next.
    marks = tf.where(first == ord("'"))[:, 0]
    marks = tf.boolean_mask(marks, tf.gather(begins, marks))
    one = tf.gather(first, marks + 1)
    two = tf.gather(first, tf.minimum(marks + 2, tf.size(first, tf.int64) - 1))
    sizes = tf.zeros_like(marks)
    for ending in ("s", "t", "re", "ve", "m", "ll", "d"):
        found = (one == ord(ending[0])) & (two == ord(ending[1]) if ending[1:] else True)
        sizes += tf.cast(found, tf.int64) * (1 + len(ending))
    marks, sizes = (tf.boolean_mask(places, sizes > 0) for places in (marks, sizes))
    changed = tf.concat([marks + 1, marks + sizes], 0)[:, None]
    return tf.tensor_scatter_nd_update(begins, changed, tf.repeat([False, True], tf.size(marks)))


def _read_pieces(vocabulary):
    """The pieces in the order of their ids, and what to call the vocabulary in errors."""
    source = "a list"
    if isinstance(vocabulary, str | os.PathLike):
        source = os.fspath(vocabulary)
        try:
            vocabulary = json.loads(read_text(source, "The vocabulary"))
        except json.JSONDecodeError as error:
            raise ValueError(
                f"The vocabulary must be a JSON file. Received: {source}, {error}."
            ) from None
    if not isinstance(vocabulary, dict):
        return list(vocabulary), source
    source = "a dict" if source == "a list" else source
    pieces = sorted(vocabulary, key=vocabulary.get)
    wrong = [(piece, vocabulary[piece]) for i, piece in enumerate(pieces) if vocabulary[piece] != i]
    if wrong:
        raise ValueError(
            f"The ids of {len(pieces)} pieces must be 0 to {len(pieces) - 1}, each once. "
            f"Received: {source} with {wrong[0][0]!r} at {wrong[0][1]}."
        )
    return pieces, source


def _read_merges(merges, known):
    """Pairs of pieces, the best first; refused where BPE cannot make a piece of them."""
    source, skipped = "`merges`", 0
    if isinstance(merges, str | os.PathLike):
        source = os.fspath(merges)
        merges = read_text(source, "The merges").splitlines()
        skipped = int(bool(merges) and merges[0].startswith("#version"))
    pairs = []
    for line, merge in enumerate(merges[skipped:], start=skipped + 1):
        pair = tuple(merge.split(" ") if isinstance(merge, str) else merge)
        if len(pair) != 2 or not all(pair):
            raise ValueError(
                f"A merge must be two pieces. Received: {merge!r} on line {line} of {source}."
            )
        missing = [piece for piece in (*pair, "".join(pair)) if piece not in known]
        if missing:
            raise ValueError(
                "The pieces of a merge, and what it makes of them, must be in the vocabulary. "
                f"Received: {' '.join(pair)!r} on line {line} of {source} without {missing[0]!r}."
            )
        pairs.append(pair)
    return pairs


def _ranks_of_pieces(pairs):
    """Dict from each piece that merging can make to the rank of its last merge.

    SentencePiece merges neighbours whenever what they make is a piece, whereas here they must be a
    pair of the list. That is the same once pieces that no text leads to are left out: if a text
    ever has two neighbours that make up a piece, merging that piece's characters alone comes to the
    same two, since the merges inside them do not depend on what is outside.
    """
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    made = {}
    for piece in {"".join(pair): None for pair in pairs}:
        parts = list(piece)
        while len(parts) > 1:
            neighbours = enumerate(itertools.pairwise(parts))
            rank, i = min((ranks.get(pair, len(pairs)), i) for i, pair in neighbours)
            if rank == len(pairs):
                break
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        else:
            made[piece] = rank
    return made


def _as_sentence_piece_model(vocabulary, ranks):
    """A serialised SentencePiece model of type BPE that merges by `ranks`, with the same ids.

    Its protobuf messages are few enough to be written without their classes.
    """

    def field(number, content):
        size, header = len(content), [number << 3 | 2]
        while size >= 0x80:
            header.append(size & 0x7F | 0x80)
            size >>= 7
        return bytes([*header, size]) + content

    def piece(text, kind, score=0.0):
        return field(1, field(1, text.encode()) + struct.pack("<BfBB", 0x15, score, 0x18, kind))

    normal, unknown, control = 1, 2, 3
    return b"".join(
        [
            # SentencePiece shall find no control piece in a text, so its name does not matter
            *(
                piece(p, normal, -ranks[p]) if p in ranks else piece(f" {i}", control)
                for i, p in enumerate(vocabulary)
            ),
            piece(" unknown", unknown),  # required; never met
            field(2, b"\x18\x02"),  # model_type BPE
            # add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces: all off
            field(3, field(1, b"identity") + b"\x18\x00\x20\x00\x28\x00"),
        ]
    )
