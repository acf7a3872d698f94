"""Building record files from a corpus of any size, in several processes.

Documents are read in order and handed out in blocks of some megabytes. A worker makes the examples of
a block by itself, as of a small corpus; they are written in the order of the blocks. So memory holds a
few blocks for each worker, whatever the size of the corpus, and the files are the same bytes for any
number of workers.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import pickle
import sys
import threading
import time
import zlib

import numpy as np
import tensorflow as tf

from keras_bert.config import check_field_types
from keras_bert.data.corpus import Corpus, build_corpus
from keras_bert.data.objectives import ObjectiveName, make_objective
from keras_bert.data.record_writing import RecordWriter
from keras_bert.data.records import (
    MANIFEST,
    PROGRESS,
    describe_tokenizer,
    differences,
    serialize_example,
)
from keras_bert.data.sources import TextLayout, open_corpus, sentence_splitter
from keras_bert.hashing import fold
from keras_bert.text.pretrained import load_tokenizer
from keras_bert.text.vocabulary_training import train_vocabulary
from keras_bert.text.wordpiece import WordPieceTokenizer

SPLITS = ("held_out", "train")  # the small one first: it is the one that may turn out empty
_REPORT_EVERY = 60  # seconds between the lines of a log file; a terminal sees two a second


@dataclasses.dataclass(frozen=True)
class RecordRecipe:
    """Every setting of a build of record files."""

    output: str = "records"
    """Directory for the tokenizer and the records, in train/ and held_out/; a build that was
    interrupted goes on from it."""
    processes: int = 1
    """Workers that make examples; the records are the same for any number."""

    # --- text
    corpus: str = "builtin"
    """"builtin" (documentation on this machine), "tfds:NAME", "jsonl:PATH" (files with a JSON object on
    each line), or the path of text: a file, folder or glob."""
    text_layout: TextLayout = "file"
    """How text files hold documents: one a file; separated by blank lines; or that with one sentence
    a line. A document is read whole."""
    tfds_split: str = "train"
    """Split of a TFDS corpus."""
    text_field: str | None = None
    """Text feature of a TFDS corpus, None for the only one; field of JSON objects, None for "text"."""
    held_out_every: int = 33
    """Of a corpus of your own, each document whose number is a multiple of this is held out."""
    tokenizer: str | None = None
    """Directory of a tokenizer, ours or Hugging Face's; None trains a WordPiece vocabulary."""
    vocab_size: int = 30000
    """Entries of a vocabulary that is trained."""
    lowercase: bool = True
    """Whether a tokenizer with such a vocabulary lower-cases and drops accents."""

    # --- examples
    objective: ObjectiveName = "next_sentence"
    """What an example is: a pair as BERT's or ALBERT's, or a row of whole sentences as RoBERTa's."""
    max_length: int = 128
    """Tokens in a row, special ones included."""
    short_rate: float | None = None
    """Share of rows cut to a random shorter length; None for the objective's own."""
    passes: int = 1
    """How often the corpus is written, each time with other pairs. (Masks are drawn in training.)"""
    seed: int = 0
    """Of pairs, splits and short rows."""

    # --- files
    examples_per_shard: int = 8192
    """Examples in each file; the last may have fewer."""
    block_megabytes: float = 8.0
    """Million characters that become examples together. The other document of a pair is one of the same
    block, and each worker needs memory for its block."""

    def __post_init__(self):
        check_field_types(self)
        for name in ("processes", "passes", "examples_per_shard"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {getattr(self, name)}.")
        if not self.block_megabytes > 0:
            raise ValueError(f"`block_megabytes` must be positive. Received: {self.block_megabytes}.")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"`seed` must lie in [0, 2**32). Received: {self.seed}.")

    def documents(self, split):
        """The documents of a split, "train" or "held_out"."""
        return open_corpus(
            self.corpus,
            split,
            self.text_layout,
            self.tfds_split,
            self.text_field,
            self.held_out_every,
        )


# What may differ when a build goes on; tokenizers are compared by what they do.
FREE_FIELDS = {"output", "processes", "tokenizer"}


def build_records(recipe):
    """Writes the records of both splits below `recipe.output`; goes on where it was interrupted.

    Returns:
        {"train": Manifest, "held_out": Manifest}

    Raises:
        ValueError: When settings or text are not fit for it, or the directory holds records of other
            settings.
        OSError: When the disk is full, or a worker died; finished shards stay.
    """
    tokenizer = _prepare_tokenizer(recipe)
    # refuses at once what no text could suit: later, an error is one about a block's text
    toy = Corpus(np.ones(4, "int32"), np.arange(5), np.array([0, 2, 4]), characters=4)
    make_objective(recipe.objective, toy, tokenizer, recipe.max_length, recipe.short_rate)
    with _workers(ExampleMaker(recipe, tokenizer), recipe.processes) as make:
        return {split: _build_split(recipe, split, tokenizer, make) for split in SPLITS}


