"""From labels of tokens to entities: a label for each word, the words of each entity, in the graph."""

import numpy as np
import tensorflow as tf

from keras_bert.text.entities import OUTSIDE, begins, closes
from keras_bert.text.normalization import drop_invalid_bytes
from keras_bert.text.offsets import row_ids
from keras_bert.text.windows import best_slots, window_rows


def tag_words(model, tokenizer, text, max_length, stride):
    """The likeliest label of each word of each text, however long.

    A word's first piece speaks for it, in the window where it has most context.

    Shapes (B texts, W words of each):
        text     (B,)  string
        returns  labels        (B, W) ragged int32
                 probabilities (B, W) ragged float32
                 starts, ends  (B, W) ragged int32, in characters of the text
    """
    text = drop_invalid_bytes(text)
    pieces = tokenizer.tokenize_with_offsets(text)
    lengths = pieces["token_ids"].row_lengths()
    rows = window_rows(
        {"token_ids": pieces["token_ids"]},
        tokenizer=tokenizer,
        max_length=max_length,
        stride=stride,
        type_vocab_size=model.config.type_vocab_size,
    )
    names = ("token_ids", "padding_mask", "segment_ids")
    inputs = {name: rows[name] for name in names}
    tokens = tf.shape(inputs["token_ids"])[1]
    logits = model.logits_of_rows(inputs, [tokens, model.num_labels])  # (R, T, C)
    row, place = best_slots(rows["texts"], rows["starts"], rows["sizes"], lengths)
    probabilities = tf.nn.softmax(tf.gather_nd(logits, tf.stack([row, place + 1], axis=1)))  # (N, C)

    words = pieces["word_ids"]
    before = tf.concat([[-1], words.values[:-1]], axis=0)
    is_row_start = tf.scatter_nd(
        words.row_starts()[:, None],
        tf.ones_like(words.row_starts(), tf.int32),
        [tf.cast(tf.size(words.values), tf.int64) + 1],
    )[:-1]
    is_first = (words.values != before) | (is_row_start > 0)
    is_last = tf.concat([is_first[1:], [True]], axis=0)[: tf.size(is_first)]

    def of_words(values, chosen):
        return tf.ragged.boolean_mask(words.with_values(values), words.with_values(chosen))

    return {
        "labels": of_words(tf.argmax(probabilities, axis=-1, output_type=tf.int32), is_first),
        "probabilities": of_words(tf.reduce_max(probabilities, axis=-1), is_first),
        "starts": of_words(pieces["char_starts"].values, is_first),
        "ends": of_words(pieces["char_ends"].values, is_last),
    }


def find_entities(text, words, label_names):
    """The entities that labels of words make, by the rule of `keras_bert.text.entities.entities`.

    Shapes (B texts, W words, E entities of each):
        text     (B,)  string
        words    as `tag_words` returns them
        returns  texts, labels  (B, E) ragged string: slices of the text, and the entities' types
                 starts, ends   (B, E) ragged int32
                 scores         (B, E) ragged float32: the least probability of its words
    """
    kinds = sorted({name[2:] for name in label_names if name != OUTSIDE})
    kind_of = np.array([kinds.index(name[2:]) if name != OUTSIDE else -1 for name in label_names])
    is_begin = np.array([begins(name) for name in label_names])
    is_close = np.array([closes(name) for name in label_names])
    labels = words["labels"]
    rows = tf.cast(row_ids(labels), tf.int64)  # the text of each word
    kind = tf.gather(tf.constant(kind_of, tf.int32), labels.values)

    def behind(values, first):
        """For each word the value of the one before."""
        return tf.concat([[first], values[:-1]], axis=0)[: tf.size(kind)]

    is_first = (
        tf.gather(tf.constant(is_begin), labels.values)
        | behind(tf.gather(tf.constant(is_close), labels.values), False)
        | (kind != behind(kind, -1))
        | (rows != behind(rows, -1))
    )
    is_inside = kind >= 0
    is_first &= is_inside
    number = tf.cumsum(tf.cast(is_first, tf.int32)) - 1
    number = tf.boolean_mask(number, is_inside)
    count = tf.reduce_sum(tf.cast(is_first, tf.int32))

    def inside(values):
        return tf.boolean_mask(values, is_inside)

    starts = tf.math.unsorted_segment_min(inside(words["starts"].values), number, count)
    ends = tf.math.unsorted_segment_max(inside(words["ends"].values), number, count)
    scores = tf.math.unsorted_segment_min(inside(words["probabilities"].values), number, count)
    owner = tf.boolean_mask(rows, is_first)
    text = tf.gather(drop_invalid_bytes(text), owner)
    flat = {
        "texts": tf.strings.substr(text, starts, ends - starts, unit="UTF8_CHAR"),
        "labels": tf.gather(tf.constant(kinds or [""]), tf.boolean_mask(kind, is_first)),
        "starts": starts,
        "ends": ends,
        "scores": scores,
    }
    texts = labels.nrows()
    return {name: tf.RaggedTensor.from_value_rowids(each, owner, texts) for name, each in flat.items()}
