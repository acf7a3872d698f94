"""What each model takes and returns where it is served: named columns in, answers a client can show.

A model's `text_signatures(tokenizer, **options)` is one of the functions here. The first signature
takes strings and is a server's default; `token_ids` is for clients that tokenise themselves. Columns
and results have a row for each request of a batch, and no row depends on the others. Texts without any
words are answered, bytes that are no UTF-8 are dropped, and offsets count characters without them.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert.models.tagging import find_entities, tag_words
from keras_bert.text.entities import are_entity_tags
from keras_bert.text.normalization import drop_invalid_bytes
from keras_bert.text.windows import check_stride

DEFAULT = "serving_default"  # what a server runs when a request names no signature
_SHORT, _LONG = "A short text.", "Some of the longer texts that people write. " * 20


class Signature(NamedTuple):
    """A way to ask a model.

    Attributes:
        columns: {name: TensorSpec}; the first axis of each is that of the requests.
        answer: A graph function of the columns, by name, that gives {name: tensor}.
        sample: {name: array}, requests to warm a server up with.
    """

    columns: dict
    answer: Any
    sample: dict


def classifier_signatures(model, tokenizer, max_length=None, pairs=False):
    """Of a BertClassifier: `text` or, in a signature of its own, `text` and `text_pair`.

    Shapes (B texts or pairs, C labels):
        text, text_pair  (B,)  string; what is too long loses the end of its longer text
        returns  label          (B,)    string, of "single_label" alone
                 probabilities  (B, C)  float32; of "regression" instead score, (B,) or (B, C)
                 labels         (B, C)  string, the names that belong to the probabilities or scores

    Args:
        max_length: Most tokens of a row; None for as many as the model can read.
        pairs: Whether pairs are the default, and single texts not asked for.
    """

    def named(results):
        if model.problem_type == "regression" and model.num_labels == 1:
            return results
        rows = tf.shape(next(iter(results.values())))[0]
        return {**results, "labels": tf.repeat(tf.constant([model.label_names]), rows, axis=0)}

    def of_text(text):
        return named(model.text_outputs(tokenizer, text, max_length=max_length))

    def of_pair(text, text_pair):
        return named(model.text_outputs(tokenizer, text, text_pair, max_length=max_length))

    single = Signature(_strings("text"), of_text, {"text": [_SHORT, _LONG]})
    pair = Signature(
        _strings("text", "text_pair"),
        of_pair,
        {"text": [_SHORT, _LONG], "text_pair": [_LONG, _SHORT]},
    )
    token_ids = _token_ids(model, tokenizer, lambda logits: named(model.named_results(logits)))
    texts = {DEFAULT: pair} if pairs else {DEFAULT: single, "text_pair": pair}
    return {**texts, "token_ids": token_ids}


def tagger_signatures(model, tokenizer, max_length=None, stride=None, words=False):
    """Of a BertTokenClassifier: `text` of any length, to entities; or to words, where labels are of
    something else.

    Shapes (B texts, E = entities, and W = words, of the text that has most):
        text     (B,)  string
        returns  entity_text, entity_label         (B, E)  string; "" behind the last entity of a text
                 entity_start, entity_end          (B, E)  int32, in characters; 0 behind the last
                 entity_score                      (B, E)  float32, the least probable word's
                 word_text, word_label, word_start, word_end, word_score  (B, W)  the same of words

    Args:
        max_length: Most tokens of a window; None for as many as the model can read.
        stride: Tokens between the beginnings of two windows; None for a quarter of one.
        words: Whether words are wanted beside entities.
    """
    window = model.window(max_length, stride)
    check_stride(window[0] - 2, window[1])
    are_entities = are_entity_tags(model.label_names)

    def of_text(text):
        found = tag_words(model, tokenizer, text, *window)
        results = {}
        if are_entities:
            entities = find_entities(text, found, model.label_names)
            results |= _padded("entity", entities)
        if words or not are_entities:
            label = found["labels"].with_flat_values(
                tf.gather(tf.constant(model.label_names), found["labels"].flat_values)
            )
            starts = found["starts"].to_tensor()
            lengths = found["ends"].to_tensor() - starts
            # one slice of the text for each slot: rows have as many slots as the longest text words
            text = tf.repeat(drop_invalid_bytes(text)[:, None], tf.shape(starts)[1], axis=1)
            results["word_text"] = tf.strings.substr(text, starts, lengths, unit="UTF8_CHAR")
            results |= _padded(
                "word",
                {
                    "labels": label,
                    "starts": found["starts"],
                    "ends": found["ends"],
                    "scores": found["probabilities"],
                },
            )
        return results

    def of_ids(logits):
        names = tf.constant([model.label_names])
        labels = tf.repeat(names, tf.shape(logits)[0], axis=0)
        return {"probabilities": tf.nn.softmax(logits), "labels": labels}

    return {
        DEFAULT: Signature(_strings("text"), of_text, {"text": [_SHORT, _LONG]}),
        "token_ids": _token_ids(model, tokenizer, of_ids),  # probabilities (B, T, C), labels (B, C)
    }


def answer_signatures(
    model,
    tokenizer,
    n_best=5,
    no_answer_threshold=None,
    max_length=None,
    stride=None,
    max_answer_length=30,
    max_question_length=64,
):
    """Of a BertQuestionAnswering: `question` and `context`, of any length, to slices of the context.

    Shapes (B questions, K = n_best):
        question, context  (B,)  string
        returns  answer            (B,)    string; "" at 0 to 0 where no answer is the answer
                 score             (B,)    float32, its probability among the K and no answer
                 start, end        (B,)    int32, in characters of the context
                 no_answer_margin  (B,)    float32, what is compared with the threshold
                 n_best_answer, n_best_score, n_best_start, n_best_end  (B, K)  best first; "" where
                                   there is no further span

    Args:
        n_best, max_length, stride, max_answer_length, max_question_length: As in `predict_text`.
        no_answer_threshold: How much more than the best answer no answer must score to be taken; None
            for the model's, infinity for always an answer.
    """
    if no_answer_threshold is None:
        no_answer_threshold = model.no_answer_threshold
    longest, step = model.window(max_length, stride)
    asked = min(max_question_length, longest // 2)
    # questions of the greatest length leave this much: no request can fail for want of it
    check_stride(longest - 2 - tokenizer.pair_separators - asked, step)
    options = {
        "n_best": n_best,
        "max_length": max_length,
        "stride": stride,
        "max_answer_length": max_answer_length,
        "max_question_length": max_question_length,
    }

    def of_text(question, context):
        found = model.text_outputs(tokenizer, question, context, **options)
        is_span = found["ends"] > found["starts"]
        probabilities = tf.where(is_span, found["probabilities"], 0.0)
        margin = found["no_answer"] - found["scores"][:, 0]
        is_answer = is_span[:, 0]
        if no_answer_threshold is not None:
            is_answer &= margin <= no_answer_threshold
        nothing = 1 - tf.reduce_sum(probabilities, axis=1)
        return {
            "answer": tf.where(is_answer, found["answers"][:, 0], ""),
            "score": tf.where(is_answer, probabilities[:, 0], nothing),
            "start": tf.where(is_answer, found["starts"][:, 0], 0),
            "end": tf.where(is_answer, found["ends"][:, 0], 0),
            "no_answer_margin": margin,
            "n_best_answer": found["answers"],
            "n_best_score": probabilities,
            "n_best_start": found["starts"],
            "n_best_end": found["ends"],
        }

    sample = {"question": ["What do people write?"] * 2, "context": [_SHORT, _LONG]}
    return {
        DEFAULT: Signature(_strings("question", "context"), of_text, sample),
        "token_ids": _token_ids(model, tokenizer, dict),  # start_positions, end_positions (B, T)
    }


def mask_signatures(model, tokenizer, top_k=5):
    """Of a BertPretrainer or BertMaskedLM: `text` with [MASK] to words, as `fill_masks` has them.

    Shapes (B texts, M masks in the text that has most, K = top_k):
        text     (B,)       string
        returns  words      (B, M, K)  string, best first; "" where a text has fewer masks
                 scores     (B, M, K)  float32, probabilities; 0 where words are ""
    """
    mask = tokenizer.pieces(tokenizer.mask_token_id).numpy().decode()

    def of_text(text):
        return model.text_outputs(tokenizer, text, top_k=top_k)

    sample = {"text": [f"A short {mask}.", f"{_LONG} {mask} {mask}"]}
    return {
        DEFAULT: Signature(_strings("text"), of_text, sample),
        # masked_lm (B, P, V) and, with that head, sentence (B, 2)
        "token_ids": _token_ids(model, tokenizer, dict, mask_positions=[[1], [2]]),
    }


def choice_signatures(model, tokenizer, max_length=None):
    """Of a BertMultipleChoice: `context` and its `choices`, of which one goes on with it.

    Shapes (B contexts, C choices of each):
        context  (B,)    string
        choices  (B, C)  string
        returns  choice         (B,)    int32, the number of the likeliest, from 0
                 choice_text    (B,)    string, that choice
                 probabilities  (B, C)  float32

    Args:
        max_length: Most tokens of a row; None for as many as the model can read.
    """

    def of_text(context, choices):
        results = model.text_outputs(tokenizer, context, choices, max_length=max_length)
        return {**results, "choice_text": tf.gather(choices, results["choice"], batch_dims=1)}

    columns = {
        "context": tf.TensorSpec([None], tf.string, "context"),
        "choices": tf.TensorSpec([None, None], tf.string, "choices"),
    }
    sample = {"context": [_SHORT, _LONG], "choices": [[_SHORT, _LONG], [_LONG, _SHORT]]}
    return {
        DEFAULT: Signature(columns, of_text, sample),
        "token_ids": _token_ids(model, tokenizer, model.named_results, axes=3),
    }


def _strings(*names):
    return {name: tf.TensorSpec([None], tf.string, name) for name in names}


def _token_ids(model, tokenizer, named_results, axes=2, **further):
    """The signature for clients that tokenise: ids (B, T), or with `axes` 3 (B, C, T), and a mask.

    Args:
        named_results: What makes named results of the model's outputs.
        **further: Samples of further columns of the model, (B, ...) int32.
    """
    row = [tokenizer.cls_token_id, tokenizer.unk_token_id, tokenizer.unk_token_id]
    ids = np.array([[*row, tokenizer.sep_token_id]] * 2, "int32")  # (2, 4)
    if axes == 3:
        ids = np.stack([ids, ids], axis=1)
    sample = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
    if model.config.type_vocab_size > 1:
        sample["segment_ids"] = np.zeros_like(ids)
    sample |= {name: np.array(each, "int32") for name, each in further.items()}
    columns = {name: tf.TensorSpec([None] * each.ndim, tf.int32, name) for name, each in sample.items()}
    return Signature(columns, lambda **x: named_results(model(x, training=False)), sample)


def _padded(prefix, ragged):
    """Ragged rows as dense ones: {"texts": (B, E) ragged} -> {"entity_text": (B, E)}."""
    return {f"{prefix}_{name.removesuffix('s')}": each.to_tensor() for name, each in ragged.items()}