def document_blocks(documents, characters):
    """Groups documents into blocks, lists of them.

    A block ends with the document that brings it to `characters`, but has at least two: a pair may need
    another. What is left at the end joins the block before when it is one document, or less than half a
    block. With characters = 4:

        ab cde f gh ijkl m  ->  [ab cde] [f gh ijkl m]
    """
    before, block, size = [], [], 0
    for document in documents:
        block.append(document)
        size += len(document)
        if size >= characters and len(block) > 1:
            if before:
                yield before
            before, block, size = block, [], 0
    if len(block) < 2 or size < characters / 2:
        before, block = before + block, []
    yield from filter(None, (before, block))


@dataclasses.dataclass
class Job:
    """A block of documents: number `block` of pass number `pass_index` over the corpus."""

    pass_index: int
    block: int
    text_crc32: int  # of the text of the pass, up to the end of this block
    documents: list


@dataclasses.dataclass
class Made:
    """What came of a job."""

    block: tuple  # the arguments of RecordWriter.begin_block
    records: list = dataclasses.field(default_factory=list)
    lengths: list = dataclasses.field(default_factory=list)  # tokens in the row of each
    reason: str = ""  # why there are none


class ExampleMaker:
    """Makes the records of a Job. It can be pickled: the tokenizer is built anew where it arrives.

    Args:
        recipe: A RecordRecipe.
        tokenizer: The tokenizer.
    """

    def __init__(self, recipe, tokenizer):
        self.recipe = recipe
        self.tokenizer = tokenizer

    def __reduce__(self):
        return _remake, (self.recipe, type(self.tokenizer), self.tokenizer.get_config())

    def __call__(self, job):
        """The Made of a Job."""
        with tf.device("CPU"):
            return self._make(job)

    def _make(self, job):
        recipe, documents = self.recipe, len(job.documents)
        number = job.pass_index, job.block, job.text_crc32
        counts = {"documents": documents, "documents_left_out": documents}
        words = 0
        try:
            split = sentence_splitter(recipe.corpus, recipe.text_layout)
            corpus = build_corpus(job.documents, self.tokenizer, split)
            counts |= {name: getattr(corpus, name) for name in ("sentences", "characters")}
            counts["tokens"] = len(corpus.tokens)
            words = np.bincount(corpus.tokens, minlength=self.tokenizer.vocabulary_size)
            objective = make_objective(
                recipe.objective, corpus, self.tokenizer, recipe.max_length, recipe.short_rate
            )
        except ValueError as error:  # too little text for an example
            return Made((*number, counts, words), reason=str(error))
        without_tokens = documents - corpus.documents
        counts["documents_left_out"] = without_tokens + objective.documents_left_out
        chunks = tf.range(len(objective), dtype=tf.int64)
        # A corpus of one block has the examples of PretrainingData, epoch for pass.
        keys = fold(recipe.seed + job.block, job.pass_index, chunks)
        a, b, labels = objective.segments(keys, chunks)
        tokens = objective.tokens.numpy()
        columns = [_cut(tokens, *a)]
        if b is not None:
            columns += [_cut(tokens, *b), labels.numpy().tolist()]
        lengths = a[1] + (0 if b is None else b[1]) + objective.special_tokens
        records = [serialize_example(*row) for row in zip(*columns, strict=True)]
        return Made((*number, counts, words), records, lengths.numpy().tolist())


def _remake(recipe, tokenizer_class, config):
    return ExampleMaker(recipe, tokenizer_class.from_config(config))


def _cut(tokens, starts, lengths):
    """Yields the tokens of each segment as a list."""
    for start, length in zip(starts.numpy().tolist(), lengths.numpy().tolist(), strict=True):
        yield tokens[start : start + length].tolist()


def _prepare_tokenizer(recipe):
    """The tokenizer in the output directory, which is put there unless something is built already."""
    try:
        tf.io.gfile.makedirs(recipe.output)
    except tf.errors.OpError as error:
        raise ValueError(
            "`output` must be a directory that can be written to. "
            f"Received: {recipe.output} ({error.message})."
        ) from error
    given = None if recipe.tokenizer is None else load_tokenizer(recipe.tokenizer)
    is_begun = any(
        tf.io.gfile.exists(tf.io.gfile.join(recipe.output, split, name))
        for split in SPLITS
        for name in (MANIFEST, PROGRESS)
    )
    if not is_begun:
        if given is None:
            print(f"Training a vocabulary of {recipe.vocab_size:,} entries ...", flush=True)
            pieces = train_vocabulary(recipe.documents("train"), recipe.vocab_size, recipe.lowercase)
            given = WordPieceTokenizer(pieces, lowercase=recipe.lowercase)
        given.save_pretrained(recipe.output)
    tokenizer = load_tokenizer(recipe.output)
    if given is not None:
        changed = differences(describe_tokenizer(tokenizer), describe_tokenizer(given))
        if changed:
            raise ValueError(
                "Records must be built with the tokenizer that they were begun with. "
                f"Received for {recipe.output}: {changed}. Choose another --output, or remove this one."
            )
    return tokenizer


