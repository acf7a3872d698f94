"""Speed of text on its way to batches: ids, offsets and masked batches, beside peers."""

import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

from keras_bert import WordPieceTokenizer
from keras_bert.data.builtin import builtin_documents
from keras_bert.data.sources import text_documents
from keras_bert.hashing import fold
from keras_bert.text.masking import mask_tokens
from keras_bert.text.pairing import combine
from keras_bert.text.vocabulary import write_vocabulary
from keras_bert.text.vocabulary_training import train_vocabulary

VOCAB = 30522


def benchmark_text(options, header):
    documents = text_documents(options.corpus) if options.corpus else builtin_documents()
    texts = paragraphs(documents, options.megabytes)
    size = sum(len(text.encode()) for text in texts) / 1e6
    vocabulary = options.vocabulary or trained_vocabulary(texts)
    print(
        f"{len(texts):,} texts, {size:.1f} MB; {options.rows} x {options.length} tokens a batch; "
        f"{header}"
    )
    contestants = our_text_functions(texts, vocabulary, options)
    contestants |= hugging_face_text_functions(texts, vocabulary, options)
    contestants |= graph_peer_text_functions(texts, vocabulary, options)
    times = take_turns(contestants, options.rounds)
    report(times, size, "MB")
    for ours, theirs in TEXT_COMPARISONS:
        ratio = median_wall(times, theirs) / median_wall(times, ours)
        print(f"{ours} is {ratio:.1f} times as fast as {theirs}")


TEXT_COMPARISONS = [
    ("keras_bert, ids", "Hugging Face, ids"),
    ("keras_bert, ids", "keras-hub, ids"),
    ("keras_bert, ids", "tf-text, ids"),
    ("keras_bert, offsets", "Hugging Face, ids"),  # which always computes offsets
    ("keras_bert, masked", "Hugging Face, masked"),
    ("keras_bert, masked", "keras-hub, masked"),
    ("keras_bert, whole words masked", "Hugging Face, whole words masked"),
]


def paragraphs(documents, megabytes):
    """Texts of a paragraph each, up to an amount in all."""
    texts, room = [], megabytes * 1e6
    for document in documents:
        for text in document.split("\n\n"):
            text = text.strip()
            if text:
                texts.append(text)
                room -= len(text.encode())
        if room < 0:
            break
    return texts


def trained_vocabulary(texts):
    path = os.path.join(tempfile.mkdtemp(), "vocab.txt")
    write_vocabulary(path, train_vocabulary(texts, VOCAB))
    return path


def text_pipeline(texts, function, rows):
    """A turn of `function` over batches of strings, on all cores."""
    options = tf.data.Options()
    options.autotune.enabled = False
    batches = tf.data.Dataset.from_tensor_slices(texts).batch(rows).cache()
    mapped = batches.map(function, os.cpu_count()).with_options(options)

    def run():
        for _ in mapped:
            pass

    return run


def our_text_functions(texts, vocabulary, options):
    tokenizer = WordPieceTokenizer(vocabulary)

    def masked(masking):
        def function(text):
            pieces = tokenizer.tokenize_with_offsets(text)
            pieces = {name: pieces[name] for name in ("token_ids", "word_ids")}
            x = combine(pieces, tokenizer=tokenizer, max_length=options.length)
            keys = fold(0, tf.strings.to_hash_bucket_fast(text, 2**31 - 1))
            words = x.pop("word_ids")
            return x | mask_tokens(
                x["token_ids"], words, keys, tokenizer, options.predictions, masking=masking
            )

        return function

    functions = {
        "ids": tokenizer.tokenize,
        "offsets": tokenizer.tokenize_with_offsets,
        "masked": masked("token"),
        "whole words masked": masked("whole_word"),
    }
    return {
        f"keras_bert, {name}": text_pipeline(texts, function, options.rows)
        for name, function in functions.items()
    }


def hugging_face_text_functions(texts, vocabulary, options):
    """The Rust tokenizer, which uses all cores, and transformers' collators, a thread for each core."""
    import transformers

    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    tokenizer = transformers.BertTokenizerFast(vocabulary)
    batches = [texts[i : i + options.rows] for i in range(0, len(texts), options.rows)]

    def masked(collator_class):
        collate = collator_class(tokenizer, return_tensors="pt")

        def function(batch):
            rows = tokenizer(
                batch,
                truncation=True,
                max_length=options.length,
                padding="max_length",
                return_special_tokens_mask=True,
            )
            return collate(
                [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
            )

        def run():
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                for _ in threads.map(function, batches):
                    pass

        return run

    return {
        "Hugging Face, ids": lambda: tokenizer.backend_tokenizer.encode_batch(texts),
        "Hugging Face, masked": masked(transformers.DataCollatorForLanguageModeling),
        "Hugging Face, whole words masked": masked(transformers.DataCollatorForWholeWordMask),
    }


def graph_peer_text_functions(texts, vocabulary, options):
    import keras_nlp
    import tensorflow_text as tf_text

    tokenizer = keras_nlp.models.BertTokenizer(vocabulary, lowercase=True)
    preprocess = keras_nlp.models.BertMaskedLMPreprocessor(
        tokenizer, sequence_length=options.length, mask_selection_length=options.predictions
    )
    bert = tf_text.BertTokenizer(vocabulary, lower_case=True)
    functions = {
        "keras-hub, ids": tokenizer,
        "keras-hub, masked": preprocess,
        "tf-text, ids": bert.tokenize,
    }
    return {name: text_pipeline(texts, function, options.rows) for name, function in functions.items()}


def take_turns(contestants, rounds):
    """{name: [(wall seconds, CPU seconds) of each round]} of functions, after a round unmeasured."""
    times = {name: [] for name in contestants}
    for measured in [False] + [True] * rounds:
        for name, run in contestants.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            if measured:
                times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return times


def report(times, amount, unit):
    """Prints medians; `amount` is what a turn works through."""
    width = max(map(len, times))
    print(f"{'':{width}}   s/turn   (min)  CPU s/turn  {unit}/s")
    for name, rounds in times.items():
        walls, cpus = zip(*rounds, strict=True)
        wall = statistics.median(walls)
        print(
            f"{name:{width}}  {wall:7.3f}  {min(walls):6.3f}  {statistics.median(cpus):10.3f}"
            f"  {amount / wall:8,.1f}"
        )


def median_wall(times, name):
    return statistics.median(wall for wall, _ in times[name])
