"""From text with [MASK] to the words that may stand there, in the graph."""

import tensorflow as tf

from keras_bert.models.grouping import in_groups
from keras_bert.text.pairing import combine


def fill_masks(model, tokenizer, text, top_k):
    """The likeliest words for each [MASK] of each text.

    Texts longer than the model's rows lose their end; a [MASK] in the lost part gets empty words.

    Shapes (B texts, M masks in the text that has most, K = top_k):
        text     (B,)       string
        returns  words      (B, M, K)  string, best first; "" where a text has fewer masks
                 scores     (B, M, K)  float32, probabilities; 0 where words are ""
    """
    ids = tokenizer.tokenize(text, parse_special_tokens=True)
    inputs = combine(
        ids,
        tokenizer=tokenizer,
        max_length=model.config.max_length,
        padding="longest",
        type_vocab_size=model.config.type_vocab_size,
    )
    room = model.config.max_length - 2
    places = tf.ragged.range(ids.row_lengths())
    places = tf.ragged.boolean_mask(places, ids == tokenizer.mask_token_id)
    places = places.to_tensor(default_value=room)  # (B, M)
    shown = places < room
    # behind [CLS]
    inputs["mask_positions"] = tf.cast(tf.where(shown, places + 1, 0), tf.int32)

    def best_words(inputs):
        logits = model(inputs, training=False)["masked_lm"]
        # rows of the word table behind the last entry of the vocabulary are words that cannot be
        probabilities = tf.nn.softmax(logits[..., : tokenizer.vocabulary_size])
        scores, ids = tf.math.top_k(probabilities, k=top_k)  # (B, M, K)
        return {"ids": ids, "scores": scores}

    nothing = tf.zeros([0, tf.shape(places)[1], top_k])
    best = in_groups(best_words, inputs, {"ids": tf.cast(nothing, tf.int32), "scores": nothing})
    words = tf.gather(tf.constant(tokenizer.vocabulary), best["ids"])
    shown = shown[:, :, None]
    return {"words": tf.where(shown, words, ""), "scores": tf.where(shown, best["scores"], 0.0)}
