"""SentencePiece as ALBERT, XLM-R and CamemBERT use it, as TensorFlow graph ops."""

import functools
import re
import unicodedata

import keras
import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.text.added_tokens import AddedToken
from keras_bert.text.normalization import drop_invalid_bytes, rewrite_where
from keras_bert.text.offsets import for_each_code_point, row_ids, through_normalization
from keras_bert.text.sentence_piece_model import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    USER_DEFINED,
    SentencePieceOp,
    data_url,
    parse_model,
    read_model,
)
from keras_bert.text.tokenizer import Tokenizer

_WHOLE = 1 << 20  # more characters than any piece has

# The ids in front of the model's pieces, how many of these are left out, and Hugging Face's names.
_FAIRSEQ = {
    "xlm-roberta": (
        ["<s>", "<pad>", "</s>", "<unk>"],
        3,
        "XLMRobertaTokenizer",
        "sentencepiece.bpe.model",
    ),
    "camembert": (
        ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"],
        1,
        "CamembertTokenizer",
        "sentencepiece.bpe.model",
    ),
}

# what Python's `str.split` splits at
_SPACES = (
    r"[\t-\r\x1C-\x1F\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}]"
)
_QUOTES = "``|''"
# NUL ends a text for `tf.strings.lower`; a noncharacter is as unknown.
_NUL, _NONCHARACTER = r"\x00", "\uffff"
# ASCII, and dashes and quotation marks that NFKD leaves alone
_PLAIN = r"[\x01-\x7F\x{2012}-\x{2016}\x{2018}-\x{201F}]*"
# Thai to Lao, Myanmar, Khmer, kana, ideographs: written without spaces, so a piece may be a word.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


