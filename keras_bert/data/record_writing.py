"""Writing record files so that they can be gone on with after any interruption.

Each shard appears under its name when it is whole; after it, progress.json says where the next one
begins. What was being written when the build was killed is written again, with the same bytes.
"""

import contextlib
import dataclasses
import json
import zlib

import numpy as np
import tensorflow as tf

from keras_bert.data.records import (
    MANIFEST,
    PROGRESS,
    WORD_COUNTS,
    Manifest,
    differences,
    shard_path,
)
from keras_bert.files import read_text, write_atomically


class RecordWriter:
    """Writes the records of a directory, block by block of the corpus.

    Args:
        directory: Where to.
        settings, tokenizer: As the manifest shall have them; those of files that are there must be the
            same.
        vocabulary_size: Of the tokenizer.
        examples_per_shard: Examples in a file.

    Attributes:
        manifest: The Manifest of what is written so far.
        is_finished: Whether the directory was finished before.
        pass_index, blocks, written: Where the finished shards end: the pass over the corpus, how many
            of its blocks are begun, and how many examples of the last of these are in the shards.
        text_crc32: Of the text of that pass, up to the end of that block.

    Raises:
        ValueError: When the directory holds records of other settings.
    """

    def __init__(self, directory, settings, tokenizer, vocabulary_size, examples_per_shard):
        self.directory = directory
        self.examples_per_shard = examples_per_shard
        self.manifest = Manifest(settings, tokenizer)
        self.pass_index = self.blocks = self.written = self.text_crc32 = 0
        self._words = np.zeros(vocabulary_size, "int64")
        self._file = None
        self.is_finished = tf.io.gfile.exists(self._path(MANIFEST))
        if self.is_finished:
            self._check(Manifest.read(directory))
            self._remove_progress()  # of a build that was killed right before it would
        elif tf.io.gfile.exists(self._path(PROGRESS)):
            state = json.loads(read_text(self._path(PROGRESS)))
            self._check(Manifest(**state["manifest"]))
            self._words = np.array(state["words"], "int64")
            self.pass_index, self.blocks, self.written, self.text_crc32 = state["next"]
        else:
            tf.io.gfile.makedirs(directory)

    def begin_block(self, pass_index, block, text_crc32, counts, words):
        """Counts a block of documents, whose examples are then written.

        Args:
            pass_index, block: Its number, as in `pass_index` and `blocks`.
            text_crc32: Of the text of the pass, up to the end of this block.
            counts: What it adds to counts of the manifest, a dict.
            words: (V,) how often it has each entry of the vocabulary.
        """
        if pass_index == 0:
            for name, count in counts.items():
                setattr(self.manifest, name, getattr(self.manifest, name) + count)
            self._words = self._words + words
            self.manifest.text_crc32 = text_crc32
        self.pass_index, self.blocks, self.written = pass_index, block + 1, 0
        self.text_crc32 = text_crc32

    def write(self, record, length):
        """Adds an example of the block, whose row has `length` tokens."""
        with self._tidy():
            if self._file is None:
                path = shard_path(self.directory, len(self.manifest.shards))
                self._file, self._examples, self._crc32 = tf.io.TFRecordWriter(f"{path}.draft"), 0, 0
            self._file.write(record)
        self._examples += 1
        self._crc32 = zlib.crc32(record, self._crc32)
        self.manifest.row_tokens += length
        self.written += 1
        if self._examples == self.examples_per_shard:
            self._end_shard()

    def finish(self):
        """Ends the last shard and writes the manifest."""
        if self._file is not None:
            self._end_shard()
        with self._tidy():
            write_atomically(self._path(WORD_COUNTS), json.dumps(self._words.tolist()) + "\n")
            self.manifest.write(self.directory)
        self._remove_progress()

    def _remove_progress(self):
        if tf.io.gfile.exists(self._path(PROGRESS)):
            tf.io.gfile.remove(self._path(PROGRESS))

    def _end_shard(self):
        path = shard_path(self.directory, len(self.manifest.shards))
        with self._tidy():
            self._file.close()
            shard = {"examples": self._examples, "crc32": self._crc32}
            shard["bytes"] = tf.io.gfile.stat(f"{path}.draft").length
            tf.io.gfile.rename(f"{path}.draft", path, overwrite=True)
            self._file = None
            self.manifest.shards.append(shard)
            state = {
                "manifest": dataclasses.asdict(self.manifest),
                "words": self._words.tolist(),
                "next": [self.pass_index, self.blocks, self.written, self.text_crc32],
            }
            write_atomically(self._path(PROGRESS), json.dumps(state))

    @contextlib.contextmanager
    def _tidy(self):
        """Removes the file that cannot be ended, and says so where the disk is full."""
        try:
            yield
        except tf.errors.OpError as error:
            draft = f"{shard_path(self.directory, len(self.manifest.shards))}.draft"
            with contextlib.suppress(tf.errors.OpError):  # the disk is what it is
                if self._file is not None:
                    self._file.close()
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.remove(draft)
            if not isinstance(error, tf.errors.ResourceExhaustedError):
                raise
            raise OSError(
                f"The disk of {self.directory} must have room for the records. Received: "
                f"{error.message}. Finished shards are kept: with more room, the same command goes on."
            ) from error

    def _check(self, before):
        """Goes on with the manifest of the directory, if it is of the same settings."""
        changed = [
            differences(getattr(before, part), getattr(self.manifest, part))
            for part in ("settings", "tokenizer")
        ]
        if any(changed):
            raise ValueError(
                "Records must be built with the settings that they were begun with. Received in "
                f"{self.directory}: {', '.join(filter(None, changed))}. Choose another --output, or "
                "remove this one."
            )
        self.manifest = before

    def _path(self, name):
        return tf.io.gfile.join(self.directory, name)
