"""Strings to batches: the Keras layer around a tokenizer."""

import keras
import tensorflow as tf

from keras_bert.text.pairing import OUTSIDE, combine


@keras.saving.register_keras_serializable(package="keras_bert")
class TextPreprocessor(keras.layers.Layer):
    """Turns texts, or pairs of them, into the batch that an encoder takes.

    Use it in `tf.data` (`dataset.map(preprocessor)`), or as the first layer of a model on
    `keras.Input((), dtype="string")`; a `.keras` file then holds the vocabulary too. It runs on the
    CPU and cannot be compiled by XLA, so a model that begins with it needs `jit_compile=False`.

    Shapes (B texts or pairs, T tokens):
        text, text_pair  (B,)  string
        returns          a dict of (B, T) int32: token_ids, padding_mask, segment_ids; with offsets
                         also char_starts, char_ends, word_ids

    Args:
        tokenizer: A WordPieceTokenizer, BytePairTokenizer or SentencePieceTokenizer.
        max_length, truncation, padding, pad_to_multiple_of, type_vocab_size: As in
            `keras_bert.text.pairing.combine`.
        return_offsets: Whether to say where in its text each token lies.

    Example:

    >>> from keras_bert import WordPieceTokenizer
    >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "night"]
    >>> preprocessor = TextPreprocessor(WordPieceTokenizer(words), max_length=6)
    >>> preprocessor(["Good night", "Good"])["token_ids"].numpy().tolist()
    [[2, 5, 6, 3, 0, 0], [2, 5, 3, 0, 0, 0]]
    """

    def __init__(
        self,
        tokenizer,
        max_length,
        truncation="longest_first",
        padding="max_length",
        pad_to_multiple_of=None,
        type_vocab_size=2,
        return_offsets=False,
        **kwargs,
    ):
        super().__init__(trainable=False, **kwargs)
        if padding == "do_not_pad":
            raise ValueError('`padding` must be "max_length" or "longest": layers give dense rows.')
        self.tokenizer = tokenizer
        self.return_offsets = return_offsets
        self.max_length = max_length
        self._options = {
            "max_length": max_length,
            "truncation": truncation,
            "padding": padding,
            "pad_to_multiple_of": pad_to_multiple_of,
            "type_vocab_size": type_vocab_size,
        }

    def __call__(self, text, text_pair=None, **kwargs):
        # Keras takes nothing but tensors by position
        text, text_pair = (
            x if x is None or keras.utils.is_keras_tensor(x) else tf.convert_to_tensor(x, tf.string)
            for x in (text, text_pair)
        )
        return super().__call__(text, text_pair, **kwargs)

    def call(self, text, text_pair=None):
        tokenize = (
            self.tokenizer.tokenize_with_offsets if self.return_offsets else self.tokenizer.tokenize
        )
        pieces = []
        for x in (text, text_pair):
            if x is not None and x.shape.rank != 1:
                raise ValueError(
                    f"Texts must be a vector of strings, (B,). Received: a tensor of shape {x.shape}."
                )
            pieces.append(None if x is None else tokenize(x))
        return combine(*pieces, tokenizer=self.tokenizer, **self._options)

    def compute_output_spec(self, text, text_pair=None):
        width = self.max_length if self._options["padding"] == "max_length" else None
        names = ["token_ids", "padding_mask", "segment_ids"] + list(OUTSIDE) * self.return_offsets
        return {name: keras.KerasTensor((text.shape[0], width), "int32") for name in names}

    def get_config(self):
        return {
            **super().get_config(),
            "tokenizer": keras.saving.serialize_keras_object(self.tokenizer),
            **self._options,
            "return_offsets": self.return_offsets,
        }

    @classmethod
    def from_config(cls, config):
        config = {**config, "tokenizer": keras.saving.deserialize_keras_object(config["tokenizer"])}
        config.pop("trainable", None)
        return cls(**config)
