"""From text with [MASK] to the words that may stand there, in the graph."""

import tensorflow as tf


def fill_masks(model, tokenizer, text, top_k):
    """The likeliest words for each [MASK] of each text.

    Texts longer than the model's rows lose their end; a [MASK] in the lost part gets empty words.

    Shapes (B texts, M masks in the text that has most, K = top_k):
        text     (B,)       string
        returns  words      (B, M, K)  string, best first; "" where a text has fewer masks
                 scores     (B, M, K)  float32, probabilities; 0 where words are ""
    """
    ids = tokenizer.tokenize(text, parse_special_tokens=True)
    room = model.config.max_length - 2
    frame = [tf.fill([ids.nrows(), 1], id) for id in (tokenizer.cls_token_id, tokenizer.sep_token_id)]
    rows = tf.concat([frame[0], ids[:, :room], frame[1]], axis=1)
    padding_mask = tf.sequence_mask(rows.row_lengths(), dtype=tf.int32)  # (B, T)

    places = tf.ragged.range(ids.row_lengths())
    places = tf.ragged.boolean_mask(places, ids == tokenizer.mask_token_id)
    places = places.to_tensor(default_value=room)  # (B, M)
    shown = places < room
    inputs = {
        "token_ids": rows.to_tensor(tokenizer.pad_token_id),
        "padding_mask": padding_mask,
        "mask_positions": tf.cast(tf.where(shown, places + 1, 0), tf.int32),  # behind [CLS]
    }
    probabilities = tf.nn.softmax(model(inputs, training=False)["masked_lm"])
    scores, best = tf.math.top_k(probabilities, k=top_k)  # (B, M, K)
    words = tf.gather(tf.constant(tokenizer.vocabulary), best)
    shown = shown[:, :, None]
    return {"words": tf.where(shown, words, ""), "scores": tf.where(shown, scores, 0.0)}