def _build_split(recipe, split, tokenizer, make):
    """Writes the records of one split; their Manifest.

    Args:
        make: Of `_workers`.
    """
    settings = dataclasses.asdict(recipe)
    settings = {name: settings[name] for name in settings if name not in FREE_FIELDS}
    writer = RecordWriter(
        tf.io.gfile.join(recipe.output, split),
        {**settings, "split": split},
        describe_tokenizer(tokenizer),
        tokenizer.vocabulary_size,
        recipe.examples_per_shard,
    )
    manifest = writer.manifest
    if not writer.is_finished:
        reason = "It has no documents."
        report = _Report(split, manifest)
        is_begun = writer.blocks > 0  # and counted: the first block to come
        for made in make(_jobs(recipe, split, writer)):
            rows = zip(made.records, made.lengths, strict=True)
            if is_begun:
                rows = itertools.islice(rows, writer.written, None)
            else:
                writer.begin_block(*made.block)
            is_begun = False
            for row in rows:
                writer.write(*row)
                report.show()
            reason = made.reason or reason
        if not manifest.row_tokens:
            raise ValueError(
                f"The {split} split of {recipe.corpus} must have text for an example. "
                f"Received: {reason} (One document in {recipe.held_out_every} of a corpus of your own "
                "is held out: see --held-out-every.)"
            )
        writer.finish()
        report.end()
    print(
        f"{writer.directory}: {manifest.examples:,} examples in {len(manifest.shards):,} shards, "
        f"{manifest.row_tokens:,} tokens in rows, of {manifest.documents:,} documents, "
        f"{manifest.characters:,} characters, {manifest.tokens:,} tokens; "
        f"{manifest.documents_left_out:,} documents left out",
        flush=True,
    )
    return manifest


def _jobs(recipe, split, writer):
    """Yields the jobs that are left, from the last one on that has examples in finished shards."""
    first_pass, done, expected = writer.pass_index, max(writer.blocks - 1, 0), writer.text_crc32
    whole = writer.manifest.text_crc32 if first_pass else None
    is_resumed, characters = writer.blocks > 0, int(recipe.block_megabytes * 1e6)
    for pass_index in range(first_pass, recipe.passes):
        crc, block = 0, -1
        for block, documents in enumerate(document_blocks(recipe.documents(split), characters)):
            for document in documents:
                crc = zlib.crc32(document.encode(), crc)
            if is_resumed and block < done:
                continue
            if is_resumed and crc != expected:
                break
            is_resumed = False
            yield Job(pass_index, block, crc, documents)
        whole = crc if whole is None else whole
        if is_resumed or crc != whole:
            raise ValueError(
                "The text must stay the same for the whole build. Received: other text in "
                f"{recipe.corpus} than before. Choose another --output, or remove {writer.directory}."
            )


@contextlib.contextmanager
def _workers(maker, processes):
    """The function that yields what the maker makes of each of some jobs, in their order."""
    if processes == 1:
        yield lambda jobs: map(maker, jobs)
        return
    pool = concurrent.futures.ProcessPoolExecutor(
        processes,
        multiprocessing.get_context("spawn"),  # TensorFlow does not survive a fork
        initializer=_start_worker,
        initargs=(pickle.dumps(maker),),
    )

    def make(jobs):
        waiting = collections.deque()
        for job in jobs:
            waiting.append(pool.submit(_work, job))
            if len(waiting) > processes:  # so that none is idle while the first is written
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    try:
        yield make
    except concurrent.futures.process.BrokenProcessPool as error:
        raise ChildProcessError(
            f"All {processes} workers must stay alive. Received: the loss of one, for want of memory "
            "perhaps; then give fewer --processes. Finished shards are kept: the same command goes on."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(maker):
    """Makes a process a worker of one thread."""
    global _work_maker
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.set_visible_devices([], "GPU")  # they are for training
    _work_maker = pickle.loads(maker)


def _work(job):
    return _work_maker(job)


def _end_with_the_parent():
    """Otherwise the workers of a build that was killed would wait for work for ever."""
    multiprocessing.parent_process().join()
    os._exit(1)


class _Report:
    """A line about how far it is, renewed on a terminal and repeated in a log file."""

    def __init__(self, split, manifest):
        self.split, self.manifest = split, manifest
        self.start = self.shown = time.monotonic()
        self.every = 0.5 if sys.stdout.isatty() else _REPORT_EVERY

    def show(self):
        """Shows the line, if it is time to."""
        now = time.monotonic()
        if now - self.shown < self.every:
            return
        self.shown = now
        manifest, seconds = self.manifest, now - self.start
        megabytes = manifest.characters / 1e6
        line = (
            f"{self.split}: {megabytes:,.1f} million characters, {len(manifest.shards):,} shards, "
            f"{manifest.row_tokens:,} tokens in rows, {seconds:,.0f} s"
        )
        print(line, end="\r" if sys.stdout.isatty() else "\n", flush=True)

    def end(self):
        """Leaves the line on the terminal."""
        if sys.stdout.isatty():
            print()
