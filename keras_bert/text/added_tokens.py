"""Tokens that are found in a text before it is split into words: special ones, and a user's own."""

import dataclasses
import re

import tensorflow as tf

from keras_bert.text.offsets import row_ids

_SEPARATOR = b"\xff"
_SPACES = r"[\t-\r\x{85}\p{Z}]*"


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A piece that is never split. The fields mean what they mean in Hugging Face's files.

    Args:
        content: The token as it stands in a text.
        special: Whether it steers the model, as [SEP] does; special tokens are plain text unless
            `parse_special_tokens` is on.
        lstrip, rstrip: Whether white space on its left or right is taken with it.
        normalized: Whether it is found in any case where the tokenizer lower-cases.
    """

    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False

    def __post_init__(self):
        if not self.content or self.content.isspace():
            raise ValueError(f"An added token must hold a character. Received: {self.content!r}.")

    @classmethod
    def of(cls, token, **defaults):
        """An AddedToken from itself, its `to_config`, or a string."""
        if isinstance(token, cls):
            return token
        if isinstance(token, str):
            return cls(token, **defaults)
        unknown = set(token) - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            raise ValueError(
                "An added token has the fields content, special, lstrip, rstrip and normalized. "
                f"Received: {', '.join(sorted(unknown))}."
            )
        return cls(**{**defaults, **token})

    def to_config(self):
        return dataclasses.asdict(self)


class AddedTokenFinder(tf.Module):
    """Splits texts at the tokens of a table, the longest first where several begin at one place.

    Args:
        ids: Dict from AddedToken to id.
        ignore_case: Whether `normalized` tokens are found in any case.
    """

    def __init__(self, ids, ignore_case):
        super().__init__()
        patterns, keys = [], {}
        for token, i in sorted(ids.items(), key=lambda item: -len(item[0].content)):
            folds = ignore_case and token.normalized
            pattern = f"(?i:{re.escape(token.content)})" if folds else re.escape(token.content)
            patterns.append(_SPACES * token.lstrip + pattern + _SPACES * token.rstrip)
            keys[token.content] = i
        self._strips = any(token.lstrip or token.rstrip for token in ids)
        self._folds = ignore_case and any(token.normalized for token in ids)
        if self._folds:
            keys |= {
                token.content.lower(): i
                for token, i in ids.items()
                if token.normalized and token.content.lower() not in keys
            }
        self._pattern = f"({'|'.join(patterns)})"
        with tf.init_scope():
            table = tf.lookup.KeyValueTensorInitializer(
                list(keys), list(keys.values()), tf.string, tf.int32
            )
            self._table = tf.lookup.StaticHashTable(table, default_value=-1)

    def split(self, text):
        """Cuts each text into the tokens and what lies between them.

        Shapes (B texts):
            text      (B,)                   string, valid UTF-8
            returns   segments               (B, segments) ragged string
                      ids                    the same, int32; -1 for a segment that is no token
                      byte_starts, byte_ends the same, int32; of a token without the white space
                                             that it takes along
        """
        # Not tf-text's splitter: it takes U+0000 for the end. No UTF-8 holds the separator.
        marked = tf.strings.regex_replace(text, self._pattern, _SEPARATOR + rb"\1" + _SEPARATOR)
        segments = tf.strings.split(marked, _SEPARATOR)
        flat = segments.values
        ids = self._table.lookup(flat)
        ends = tf.cumsum(tf.strings.length(flat))
        starts = tf.concat([[0], ends], 0)
        row_starts = tf.gather(tf.gather(starts, segments.row_starts()), row_ids(segments))
        starts, ends = starts[:-1] - row_starts, ends - row_starts
        if self._strips:
            without_left = tf.strings.regex_replace(flat, f"^{_SPACES}", "")
            core = tf.strings.regex_replace(without_left, f"{_SPACES}$", "")
            ids = tf.maximum(ids, self._table.lookup(core))
            is_token = ids >= 0
            left = tf.strings.length(flat) - tf.strings.length(without_left)
            right = tf.strings.length(without_left) - tf.strings.length(core)
            starts += tf.where(is_token, left, 0)
            ends -= tf.where(is_token, right, 0)
            flat = core
        if self._folds:
            ids = tf.maximum(ids, self._table.lookup(tf.strings.lower(flat, "utf-8")))
        return (
            segments,
            segments.with_values(ids),
            segments.with_values(starts),
            segments.with_values(ends),
        )
