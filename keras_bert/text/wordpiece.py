"""BERT's WordPiece tokenizer as TensorFlow graph ops, exact to the released algorithm."""

import os
import re

import keras
import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.text import normalization
from keras_bert.text.normalization import MARKER, MAX_WORD_LENGTH
from keras_bert.text.offsets import row_ids, through_normalization, update_rows
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.text.vocabulary import read_vocabulary, vocabulary_text

_UNUSED = re.compile(r"\[unused\d+\]")


@keras.saving.register_keras_serializable(package="keras_bert")
class WordPieceTokenizer(Tokenizer):
    """Splits strings into word pieces exactly as the tokenizer that BERT was pretrained with.

    Text is cleaned, lower-cased and stripped of accents (uncased models), split at white space,
    punctuation and CJK ideographs, and each word is cut into the longest pieces of the vocabulary
    from left to right. A word with an unmatched rest, or of more than `max_word_length` characters,
    is one [UNK].

    Args:
        vocabulary: Path of a `vocab.txt`, or the list of its lines; a piece's id is its position.
        lowercase: Whether the vocabulary is of an uncased model.
        strip_accents: Whether accents are dropped; None follows `lowercase`.
        parse_special_tokens: Whether "[MASK]", "[SEP]" ... in a text become their own ids. Off by
            default: whoever writes the text should not steer the model with it.
        max_word_length: The longest word, in characters after normalisation, that is cut into
            pieces.
        tokenize_chinese_chars: Whether each CJK ideograph is a word of its own.
        pad_token, unk_token, cls_token, sep_token, mask_token: Special tokens, str or AddedToken.
        added_tokens: Further tokens, str or AddedToken, that are found in a text as they stand and
            never split; the ones that are not in the vocabulary get the ids behind it, in order.

    Example:

    >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "!"]
    >>> tokenizer = WordPieceTokenizer(words)
    >>> tokenizer.tokenize(["Unaffable!", "Unaffected"]).to_list()
    [[5, 6, 7, 8], [1]]
    >>> tokenizer.detokenize([5, 6, 7, 8]).numpy()
    b'unaffable !'
    """

    def __init__(
        self,
        vocabulary,
        lowercase=True,
        strip_accents=None,
        parse_special_tokens=False,
        max_word_length=MAX_WORD_LENGTH,
        tokenize_chinese_chars=True,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        added_tokens=(),
    ):
        if not 1 <= max_word_length <= 400:  # RE2 counts further only with more memory than it has
            raise ValueError(
                f"`max_word_length` must be between 1 and 400. Received: {max_word_length}."
            )
        source = "a list"
        if isinstance(vocabulary, str | os.PathLike):
            source = os.fspath(vocabulary)
            vocabulary = read_vocabulary(source)
        self._own_pieces = len(vocabulary)
        super().__init__(
            vocabulary,
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
            source,
        )
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.max_word_length = max_word_length
        self.tokenize_chinese_chars = tokenize_chinese_chars
        with tf.init_scope():  # constants that every graph may capture
            self._build_tables(self.vocabulary[: self._own_pieces])

    def _build_tables(self, vocabulary):
        # No word holds white space, but the op would match such a piece across words.
        unmatchable = re.compile(rf"\s|^$|{MARKER}")
        self._matcher = tf_text.FastWordpieceTokenizer(
            [
                f"{MARKER}{i}" if unmatchable.search(piece) else piece
                for i, piece in enumerate(vocabulary)
            ],
            unknown_token=vocabulary[self.unk_token_id],
            # its limit is in bytes; ours, in characters, is applied before
            max_bytes_per_word=max(4 * self.max_word_length, 64),
            token_out_type=tf.int32,
            # its own rule puts spaces around ideographs
            no_pretokenization=not self.tokenize_chinese_chars,
        )
        self._spaced_pieces = tf.constant(
            [piece[2:] if piece.startswith("##") else " " + piece for piece in self.vocabulary]
        )

    def normalize(self, text):
        """Cleans `text` and folds its case and accents, as `tokenize` does before it splits words.

        Shapes:
            text     (B,)  string, valid UTF-8
            returns  (B,)  string
        """
        return normalization.normalize(text, self.lowercase, self.strip_accents)

    def _prepare(self, text):
        def rewrite(text):
            text = self.normalize(normalization.drop_invalid_bytes(text))
            limit = self.max_word_length
            return normalization.mark_long_words(text, limit, self.tokenize_chinese_chars)

        is_simple = tf.strings.regex_full_match(
            text, normalization.simple_pattern(self.max_word_length)
        )
        # most texts take the short way
        folded = tf.strings.lower(text) if self.lowercase else text
        return normalization.rewrite_where(~is_simple, rewrite, folded)

    def _split(self, text):
        text = self._prepare(text)
        if self.tokenize_chinese_chars:
            return self._matcher.tokenize(text)
        return self._matcher.tokenize(self._words(text)[0]).merge_dims(1, 2)

    def _split_with_offsets(self, text):
        prepared = self._prepare(text)
        if self.tokenize_chinese_chars:
            ids, starts, ends = self._matcher.tokenize_with_offsets(prepared)
        else:
            words, word_starts = self._words(prepared)
            ids, starts, ends = self._matcher.tokenize_with_offsets(words)
            shift = tf.gather(word_starts.values, row_ids(ids.values))
            starts, ends = (
                offsets.merge_dims(1, 2).with_values(offsets.flat_values + shift)
                for offsets in (starts, ends)
            )
            ids = ids.merge_dims(1, 2)

        def locate(rows, starts, ends):
            starts, ends = self._without_markers(tf.gather(prepared, rows), starts, ends)
            starts, ends = through_normalization(
                tf.gather(text, rows),
                starts,
                ends,
                normalization.normalized_lengths(self.lowercase, self.strip_accents),
                normalization.combining_marks() if self.strip_accents else None,
            )
            return starts.values, ends.values

        as_it_stands = normalization.simple_pattern(self.max_word_length, beyond_ascii=False)
        is_changed = ~tf.strings.regex_full_match(text, as_it_stands)
        starts, ends = update_rows(is_changed, [starts, ends], locate)
        starts_word = ids.with_values(~tf.gather(self._is_continuation, ids.values))
        return ids, starts, ends, starts_word

    def _words(self, text):
        """Words of (B,) normalised strings, and the bytes where they start; ragged (B, words)."""
        space, alone = normalization.separators(ideographs=False)
        words, starts, _ = tf_text.regex_split_with_offsets(text, f"{space}+|{alone}", alone)
        return words, starts

    def _without_markers(self, prepared, starts, ends):
        """Takes out of byte ranges (B, pieces) what the marks behind long words take up."""
        # a marked word is one piece that ends with the mark
        maybe = tf.where(ends.values - starts.values > self.max_word_length)
        texts = tf.gather(prepared, tf.gather_nd(row_ids(ends), maybe))
        last = tf.gather_nd(ends.values, maybe) - 1
        last = tf.strings.substr(texts, last, tf.ones_like(last))
        size = tf.shape(ends.values, tf.int64)
        is_marked = tf.scatter_nd(maybe, tf.cast(last == MARKER, tf.int32), size)
        total = tf.cumsum(is_marked)
        before = tf.gather(tf.concat([[0], total], 0), ends.row_starts())
        shift = total - tf.gather(before, row_ids(ends))
        return (
            starts.with_values(starts.values - (shift - is_marked)),
            ends.with_values(ends.values - shift),
        )

    def _continues_word(self, piece):
        return piece.startswith("##")

    def _is_reserved(self, piece):
        return bool(_UNUSED.fullmatch(piece))

    def detokenize(self, ids, skip_special_tokens=False):
        """Joins pieces into text: U+0020 between words, continuations put back to their words.

        Shapes (T tokens):
            ids      (..., T), dense or ragged  int
            returns  (...)                      string
        """
        text = tf.gather(self._spaced_pieces, ids)
        if skip_special_tokens:
            text = tf.where(tf.gather(self.is_special, ids), "", text)
        return tf.strings.regex_replace(tf.strings.reduce_join(text, axis=-1), "^ ", "")

    def _hugging_face_config(self):
        return {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": self.tokenize_chinese_chars,
            # ours; Hugging Face passes over it
            "max_word_length": self.max_word_length,
        }

    def _vocabulary_files(self):
        return {"vocab.txt": vocabulary_text(self.vocabulary[: self._own_pieces])}

    def get_config(self):
        return {
            "vocabulary": list(self.vocabulary[: self._own_pieces]),
            "lowercase": self.lowercase,
            "strip_accents": self.strip_accents,
            "max_word_length": self.max_word_length,
            "tokenize_chinese_chars": self.tokenize_chinese_chars,
            **super().get_config(),
        }
