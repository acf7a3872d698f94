"""From text with [MASK] to the words that may stand there, in the graph."""

import tensorflow as tf

from keras_bert.models.grouping import in_groups
from keras_bert.text.windows import best_slots, window_rows


def fill_masks(model, tokenizer, text, top_k):
    """The likeliest words for each [MASK] of each text, however long.

    A longer text than the model can read is read in windows that overlap by three quarters; each [MASK]
    is answered in the one where it has most context.

    Shapes (B texts, M masks in the text that has most, K = top_k):
        text     (B,)       string
        returns  words      (B, M, K)  string, best first; "" where a text has fewer masks
                 scores     (B, M, K)  float32, probabilities; 0 where words are ""
    """
    ids = tokenizer.tokenize(text, parse_special_tokens=True)
    max_length = model.config.max_length
    rows = window_rows(
        {"token_ids": ids},
        tokenizer=tokenizer,
        max_length=max_length,
        stride=max(1, max_length // 4),
        type_vocab_size=model.config.type_vocab_size,
    )
    is_mask = ids == tokenizer.mask_token_id
    window, place = best_slots(rows["texts"], rows["starts"], rows["sizes"], ids.row_lengths())
    window, place = (tf.boolean_mask(each, is_mask.values) for each in (window, place))
    # the masks that each window answers, in their order: windows follow each other as masks do
    places = tf.RaggedTensor.from_value_rowids(
        place + 1, tf.cast(window, tf.int64), tf.size(rows["texts"], tf.int64)
    )
    inputs = {name: rows[name] for name in ("token_ids", "padding_mask", "segment_ids")}
    inputs["mask_positions"] = places.to_tensor()  # (W, P)

    def best_words(inputs):
        logits = model(inputs, training=False)["masked_lm"]  # (W, P, V)
        # rows of the word table behind the last entry of the vocabulary are words that cannot be
        probabilities = tf.nn.softmax(logits[..., : tokenizer.vocabulary_size])
        scores, best = tf.math.top_k(probabilities, k=top_k)
        return {"ids": best, "scores": scores}

    nothing = tf.zeros([0, tf.shape(inputs["mask_positions"])[1], top_k])
    best = in_groups(best_words, inputs, {"ids": tf.cast(nothing, tf.int32), "scores": nothing})
    number = tf.range(tf.size(window)) - tf.gather(tf.cast(places.row_starts(), tf.int32), window)
    slots = tf.stack([window, number], axis=1)  # of the masks of all texts
    words = tf.gather(tf.constant(tokenizer.vocabulary), tf.gather_nd(best["ids"], slots))
    counts = tf.reduce_sum(tf.cast(is_mask, tf.int64), axis=1)
    words, scores = (
        tf.RaggedTensor.from_row_lengths(each, counts)
        for each in (words, tf.gather_nd(best["scores"], slots))
    )
    return {"words": words.to_tensor(""), "scores": scores.to_tensor(0.0)}
