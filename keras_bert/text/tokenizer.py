"""What all tokenizers share: special and added tokens, shapes, offsets, words."""

import json
import os

import numpy as np
import tensorflow as tf

from keras_bert.files import write_atomically
from keras_bert.text.added_tokens import AddedToken, AddedTokenFinder
from keras_bert.text.normalization import drop_invalid_bytes
from keras_bert.text.offsets import bytes_to_chars, count_in_rows, row_ids

ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")


class Tokenizer(tf.Module):
    """Turns strings into ids: eagerly, in `tf.function`, in `tf.data` and in a SavedModel.

    A module, not a layer, because it has no weights and takes strings. A subclass cuts text into
    pieces (`_split`, `_split_with_offsets`, `_continues_word`, `detokenize`).

    Args:
        pieces: The pieces, in the order of their ids.
        special_tokens: Dict from each of `ROLES` to a str or an AddedToken.
        added_tokens: Further tokens, str or AddedToken, that are never split; those that are no
            pieces get the ids behind, in this order.
        parse_special_tokens: Whether special tokens in a text become their ids. Off by default:
            whoever writes the text should not steer the model with it.
        lowercase: Whether the subclass lower-cases.
        source: What to call the vocabulary in errors.
    """

    pair_separators = 1  # how many stand between the two texts of a pair
    load = None  # `load_tokenizer`, which knows the subclasses and so is set from there

    def __init__(
        self,
        pieces,
        special_tokens,
        added_tokens=(),
        parse_special_tokens=False,
        lowercase=False,
        source="a list",
    ):
        super().__init__()
        pieces = list(pieces)
        self._special_tokens = {
            role: AddedToken.of(special_tokens[role], special=True) for role in ROLES
        }
        self._added_tokens = tuple(AddedToken.of(token) for token in added_tokens)
        self.parse_special_tokens = parse_special_tokens
        self.lowercase = lowercase
        known = set(pieces)
        behind = [token.content for token in self._added_tokens if token.content not in known]
        vocabulary = pieces + behind
        ids = _index(vocabulary, source)
        names = [token.content for token in self._special_tokens.values()]
        missing = [name for name in names if name not in ids]
        if missing:
            raise ValueError(
                f"The vocabulary must hold the special tokens {', '.join(names)}. "
                f"Received: {source} of {len(vocabulary)} pieces without {', '.join(missing)}."
            )
        # not a tuple: tf.Module would search it, piece by piece, for variables at every save
        self._vocabulary = np.array(vocabulary, object)
        self.vocabulary_size = len(vocabulary)
        for role, token in self._special_tokens.items():
            setattr(self, f"{role}_id", ids[token.content])

        special = {token: ids[token.content] for token in self._special_tokens.values()}
        taken = {token.content for token in special}
        own = {t: ids[t.content] for t in self._added_tokens if t.content not in taken}
        special |= {token: i for token, i in own.items() if token.special}
        self.special_token_ids = tuple(special.values())
        self.is_special = np.zeros(self.vocabulary_size, bool)
        self.is_special[list(self.special_token_ids)] = True
        self.is_special[[i for piece, i in ids.items() if self._is_reserved(piece)]] = True
        self.is_continuation = np.array([self._continues_word(piece) for piece in vocabulary])
        self.is_continuation[list({**special, **own}.values())] = False

        plain = {token: i for token, i in own.items() if not token.special}
        self._find_added = AddedTokenFinder(plain, lowercase) if plain else None
        self._find_all = AddedTokenFinder({**special, **own}, lowercase)
        with tf.init_scope():  # constants that every graph may capture
            self._pieces = tf.constant(vocabulary)
            self._is_continuation = tf.constant(self.is_continuation)

    @property
    def vocabulary(self):
        """The pieces, as a tuple of str; a piece's id is its position."""
        return tuple(self._vocabulary)

    def tokenize(self, text, parse_special_tokens=None):
        """Turns strings into ids of pieces; puts no special tokens around them.

        Shapes (B strings):
            text     (B,) or ()            string; bytes that are not UTF-8 are dropped
            returns  (B, pieces) ragged    int32  or (pieces,) for a single string

        Args:
            text: The strings.
            parse_special_tokens: Overrides the constructor's choice for this call.
        """
        text = self._check(text)
        if text.shape.rank == 0:
            return self.tokenize(text[None], parse_special_tokens).values
        finder = self._finder(parse_special_tokens)
        if finder is None:
            return self._split(text)
        segments, ids, _, _ = finder.split(drop_invalid_bytes(text))
        is_token = ids.values >= 0
        pieces = self._split(tf.where(is_token, "", segments.values))
        return _insert(segments, is_token, [(ids.values, pieces)])[0]

    def tokenize_with_offsets(self, text, parse_special_tokens=None):
        """Turns strings into ids, and says where in the string each piece lies.

        `text[start:end]` in Python is what a piece was made of; white space and the characters that
        the tokenizer deletes may belong to none. Offsets count the characters of the string without
        the bytes that are no UTF-8.

        Shapes (B strings):
            text     (B,) or ()  string
            returns  a dict of (B, pieces) ragged int32, or (pieces,) for a single string:
                     token_ids
                     char_starts, char_ends
                     word_ids     number of the word that the piece belongs to, from 0

        >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "caf", "##e"]
        >>> from keras_bert.text.wordpiece import WordPieceTokenizer
        >>> pieces = WordPieceTokenizer(words).tokenize_with_offsets("Un Café")
        >>> [(name, values.numpy().tolist()) for name, values in pieces.items()]
        [('token_ids', [1, 5, 6]), ('char_starts', [0, 3, 6]), ('char_ends', [2, 6, 7]),
         ('word_ids', [0, 1, 1])]
        """
        text = self._check(text)
        if text.shape.rank == 0:
            pieces = self.tokenize_with_offsets(text[None], parse_special_tokens)
            return {name: ragged.values for name, ragged in pieces.items()}
        text = drop_invalid_bytes(text)
        finder = self._finder(parse_special_tokens)
        if finder is None:
            ids, starts, ends, starts_word = self._split_with_offsets(text)
        else:
            ids, starts, ends, starts_word = self._split_around_tokens(text, finder)
        return {
            "token_ids": ids,
            "char_starts": starts,
            "char_ends": ends,
            "word_ids": count_in_rows(starts_word),
        }

    def _split_around_tokens(self, text, finder):
        segments, token_ids, byte_starts, byte_ends = finder.split(text)
        is_token = token_ids.values >= 0
        token_starts = bytes_to_chars(text, byte_starts).values
        token_ends = bytes_to_chars(text, byte_ends).values
        ids, starts, ends, starts_word = self._split_with_offsets(
            tf.where(is_token, "", segments.values)
        )
        shift = tf.gather(token_starts, row_ids(ids))
        return _insert(
            segments,
            is_token,
            [
                (token_ids.values, ids),
                (token_starts, starts.with_values(starts.values + shift)),
                (token_ends, ends.with_values(ends.values + shift)),
                (tf.ones_like(is_token), starts_word),
            ],
        )

    def _check(self, text):
        text = tf.convert_to_tensor(text, tf.string)
        if text.shape.rank not in (0, 1):
            raise ValueError(
                "`text` must be one string or a vector of strings. "
                f"Received: a tensor of shape {text.shape}."
            )
        return text

    def _finder(self, parse_special_tokens):
        parse = self.parse_special_tokens if parse_special_tokens is None else parse_special_tokens
        return self._find_all if parse else self._find_added

    def pieces(self, ids):
        """Looks up the piece of each id.

        Shapes:
            ids      any, dense or ragged  int
            returns  the same              string
        """
        return tf.gather(self._pieces, ids)

    def detokenize(self, ids, skip_special_tokens=False):
        """Joins pieces into text.

        Shapes (T tokens):
            ids      (..., T), dense or ragged  int
            returns  (...)                      string
        """
        raise NotImplementedError

    def get_config(self):
        """The constructor's arguments, as plain values."""
        return {
            **{role: token.to_config() for role, token in self._special_tokens.items()},
            "added_tokens": [token.to_config() for token in self._added_tokens],
            "parse_special_tokens": self.parse_special_tokens,
        }

    @classmethod
    def from_config(cls, config):
        """The tokenizer that gave this `get_config`."""
        return cls(**config)

    @classmethod
    def from_pretrained(cls, directory, **options):
        """Reads a directory as `load_tokenizer` does, and refuses it when it holds another class."""
        tokenizer = cls.load(directory, **options)
        if not isinstance(tokenizer, cls):
            raise ValueError(
                f"The directory must hold a {cls.__name__}. "
                f"Received: {os.fspath(directory)} with a {type(tokenizer).__name__}."
            )
        return tokenizer

    def save_pretrained(self, directory):
        """Writes the files from which Hugging Face's AutoTokenizer and `load_tokenizer` read it."""
        directory = os.fspath(directory)
        tf.io.gfile.makedirs(directory)
        tokens = [*self._special_tokens.values(), *self._added_tokens]
        ids = {piece: i for i, piece in enumerate(self._vocabulary)}
        roles = {token.content for token in self._special_tokens.values()}
        config = {
            **self._hugging_face_config(),
            **{role: token.content for role, token in self._special_tokens.items()},
            "additional_special_tokens": [
                token.content
                for token in self._added_tokens
                if token.special and token.content not in roles
            ],
            "added_tokens_decoder": {
                str(ids[token.content]): {**token.to_config(), "single_word": False} for token in tokens
            },
            # ours; Hugging Face passes over it
            "parse_special_tokens": self.parse_special_tokens,
        }
        text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
        for name in ("tokenizer.json", "special_tokens_map.json", "added_tokens.json"):
            if tf.io.gfile.exists(tf.io.gfile.join(directory, name)):
                # of a tokenizer that was here before, and would be read first
                tf.io.gfile.remove(tf.io.gfile.join(directory, name))
        write_atomically(tf.io.gfile.join(directory, "tokenizer_config.json"), text)
        # last: a directory with a vocabulary is complete
        for name, content in self._vocabulary_files().items():
            write_atomically(tf.io.gfile.join(directory, name), content)

    def _hugging_face_config(self):
        """What `tokenizer_config.json` must say beside the tokens, `tokenizer_class` among it."""
        raise NotImplementedError

    def _vocabulary_files(self):
        """Dict from the name to the content (str or bytes) of each vocabulary file."""
        raise NotImplementedError

    def _split(self, text):
        """Ids of the pieces of (B,) strings, (B, pieces) ragged int32; drops invalid UTF-8."""
        raise NotImplementedError

    def _split_with_offsets(self, text):
        """The same ids of valid strings, char_starts, char_ends, and whether each starts a word."""
        raise NotImplementedError

    def _continues_word(self, piece):
        """Whether a piece, judged by itself, continues the word of the piece before."""
        raise NotImplementedError

    def _is_reserved(self, piece):
        """Whether a piece stands for no text, though it is no special token."""
        return False


def _insert(segments, is_token, features):
    """Puts one value at each segment that is a token, between the pieces of the others.

    Shapes (B texts, S segments of all of them, F features):
        segments  (B, segments) ragged, of S values
        is_token  (S,)  bool
        features  F pairs of (S,) and (S, pieces) ragged
        returns   F of (B, pieces) ragged
    """
    joined = []
    for of_tokens, of_pieces in features:
        tokens = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(of_tokens, is_token), tf.cast(is_token, tf.int64), validate=False
        )
        both = tf.concat([tokens, of_pieces], axis=1)
        splits = tf.gather(both.row_splits, segments.row_splits)
        joined.append(tf.RaggedTensor.from_row_splits(both.values, splits, validate=False))
    return joined


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
    return {piece: i for i, piece in enumerate(vocabulary)}
