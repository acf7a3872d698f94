"""From scores of tokens to answers: the best spans of all windows over a text, as it was written."""

import tensorflow as tf

from keras_bert.models.grouping import in_groups
from keras_bert.text.normalization import drop_invalid_bytes
from keras_bert.text.windows import window_rows

_CANDIDATES = 20  # starts, and ends, of each window that are combined
_IMPOSSIBLE = -1e9


def find_answers(
    model,
    tokenizer,
    question,
    context,
    n_best,
    max_length,
    stride,
    max_answer_length,
    max_question_length,
):
    """The likeliest answers to each question, each a slice of its context.

    Devlin et al. 2018, sections 4.2 and 4.3: a span scores the sum of the logits of its ends, no answer
    that of [CLS]. Spans lie in the context, end where they begin or later, and have at most
    `max_answer_length` tokens. No answer scores the least that any window gives it.

    Shapes (B questions, K = n_best):
        question, context  (B,)  string
        returns  answers       (B, K)  string, best first; "" where there is no further span
                 scores        (B, K)  float32, the sums of logits; -1e9 where there is no span
                 probabilities (B, K)  float32, softmax over the K and, behind them, no answer
                 starts, ends  (B, K)  int32, in characters of the context
                 no_answer     (B,)    float32, the sum of logits
    """
    context = drop_invalid_bytes(context)
    pieces = tokenizer.tokenize_with_offsets(context)
    rows = window_rows(
        {name: pieces[name] for name in ("token_ids", "char_starts", "char_ends")},
        {"token_ids": tokenizer.tokenize(question)[:, :max_question_length]},
        tokenizer=tokenizer,
        max_length=max_length,
        stride=stride,
        type_vocab_size=model.config.type_vocab_size,
    )
    names = ("token_ids", "padding_mask", "segment_ids")
    nothing = tf.zeros([0, tf.shape(rows["token_ids"])[1]])
    logits = in_groups(
        lambda x: model(x, training=False),
        {name: rows[name] for name in names},
        {"start_positions": nothing, "end_positions": nothing},
    )
    starts, ends = logits["start_positions"], logits["end_positions"]  # (W, T)
    no_answer = tf.math.unsorted_segment_min(starts[:, 0] + ends[:, 0], rows["texts"], tf.size(context))

    slot = tf.range(tf.shape(starts)[1])[None, :]
    first = rows["first_slots"][:, None]
    is_context = (slot >= first) & (slot < first + rows["sizes"][:, None])
    scores, begin, end = _best_spans(starts, ends, is_context, max_answer_length)  # (W, C)
    spans = {
        "scores": scores,
        "starts": tf.gather(rows["char_starts"], begin, batch_dims=1),
        "ends": tf.gather(rows["char_ends"], end, batch_dims=1),
    }
    spans = _per_question(spans, rows["texts"], tf.size(context), n_best)
    is_span = spans["scores"] > _IMPOSSIBLE / 2
    spans["starts"], spans["ends"] = (tf.where(is_span, spans[name], 0) for name in ("starts", "ends"))
    all_scores = tf.concat([spans["scores"], no_answer[:, None]], axis=1)
    answers = tf.strings.substr(
        tf.repeat(context[:, None], n_best, axis=1),
        spans["starts"],
        spans["ends"] - spans["starts"],
        unit="UTF8_CHAR",
    )
    return {
        "answers": answers,
        **spans,
        "probabilities": tf.nn.softmax(all_scores)[:, :n_best],
        "no_answer": no_answer,
    }


def _best_spans(starts, ends, is_context, max_answer_length):
    """Spans of each window: scores, first and last slot, three of (W, C); most are impossible."""
    count = tf.minimum(_CANDIDATES, tf.shape(starts)[1])
    start_scores, begin = tf.math.top_k(tf.where(is_context, starts, _IMPOSSIBLE), count)
    end_scores, end = tf.math.top_k(tf.where(is_context, ends, _IMPOSSIBLE), count)
    length = end[:, None, :] - begin[:, :, None]
    scores = start_scores[:, :, None] + end_scores[:, None, :]
    fits = (length >= 0) & (length < max_answer_length) & (scores > _IMPOSSIBLE / 2)
    scores = tf.where(fits, scores, _IMPOSSIBLE)
    pairs = (
        scores,
        tf.broadcast_to(begin[:, :, None], tf.shape(scores)),
        tf.broadcast_to(end[:, None, :], tf.shape(scores)),
    )
    return tuple(tf.reshape(each, [tf.shape(starts)[0], count * count]) for each in pairs)


def _per_question(spans, texts, questions, n_best):
    """The best spans over all windows of each question, each span once: a dict of (B, K)."""
    kept = tf.minimum(tf.shape(spans["scores"])[1], _CANDIDATES)
    _, order = tf.math.top_k(spans["scores"], kept)
    spans = {name: tf.gather(each, order, batch_dims=1) for name, each in spans.items()}

    def of_question(each, missing):
        owners, count = tf.cast(texts, tf.int64), tf.cast(questions, tf.int64)
        ragged = tf.RaggedTensor.from_value_rowids(each, owners, count)
        return ragged.merge_dims(1, 2).to_tensor(missing)  # (B, windows * kept)

    missing = {"scores": _IMPOSSIBLE, "starts": 0, "ends": 0}
    spans = {name: of_question(each, missing[name]) for name, each in spans.items()}
    order = tf.argsort(spans["scores"], axis=1, direction="DESCENDING", stable=True)
    spans = {name: tf.gather(each, order, batch_dims=1) for name, each in spans.items()}
    # windows overlap: what another has found with a better score is not found again
    same = (spans["starts"][:, :, None] == spans["starts"][:, None, :]) & (
        spans["ends"][:, :, None] == spans["ends"][:, None, :]
    )
    place = tf.range(tf.shape(spans["scores"])[1])
    earlier = place[None, :] < place[:, None]
    is_repeated = tf.reduce_any(same & earlier, axis=2)
    scores = tf.where(is_repeated, _IMPOSSIBLE, spans["scores"])
    scores = tf.pad(scores, [[0, 0], [0, n_best]], constant_values=_IMPOSSIBLE)
    best, order = tf.math.top_k(scores, n_best)
    spans = {
        name: tf.gather(tf.pad(spans[name], [[0, 0], [0, n_best]]), order, batch_dims=1)
        for name in ("starts", "ends")
    }
    return {"scores": best, **spans}
