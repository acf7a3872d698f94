"""BERT's WordPiece tokenizer as TensorFlow graph ops, exact to the released algorithm."""

import json
import os
import re

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.files import read_text, write_atomically
from keras_bert.text import normalization
from keras_bert.text.normalization import MARKER, MAX_WORD_LENGTH
from keras_bert.text.vocabulary import SPECIAL_TOKENS, read_vocabulary, write_vocabulary

_UNUSED = re.compile(r"\[unused\d+\]")


class WordPieceTokenizer(tf.Module):
    """Splits strings into word pieces exactly as the tokenizer that BERT was pretrained with.

    Text is cleaned, lower-cased and stripped of accents (uncased models), split at white space,
    punctuation and CJK ideographs, and each word is cut into the longest pieces of the vocabulary
    from left to right. A word with an unmatched rest, or of more than `max_word_length` characters,
    is one [UNK]. Works eagerly, in `tf.function`, in `tf.data` and in a SavedModel; a module, not a
    layer, because it has no weights and takes strings.

    Args:
        vocabulary: Path of a `vocab.txt`, or the list of its lines; a piece's id is its position.
        lowercase: Whether the vocabulary is of an uncased model.
        strip_accents: Whether accents are dropped; None follows `lowercase`.
        parse_special_tokens: Whether "[MASK]", "[SEP]", "[unused1]" ... in a text become their own
            ids. Off by default: whoever writes the text should not steer the model with it.
        max_word_length: The longest word, in characters after normalisation, that is cut into
            pieces.

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
    ):
        super().__init__()
        if not 1 <= max_word_length <= 400:  # RE2 counts further only with more memory than it has
            raise ValueError(
                f"`max_word_length` must be between 1 and 400. Received: {max_word_length}."
            )
        source = "a list"
        if isinstance(vocabulary, str | os.PathLike):
            source = os.fspath(vocabulary)
            vocabulary = read_vocabulary(source)
        vocabulary = tuple(vocabulary)
        ids = _index(vocabulary, source)
        # not a tuple: tf.Module would search it, piece by piece, for variables at every save
        self._vocabulary = np.array(vocabulary, object)
        self.vocabulary_size = len(vocabulary)
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.parse_special_tokens = parse_special_tokens
        self.max_word_length = max_word_length

        special_ids = [ids[token] for token in SPECIAL_TOKENS]
        self.pad_token_id, self.unk_token_id, self.cls_token_id = special_ids[:3]
        self.sep_token_id, self.mask_token_id = special_ids[3:]
        special_ids += [i for piece, i in ids.items() if _UNUSED.fullmatch(piece)]
        self.special_token_ids = tuple(special_ids)
        self.is_special = np.zeros(self.vocabulary_size, bool)
        self.is_special[special_ids] = True
        self.is_continuation = np.array([piece.startswith("##") for piece in vocabulary])

        # what stands for a word over the limit: a private-use character of no piece
        used = set().union(*vocabulary)
        self._unknown = next(c for c in map(chr, range(0xE000, 0xF900)) if c not in used)
        with tf.init_scope():  # constants that every graph may capture
            self._build_tables(vocabulary)

    @property
    def vocabulary(self):
        """The pieces, as a tuple of str; a piece's id is its position."""
        return tuple(self._vocabulary)

    def _build_tables(self, vocabulary):
        # A marked special token is a word like any other, with an id behind the vocabulary's own.
        names = [vocabulary[i][1:-1] for i in self.special_token_ids]
        marked = [MARKER + (name.lower() if self.lowercase else name) for name in names]
        self._special_pattern = rf"\[({'|'.join(names)})\]"
        self._parsed_ids = tf.constant([*range(self.vocabulary_size), *self.special_token_ids])
        # No word holds white space, but the op would match such a piece across words.
        unmatchable = re.compile(rf"\s|^$|{MARKER}")
        pieces = [
            f"{MARKER}{i}" if unmatchable.search(piece) else piece for i, piece in enumerate(vocabulary)
        ]
        self._matcher = tf_text.FastWordpieceTokenizer(
            pieces + marked,
            # its limit is in bytes; ours, in characters, is applied before
            max_bytes_per_word=max(4 * self.max_word_length, 64),
            token_out_type=tf.int32,
        )
        self._pieces = tf.constant(vocabulary)
        self._spaced_pieces = tf.constant(
            [piece[2:] if piece.startswith("##") else " " + piece for piece in vocabulary]
        )

    def normalize(self, text):
        """Cleans `text` and folds its case and accents, as `tokenize` does before it splits words.

        Shapes:
            text     (B,)  string
            returns  (B,)  string
        """
        return normalization.normalize(text, self.lowercase, self.strip_accents)

    def tokenize(self, text, parse_special_tokens=None):
        """Turns strings into ids of pieces; adds no special tokens.

        Shapes (B strings):
            text     (B,) or ()            string
            returns  (B, pieces) ragged    int32  or (pieces,) for a single string

        Args:
            text: The strings. Bytes that are not UTF-8 are dropped.
            parse_special_tokens: Overrides the constructor's choice for this call.
        """
        text = tf.convert_to_tensor(text, tf.string)
        if text.shape.rank == 0:
            return self.tokenize(text[None], parse_special_tokens).values
        if text.shape.rank != 1:
            raise ValueError(
                "`text` must be one string or a vector of strings. "
                f"Received: a tensor of shape {text.shape}."
            )
        parse = self.parse_special_tokens if parse_special_tokens is None else parse_special_tokens
        if parse:
            text = self._mark_special_tokens(text)
        text = normalization.normalize(text, self.lowercase, self.strip_accents, keep_marker=parse)
        text = normalization.replace_long_words(text, self.max_word_length, self._unknown)
        ids = self._matcher.tokenize(text)
        if parse:
            ids = ids.with_values(tf.gather(self._parsed_ids, ids.values))
        return ids

    def _mark_special_tokens(self, text):
        text = normalization.drop_invalid_bytes(text)
        text = tf.strings.regex_replace(text, MARKER, "")
        return tf.strings.regex_replace(text, self._special_pattern, rf" {MARKER}\1 ")

    def pieces(self, ids):
        """Looks up the piece of each id.

        Shapes:
            ids      any, dense or ragged  int
            returns  the same              string
        """
        return tf.gather(self._pieces, ids)

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

    def get_config(self):
        """The constructor's arguments, as plain values."""
        return {
            "vocabulary": list(self.vocabulary),
            "lowercase": self.lowercase,
            "strip_accents": self.strip_accents,
            "parse_special_tokens": self.parse_special_tokens,
            "max_word_length": self.max_word_length,
        }

    def save_pretrained(self, directory):
        """Writes Hugging Face's `vocab.txt` and `tokenizer_config.json` into `directory`."""
        directory = os.fspath(directory)
        tf.io.gfile.makedirs(directory)
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": True,
            # ours; Hugging Face passes over them
            "parse_special_tokens": self.parse_special_tokens,
            "max_word_length": self.max_word_length,
        }
        text = json.dumps(config, indent=2) + "\n"
        write_atomically(tf.io.gfile.join(directory, "tokenizer_config.json"), text)
        # last: a directory with a vocabulary is complete
        write_vocabulary(tf.io.gfile.join(directory, "vocab.txt"), self.vocabulary)

    @classmethod
    def from_pretrained(cls, directory):
        """Reads what `save_pretrained`, or Hugging Face's BertTokenizer, wrote.

        Where `tokenizer_config.json`, or a key of it, is missing, BertTokenizer's default holds:
        lower case.
        """
        directory = os.fspath(directory)
        path = tf.io.gfile.join(directory, "tokenizer_config.json")
        config = {}
        if tf.io.gfile.exists(path):
            config = json.loads(read_text(path))
        if not config.get("tokenize_chinese_chars", True):
            raise ValueError(
                "`tokenize_chinese_chars` must be true: CJK ideographs are words of their own in "
                f"BERT. Received: false in {path}."
            )
        return cls(
            tf.io.gfile.join(directory, "vocab.txt"),
            lowercase=config.get("do_lower_case", True),
            strip_accents=config.get("strip_accents"),
            parse_special_tokens=config.get("parse_special_tokens", False),
            max_word_length=config.get("max_word_length", MAX_WORD_LENGTH),
        )


def _index(vocabulary, source):
    """Maps each piece to its id, and refuses a vocabulary that no model can use."""
    if not vocabulary:
        raise ValueError(f"The vocabulary must not be empty. Received: {source}.")
    lines = {}
    for number, piece in enumerate(vocabulary, start=1):
        lines.setdefault(piece, []).append(number)
    repeated = [f"{piece!r} on lines {at}" for piece, at in lines.items() if len(at) > 1]
    if repeated:
        raise ValueError(
            "Every line of the vocabulary must be different: an id is one piece. "
            f"Received: {source} with {', '.join(repeated[:10])}"
            f"{', ...' if len(repeated) > 10 else ''}."
        )
    missing = [token for token in SPECIAL_TOKENS if token not in lines]
    if missing:
        raise ValueError(
            f"The vocabulary must hold {', '.join(SPECIAL_TOKENS)}. "
            f"Received: {source} of {len(lines)} pieces without {', '.join(missing)}."
        )
    return {piece: i for i, piece in enumerate(vocabulary)}
