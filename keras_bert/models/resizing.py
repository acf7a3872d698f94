"""A model for a longer vocabulary, that reads and scores the old words as before."""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_bert.models.base import BertModel
from keras_bert.models.loading import check_vocabulary
from keras_bert.text.wordpiece import WordPieceTokenizer

# A private character, which no text holds by accident, to begin words with.
_INITIAL = "\U000f0000"


def resize_vocabulary(model, old_tokenizer, new_tokenizer):
    """Makes the same model for a vocabulary that has new entries behind the old ones.

    The word table and the masked LM's bias grow together; every old row, and every other weight, is
    copied bit for bit. So texts without new entries are read, and old words scored, as before.

    A new entry starts as the mean of the old pieces that it was made of: its row of the table, and its
    bias. Its score for a masked word is then the mean of their scores, whatever the state, and its
    probability their geometric mean: untrained, it is never above the likeliest of them. (A bias of its
    own choice, such as zero, would lift it above its pieces wherever theirs are low.)

    Args:
        model: A BertEncoder or a model around one. It is left as it is.
        old_tokenizer: The tokenizer of the model.
        new_tokenizer: One of the same class, whose vocabulary begins with the old one; for WordPiece
            see `extend_vocabulary`.

    Returns:
        A model of the same class with `new_tokenizer`, to be compiled.
    """
    check_vocabulary(old_tokenizer, model.config)
    _check_beginning(old_tokenizer, new_tokenizer)
    resized = _remade(model, new_tokenizer.vocabulary_size)
    if isinstance(resized, BertModel):
        resized.tokenizer = new_tokenizer
    sources = _old_pieces(old_tokenizer, new_tokenizer)
    for old, new in zip(model.weights, resized.weights, strict=True):
        value = old.numpy()
        if old.shape != new.shape:  # those with a row for each entry
            value = np.concatenate([value, _means(value, sources)])
        new.assign(value)
    return resized


def cut_vocabulary(model):
    """The same model without the rows of the word table behind the last entry of its tokenizer."""
    size = model.tokenizer.vocabulary_size
    cut = _remade(model, size)
    cut.tokenizer = model.tokenizer
    for old, new in zip(model.weights, cut.weights, strict=True):
        new.assign(old.numpy()[:size] if old.shape != new.shape else old.numpy())
    return cut


def _remade(model, size):
    """A model of the same class and settings with new weights, for a vocabulary of another size."""
    config = dataclasses.replace(model.config, vocab_size=size)
    settings = {**model.get_config(), "config": config.to_dict(), "tokenizer": None}
    remade = type(model).from_config(settings)
    remade.foreign_config = getattr(model, "foreign_config", {})
    return remade


def _check_beginning(old_tokenizer, new_tokenizer):
    if type(old_tokenizer) is not type(new_tokenizer):
        raise ValueError(
            "The tokenizers must be of one class. Received: "
            f"{type(old_tokenizer).__name__} and {type(new_tokenizer).__name__}."
        )
    old, new = old_tokenizer.vocabulary, new_tokenizer.vocabulary
    if len(new) < len(old):
        raise ValueError(
            "The new vocabulary must hold all of the old one. "
            f"Received: {len(new)} entries after {len(old)}."
        )
    for i, (before, after) in enumerate(zip(old, new, strict=False)):
        if before != after:
            raise ValueError(
                "The new vocabulary must begin with the old one. "
                f"Received: {after!r} at id {i}, where {before!r} was."
            )


def _old_pieces(old_tokenizer, new_tokenizer):
    """Ids of the old pieces that each new entry was made of, (new entries, pieces) ragged."""
    size = old_tokenizer.vocabulary_size
    ids = np.arange(size, new_tokenizer.vocabulary_size)
    texts = new_tokenizer.detokenize(ids[:, None])
    inner = new_tokenizer.is_continuation[ids]
    if isinstance(old_tokenizer, WordPieceTokenizer) and inner.any():
        # "##itis" is cut as the rest of a word whose first character is a piece, left out again
        texts = tf.where(inner, _INITIAL + texts, texts)
        config = old_tokenizer.get_config()
        vocabulary = [*old_tokenizer.vocabulary, _INITIAL]
        old_tokenizer = WordPieceTokenizer.from_config({**config, "vocabulary": vocabulary})
    pieces = old_tokenizer.tokenize(texts)
    pieces = tf.ragged.boolean_mask(pieces, pieces < size)
    for i in np.flatnonzero(pieces.row_lengths() == 0):
        raise ValueError(
            "Every new entry must be text that the old tokenizer makes pieces of. "
            f"Received: {new_tokenizer.vocabulary[ids[i]]!r}."
        )
    return pieces


def _means(rows, pieces):
    """The mean of some rows for each new entry.

    Shapes:
        rows     (old entries, ...)
        pieces   (new entries, pieces) ragged
        returns  (new entries, ...)
    """
    chosen = rows[pieces.values.numpy()].astype("float64")
    sums = np.add.reduceat(chosen, pieces.row_starts().numpy(), axis=0)
    return (sums.T / pieces.row_lengths().numpy()).T.astype(rows.dtype)
