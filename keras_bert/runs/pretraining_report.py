"""What a finished pretraining run tells: held-out figures and filled masks."""

import json
import os
import subprocess
import sys

import numpy as np


def report_pretrainer(figures, held_out, batch_size, examples):
    """Held-out figures, beside what a model that knows nothing but word counts could reach.

    Args:
        figures: What the Trainer's `evaluate` gave for the examples.
        held_out: The data that they are of.
        batch_size, examples: As given to its `evaluation_batches`.

    Returns:
        A dict of numbers; losses and the entropy in nats for each predicted token.
    """
    counts = np.zeros(held_out.tokenizer.vocabulary_size)
    for _, y, weights in held_out.evaluation_batches(batch_size, examples).as_numpy_iterator():
        np.add.at(counts, y["masked_lm"], weights["masked_lm"])
    shares = counts[counts > 0] / counts.sum()
    return {
        **figures,
        "unigram_entropy": float(-(shares * np.log(shares)).sum()),
        "bits_per_character": figures["masked_lm_loss"] / np.log(2) / held_out.characters_per_token,
        "targets": int(counts.sum()),
    }


def mask_sentences(documents, tokenizer, count):
    """(sentence with [MASK], hidden word) of the first sentences of some documents.

    Taken are up to `count` sentences of 9 to 16 words, spread over the documents. Hidden is a word near
    the middle that is one piece of the vocabulary: one [MASK] can bring it back.

    Shapes (D documents, S sentences):
        documents  (D, S) ragged  string
    """
    pieces, masked = set(tokenizer.vocabulary), []
    for sentences in documents.numpy():
        words = sentences[0].decode().split() if len(sentences) else []
        known = [word.lower() if tokenizer.lowercase else word for word in words]
        inner = [i for i in range(1, len(words) - 1) if words[i].isalpha() and known[i] in pieces]
        if 9 <= len(words) <= 16 and inner:
            at = min(inner, key=lambda i: abs(2 * i - len(words)))
            masked.append((" ".join([*words[:at], "[MASK]", *words[at + 1 :]]), words[at]))
    return masked[:: max(1, len(masked) // count)][:count]


# Needs nothing of this package: what a server or another project would do.
_FILL = """
import json, sys, tensorflow as tf, tensorflow_text
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
out = serve(text=tf.constant(json.load(sys.stdin)))
words, scores = (out[name].numpy()[:, 0] for name in ("words", "scores"))
print(json.dumps([[[word.decode() for word in row] for row in words], scores.tolist()]))
"""


def fill_in_a_fresh_process(saved_model, masked_sentences):
    """Loads an export in a new Python process and fills (sentence, true word) pairs."""
    if not masked_sentences:
        return []
    run = subprocess.run(
        [sys.executable, "-c", _FILL, saved_model],
        input=json.dumps([text for text, _ in masked_sentences]),
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},  # this process holds the accelerators
    )
    if run.returncode:
        raise RuntimeError(f"The export in {saved_model} must load in a fresh process. {run.stderr}")
    words, scores = json.loads(run.stdout.splitlines()[-1])
    return [
        {"text": text, "true_word": true, "words": row, "scores": numbers}
        for (text, true), row, numbers in zip(masked_sentences, words, scores, strict=True)
    ]