@keras.saving.register_keras_serializable(package="keras_bert")
class SentencePieceTokenizer(Tokenizer):
    """Splits strings into the pieces of a SentencePiece model, of type unigram or BPE.

    By default as ALBERT does: white space collapses, `` and '' become ", accents are dropped (NFKD,
    without combining characters), SentencePiece cuts the text, and a piece like "▁1999," that ends
    in a digit and a comma is cut once more without its comma. For XLM-R, CamemBERT and other plain
    SentencePiece models turn `strip_accents` and `albert_rules` off.

    Words are for whole-word masking and word-level labels: one starts at white space; punctuation
    and symbols stand alone, as in BERT; so does each piece of a script that is written without
    spaces, as in ALBERT.

    Args:
        model: Path of a `spiece.model`; or its bytes, also as the `data:` URL of `get_config`.
        lowercase: Whether text is lower-cased. All released ALBERT models need it.
        strip_accents: Whether accents are dropped, Hugging Face's `not keep_accents`. Independent
            of `lowercase`.
        albert_rules: Whether white space, quotation marks, and commas behind digits are treated as
            in ALBERT. False leaves the text to the model's own normalisation.
        vocabulary: The pieces in the order of the checkpoint's ids, where that is not the model's:
            fairseq puts <s> <pad> </s> <unk> in front and <mask> behind. None: the model's order.
        pad_token, unk_token, cls_token, sep_token, mask_token: Special tokens, str or AddedToken.
        added_tokens: Further tokens, str or AddedToken, that are found in a text as they stand and
            never split; the ones that are no pieces get the ids behind, in order.
        parse_special_tokens: Whether "[MASK]", "[SEP]" ... in a text become their own ids. Off by
            default, even where the model has them as user-defined symbols.
        pair_separators: How many separators stand between the texts of a pair; 2 in XLM-R and
            CamemBERT.
    """

    def __init__(
        self,
        model,
        lowercase=False,
        strip_accents=True,
        albert_rules=True,
        vocabulary=None,
        pad_token="<pad>",
        unk_token="<unk>",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token=AddedToken("[MASK]", lstrip=True),  # noqa: B008 (frozen)
        added_tokens=(),
        parse_special_tokens=False,
        pair_separators=1,
    ):
        self._model, source = read_model(model)
        proto = parse_model(self._model, source)
        self._own_vocabulary = None if vocabulary is None else np.array(vocabulary, object)
        super().__init__(
            [piece.piece for piece in proto.pieces] if vocabulary is None else vocabulary,
            {
                "pad_token": pad_token,
                "unk_token": unk_token,
                "cls_token": cls_token,
                "sep_token": sep_token,
                "mask_token": mask_token,
            },
            added_tokens,
            parse_special_tokens,
            lowercase,
            source if vocabulary is None else "`vocabulary`",
        )
        self.strip_accents = strip_accents
        self.albert_rules = albert_rules
        self.pair_separators = pair_separators
        with tf.init_scope():  # constants that every graph may capture
            self._build_tables(proto)

    @classmethod
    def for_fairseq(cls, model, kind="xlm-roberta", **options):
        """The tokenizer of XLM-R or CamemBERT: their ids begin with fairseq's own, and <mask> is last.

        Args:
            model: As in the constructor.
            kind: "xlm-roberta" or "camembert".
            **options: Further arguments of the constructor, or others than these two have.
        """
        if kind not in _FAIRSEQ:
            raise ValueError(f"`kind` must be one of {', '.join(_FAIRSEQ)}. Received: {kind!r}.")
        defaults = {
            "strip_accents": False,
            "albert_rules": False,
            "vocabulary": _fairseq_vocabulary(kind, parse_model(*read_model(model))),
            "cls_token": "<s>",
            "sep_token": "</s>",
            "mask_token": AddedToken("<mask>", lstrip=True),
            "pair_separators": 2,
        }
        return cls(model, **{**defaults, **options})

    def _build_tables(self, proto):
        ids = {piece: i for i, piece in enumerate(self.vocabulary)}
        special = {self.vocabulary[i] for i in self.special_token_ids}
        for piece in proto.pieces:
            # a control symbol is never found in a text, a user-defined one always
            if piece.piece in special and piece.type != UNKNOWN:
                piece.type = CONTROL
        proto.ClearField("self_test_data")  # its ids may hold the special tokens
        if self.albert_rules:
            proto.normalizer_spec.remove_extra_whitespaces = True
        found = [piece.piece for piece in proto.pieces if piece.type in (NORMAL, USER_DEFINED, BYTE)]
        missing = [piece for piece in found if piece not in ids]
        if missing:
            raise ValueError(
                "`vocabulary` must hold every piece of the model. Received: "
                f"{len(ids)} pieces without {', '.join(map(repr, missing[:10]))}"
                f"{', ...' if len(missing) > 10 else ''}."
            )
        self._op = SentencePieceOp(proto.SerializeToString())
        again = self._cut_before_comma(found) if self.albert_rules else {}

        known = {piece: ids[piece] for piece in found}
        parts, sizes = (
            [],
            [],
        )  # of a part: its id, the visible characters behind its start and behind its end
        for piece in proto.pieces:
            cut = again.get(piece.piece, [piece.piece])
            sizes.append(len(cut))
            start, end = _WHOLE, sum(map(_visible_length, cut))
            for part in cut:
                end -= _visible_length(part)
                parts.append((known.get(part, self.unk_token_id), start, end))
                start = end
        part_ids, *self._behind = map(tf.constant, np.array(parts, "int64").T)
        self._part_ids = tf.cast(part_ids, tf.int32)
        self._parts = tf.RaggedTensor.from_row_lengths(tf.range(len(parts)), sizes)

        is_space = [piece == SPACE * len(piece) for piece in self.vocabulary]
        is_alone = [_is_symbolic(piece) for piece in self.vocabulary]
        opens = ~self.is_continuation
        opens[self.unk_token_id] = False
        self._is_space, self._is_alone, self._opens = map(tf.constant, (is_space, is_alone, opens))
        byte_values = {p.piece: bytes([int(p.piece[1:-1], 16)]) for p in proto.pieces if p.type == BYTE}
        texts = [byte_values.get(p, p.replace(SPACE, " ").encode()) for p in self.vocabulary]
        for token in special | {token.content for token in self._added_tokens}:
            texts[ids[token]] = f" {token}".encode()
        texts[self.unk_token_id] = self.vocabulary[self.unk_token_id].encode()  # may be inside a word
        self._texts = tf.constant(texts)

    def _cut_before_comma(self, pieces):
        """The parts of each piece that ends in a digit and a comma, as ALBERT cuts it again."""
        pieces = [p for p in pieces if p.endswith(",") and p[-2:-1].isdigit()]
        texts = tf.constant([p[:-1].replace(SPACE, "") for p in pieces], tf.string)
        cut = self._op.tokenize(texts, tf.string)
        again = {}
        for piece, parts in zip(pieces, cut.to_list(), strict=True):
            first, *rest = [part.decode() for part in parts]
            if not piece.startswith(SPACE):
                first = first.removeprefix(SPACE)
            again[piece] = [*([first] if first else []), *rest, ","]
        return again

    def normalize(self, text):
        """What is done to `text` before SentencePiece, with its own normalisation, sees it.

        Shapes:
            text     (B,)  string, valid UTF-8
            returns  (B,)  string
        """
        if self.albert_rules:
            # the model collapses what is now U+0020, and drops it at both ends
            text = tf.strings.regex_replace(text, _SPACES, " ")
            text = tf.strings.regex_replace(text, _QUOTES, '"')

        def rewrite(text):
            text = tf.strings.regex_replace(text, _NUL, _NONCHARACTER)
            if self.strip_accents:
                text = tf_text.normalize_utf8(text, "NFKD")
                text = tf.strings.regex_replace(text, _combining_pattern(), "")
            if self.lowercase:
                # ASCII first: under a Turkish locale ICU would turn I into a dotless i
                text = tf.strings.lower(tf.strings.lower(text), "utf-8")
            return text

        if not (self.strip_accents or self.lowercase):
            return text
        plain = tf.strings.regex_full_match(text, _PLAIN)
        return rewrite_where(~plain, rewrite, tf.strings.lower(text) if self.lowercase else text)

    def _split(self, text):
        text = self.normalize(drop_invalid_bytes(text))
        return self._cut_again(self._op.tokenize(text))[0]

    def _cut_again(self, raw):
        """Ids of the vocabulary for ids of the model, and which of all parts they are."""
        parts = tf.gather(self._parts, raw.values)  # (pieces, parts)
        splits = tf.gather(parts.row_splits, raw.row_splits)
        ids = tf.gather(self._part_ids, parts.values)
        return tf.RaggedTensor.from_row_splits(ids, splits, validate=False), parts

    def _split_with_offsets(self, text):
        """Ids, character ranges, and whether each piece starts a word.

        A range holds the visible characters of a piece: no white space in front, nor what the model
        deletes there; what it deletes behind belongs to the piece. A piece that is white space alone
        has an empty range at the start of its word; the pieces of one character ("ﬁ" -> "f", "i")
        all have that character as their range.
        """
        normalized = self.normalize(text)
        raw, starts, ends = self._op.tokenize_with_offsets(normalized)
        # of the pieces of one character SentencePiece leaves all but the last without a byte
        last = tf.gather(tf.strings.length(normalized), row_ids(raw)) - 1
        begins = tf.minimum(tf.cast(starts.values, tf.int32), last)
        starts, ends = through_normalization(
            tf.strings.regex_replace(text, _QUOTES, '"') if self.albert_rules else text,
            raw.with_values(begins),
            raw.with_values(tf.maximum(tf.cast(ends.values, tf.int32), begins + 1)),
            *self._code_points[:2],
        )
        # from here on places are those of the characters of all texts, one after another
        chars = tf.strings.unicode_decode(text, "UTF-8")
        starts, ends = self._undo_quotes(text, chars, starts, ends)

        # pieces to parts, counted in visible characters from the end of the piece
        ids, parts = self._cut_again(raw)
        rows, pieces = row_ids(ids), row_ids(parts)
        row_ends = tf.gather(chars.row_splits, rows + 1)
        places, before = _true_places(tf.gather(self._code_points[2], chars.values))
        starts, ends = tf.gather(starts, pieces), tf.gather(ends, pieces)
        behind_start, behind_end = (tf.gather(behind, parts.values) for behind in self._behind)
        from_visible, to_visible = (
            tf.maximum(tf.gather(before, starts), tf.gather(before, ends) - behind)
            for behind in (behind_start, behind_end)
        )
        visible = tf.minimum(tf.gather(places, from_visible), row_ends)
        ends = tf.where(behind_end > 0, tf.gather(places, to_visible), ends)
        first = tf.concat([[True], rows[1:] != rows[:-1]], 0)[: tf.size(rows)]
        after_space = (visible > starts) & (behind_start == _WHOLE)
        empty = tf.gather(self._is_space, ids.values) & (first | after_space)
        ends = tf.where(empty, visible, tf.minimum(tf.maximum(ends, visible + 1), row_ends))

        previous = tf.roll(ids.values, 1, 0)  # the very first piece has none, but starts a word anyway
        joins = tf.gather(self._is_space, previous) | ~tf.gather(self._opens, ids.values)
        starts_word = first | after_space | tf.gather(self._is_alone, previous) | ~joins
        row_starts = tf.gather(chars.row_splits, rows)
        return (
            ids,
            ids.with_values(tf.cast(visible - row_starts, tf.int32)),
            ids.with_values(tf.cast(ends - row_starts, tf.int32)),
            ids.with_values(starts_word),
        )

    def _undo_quotes(self, text, chars, starts, ends):
        """Turns character ranges after the rule for quotes into places among `chars`, flat int64."""
        kept = tf.ones_like(chars.values, tf.bool)
        if self.albert_rules:
            marked = tf.strings.regex_replace(text, _QUOTES, '"\0')  # as many characters as before
            kept = (tf.strings.unicode_decode(marked, "UTF-8").values != 0) | (chars.values == 0)
        places, before = _true_places(kept)
        rows = row_ids(starts)
        shift = tf.gather(tf.gather(before, chars.row_splits), rows)
        starts, ends = (tf.gather(places, shift + tf.cast(x.values, tf.int64)) for x in (starts, ends))
        return starts, tf.minimum(ends, tf.gather(chars.row_splits, rows + 1))

    @functools.cached_property
    def _code_points(self):
        """For each code point: the bytes that `normalize` makes of it, whether it is an accent that
        is dropped, and whether it is visible, that is, pieces other than white space come of it."""

        def look(chars):  # at both at once, since it takes most of a second
            text = self.normalize(chars)
            ids = self._cut_again(self._op.tokenize(text))[0]
            visible = ~tf.reduce_all(tf.gather(self._is_space, ids), axis=1)
            return 2 * tf.strings.length(text) + tf.cast(visible, tf.int32)

        lengths, visible = np.divmod(for_each_code_point(look), 2)
        visible = visible == 1
        is_mark = np.zeros_like(visible)
        if self.strip_accents:
            is_mark[_combining_characters()] = True
        with tf.init_scope():
            return tuple(map(tf.constant, (lengths, is_mark, visible)))

    def _continues_word(self, piece):
        return not (piece.startswith(SPACE) or _is_symbolic(piece) or _UNSPACED.match(piece))

    def detokenize(self, ids, skip_special_tokens=False):
        """Joins pieces into text, with U+0020 for their white space and in front of special tokens.

        Shapes (T tokens):
            ids      (..., T), dense or ragged  int
            returns  (...)                      string
        """
        text = tf.gather(self._texts, ids)
        if skip_special_tokens:
            text = tf.where(tf.gather(self.is_special, ids), "", text)
        return tf.strings.regex_replace(tf.strings.reduce_join(text, axis=-1), "^ ", "")

    def _hugging_face_names(self):
        """The class and the file that Hugging Face knows this tokenizer by."""
        if self._own_vocabulary is None:
            if self.albert_rules and self.pair_separators == 1:
                return "AlbertTokenizer", "spiece.model"
        elif not (self.lowercase or self.strip_accents or self.albert_rules):
            proto = parse_model(self._model, "")
            for kind, (_, _, name, file) in _FAIRSEQ.items():
                if self._own_vocabulary.tolist() == _fairseq_vocabulary(kind, proto):
                    return name, file
        raise ValueError(
            "A tokenizer that is saved must be ALBERT's, XLM-R's or CamemBERT's. Received: "
            f"{'the' if self._own_vocabulary is None else 'another'} order of the model's pieces, with "
            f"albert_rules={self.albert_rules}, lowercase={self.lowercase}, "
            f"strip_accents={self.strip_accents}, pair_separators={self.pair_separators}."
        )

    def _hugging_face_config(self):
        name, _ = self._hugging_face_names()
        config = {"tokenizer_class": name}
        if name == "AlbertTokenizer":
            config |= {
                "do_lower_case": self.lowercase,
                "keep_accents": not self.strip_accents,
                "remove_space": True,
            }
        return config

    def _vocabulary_files(self):
        return {self._hugging_face_names()[1]: self._model}

    def get_config(self):
        """The constructor's arguments, as plain values; `model` with its content, not as a path."""
        vocabulary = self._own_vocabulary
        return {
            "model": data_url(self._model),
            "lowercase": self.lowercase,
            "strip_accents": self.strip_accents,
            "albert_rules": self.albert_rules,
            "vocabulary": None if vocabulary is None else vocabulary.tolist(),
            "pair_separators": self.pair_separators,
            **super().get_config(),
        }


def _fairseq_vocabulary(kind, proto):
    first, skipped, _, _ = _FAIRSEQ[kind]
    return [*first, *(piece.piece for piece in proto.pieces[skipped:]), "<mask>"]


def _true_places(mask):
    """Where a (N,) mask is true, with N behind; and how often it is true before each of 0 ... N."""
    places = tf.concat([tf.where(mask)[:, 0], [tf.size(mask, tf.int64)]], 0)
    return places, tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int64))], 0)


def _visible_length(piece):
    return len(piece.replace(SPACE, ""))


def _is_symbolic(piece):
    """Whether the visible characters of a piece are all punctuation or symbols."""
    piece = piece.replace(SPACE, "")
    return bool(piece) and all(unicodedata.category(c)[0] in "PS" for c in piece)


@functools.cache
def _combining_characters():
    return [point for point in range(0x110000) if unicodedata.combining(chr(point))]


@functools.cache
def _combining_pattern():
    """RE2 pattern of a run of combining characters; RE2 itself does not know their class."""
    return "[" + "".join(rf"\x{{{point:X}}}" for point in _combining_characters()) + "]+"
