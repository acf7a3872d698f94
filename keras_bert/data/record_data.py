"""Pretraining batches from record files, as a pure function of (seed, step)."""

import concurrent.futures
import json
import os
import zlib

import numpy as np
import tensorflow as tf

from keras_bert.data.batches import (
    describe_examples,
    in_background,
    masked_batch,
    resolve_predictions,
    training_positions,
    weigh_rows,
)
from keras_bert.data.objectives import OBJECTIVES
from keras_bert.data.records import (
    WORD_COUNTS,
    Manifest,
    describe_tokenizer,
    differences,
    parse_examples,
    shard_path,
)
from keras_bert.files import read_text
from keras_bert.hashing import fold

# Streams of random numbers that share an example's key; masks are drawn as PretrainingData draws them.
_MASKING, _ORDER, _SHARD_ORDER = 0, 7, 8
_READERS = 4  # shards read at a time: waiting for remote files should not add up


class RecordData:
    """Examples from the files of `build_records`, for a masked LM and its sentence objective.

    An epoch meets each example once: the shards in a random order, `block_shards` of them at a time
    as a block; the examples of a block in a random order. Epochs follow each other without a seam, so
    that a batch may hold the end of one and the start of the next. Order and masks are hashes of
    (seed, epoch, shard or example): the batch of a step is the same on every machine and for any number
    of replicas, and a start at any step reads no more than the block it falls into. Each input pipeline
    reads all blocks, and parses its own rows; there may be fewer shards than pipelines.

    A shard holds neighbours of the corpus. So a batch draws from `block_shards` random places of the
    corpus: more make batches more alike, 1 may fill one from a single book. Memory holds a few copies
    of a block, 1.2 kB in all for each of its examples of 128 tokens, on each host.

    Args:
        directory: The directory of a split, as `build_records` leaves it; may be remote (`gs://...`).
        tokenizer: The tokenizer of the records.
        objective: That of the records, to be sure of it; None for whichever it is.
        max_length: Tokens T in a row; alike.
        max_predictions, masking_rate, masking, type_vocab_size: As in PretrainingData.
        seed: Any integer, of which the low 32 bits count; another one gives another order and other
            masks.
        block_shards: Shards S in a block.

    Raises:
        ValueError: When the records are not finished, of another tokenizer or other settings, or files
            are missing or not as long as they were.
    """

    def __init__(
        self,
        directory,
        tokenizer,
        objective=None,
        max_length=None,
        max_predictions=None,
        masking_rate=0.15,
        masking="token",
        seed=0,
        type_vocab_size=2,
        block_shards=8,
    ):
        directory = os.fspath(directory)
        manifest = Manifest.read(directory)
        _check(directory, manifest, tokenizer, objective, max_length)
        if block_shards < 1:
            raise ValueError(f"`block_shards` must be at least 1. Received: {block_shards}.")
        kind = OBJECTIVES[manifest.settings["objective"]]
        self._is_pair = kind.segments_in_row == 2
        self.directory = directory
        self.manifest = manifest
        self.tokenizer = tokenizer
        self.max_length = manifest.settings["max_length"]
        special = 2 + (tokenizer.pair_separators if self._is_pair else 0)
        self.max_predictions = resolve_predictions(
            max_predictions, masking_rate, masking, self.max_length, special
        )
        self.masking_rate = masking_rate
        self.masking = masking
        self.seed = seed
        self.type_vocab_size = type_vocab_size
        self.block_shards = block_shards
        self.characters_per_token = manifest.characters / manifest.tokens
        self.documents_left_out = manifest.documents_left_out
        self._paths = [shard_path(directory, number) for number in range(len(manifest.shards))]
        _check_sizes(self._paths, [shard["bytes"] for shard in manifest.shards])
        self._sizes = np.array([shard["examples"] for shard in manifest.shards], "int64")
        self._starts = np.cumsum(self._sizes) - self._sizes

    def __len__(self):
        """Examples in an epoch."""
        return self.manifest.examples

    def training_batches(self, batch_size, start_step=0, context=None):
        """Endless shuffled batches, from that of `start_step` on: each epoch meets each example once.

        Args:
            batch_size: Rows in the global batch.
            start_step: Step of the first batch.
            context: The tf.distribute.InputContext of the input pipeline, which then yields batches for
                its replicas, one after the other; None for a single replica.
        """
        first, skipped = self._locate(start_step * batch_size)

        def read(block):
            epoch, shards, numbers, order = self._arrange(block)
            order = order[tf.where(block == first, skipped, 0) :]
            records = tf.gather(self._read_block(shards), order)
            return records, tf.fill(tf.shape(order), epoch), tf.gather(numbers, order)

        # Endless enough, and unlike a counter a tf.data service knows how to share it out.
        blocks = tf.data.Dataset.range(first, tf.int64.max)
        rows = blocks.map(read).prefetch(1).unbatch()  # one block is read while another is used
        batches = in_background(_shared(rows, batch_size, start_step, context), self._examples)
        return batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))

    def evaluation_batches(self, batch_size, examples=None, context=None):
        """A fixed number of examples, always the same; rows that fill up the last batch weigh 0.

        Args:
            batch_size: Rows in the global batch.
            examples: None for each one once. Of fewer, each shard gives the same share, its first ones;
                more go over the records again, with other masks.
            context: As in `training_batches`; each input pipeline has the same number of batches.
        """
        count = len(self) if examples is None else examples
        if count < 1:
            raise ValueError(f"`examples` must be at least 1. Received: {examples}.")
        whole, rest = divmod(count, len(self))
        ends = np.concatenate([[0], self._starts + self._sizes]) * rest // len(self)
        takes = np.concatenate([np.tile(self._sizes, whole), np.diff(ends)])
        epochs, shards = np.divmod(np.flatnonzero(takes), len(self._sizes))
        visits = tf.data.Dataset.from_tensor_slices((takes[takes > 0], epochs, shards))

        def read(take, epoch, shard):
            records = _read_shard(tf.gather(self._paths, shard), take)
            return records, tf.fill([take], epoch), tf.gather(self._starts, shard) + tf.range(take)

        def weighed(places, *rows):
            return weigh_rows(self._examples(*rows), tf.cast(places < count, tf.float32))

        rows = visits.map(read).prefetch(1).unbatch()
        batches = _shared(rows.repeat(), batch_size, 0, context, with_places=True)
        size = -(-count // batch_size) * _replicas(context)
        return in_background(batches.take(size), weighed).apply(
            tf.data.experimental.assert_cardinality(size)
        )

    def describe(self, step, batch_size):
        """Names the examples in the global batch of a step by their numbers in the manifest's order."""
        block, skipped = self._locate(step * batch_size)
        epochs, numbers, missing = [], [], batch_size
        while missing:
            epoch, _, listed, order = self._arrange(tf.constant(block, tf.int64))
            taken = listed.numpy()[order.numpy()][skipped : skipped + missing]
            epochs += [int(epoch)] * len(taken)
            numbers += taken.tolist()
            block, skipped, missing = block + 1, 0, missing - len(taken)
        return describe_examples(np.array(epochs), np.array(numbers))

    def fingerprint(self):
        """A number that changes with the records and the vocabulary."""
        manifest = self.manifest
        content = [manifest.shards, manifest.tokenizer, manifest.settings["objective"], self.max_length]
        return zlib.crc32(json.dumps(content, sort_keys=True).encode())

    def word_counts(self):
        """How often each entry of the vocabulary occurs in the corpus, (V,)."""
        return np.array(json.loads(read_text(tf.io.gfile.join(self.directory, WORD_COUNTS))), "int64")

    def fill_rate(self):
        """Share of slots that hold real tokens."""
        return self.manifest.row_tokens / (len(self) * self.max_length)

    @property
    def _blocks(self):
        """Blocks in an epoch; the last may have fewer shards."""
        return -(-len(self._sizes) // self.block_shards)

    def _arrange(self, block):
        """What is in a block of the endless stream.

        Shapes (S or fewer shards, M examples):
            block    ()  int64
            returns  epoch () int64; shards (S,), their numbers; numbers (M,) int64, of the examples as
                     they lie in the shards; order (M,), where to find the examples in training order
        """
        epoch, index = block // self._blocks, block % self._blocks
        shards = self._shard_order(epoch)
        shards = shards[index * self.block_shards : (index + 1) * self.block_shards]
        starts, sizes = tf.gather(self._starts, shards), tf.gather(self._sizes, shards)
        numbers = tf.ragged.range(starts, starts + sizes).values
        return epoch, shards, numbers, tf.argsort(fold(self.seed, epoch, numbers, _ORDER))

    def _shard_order(self, epoch):
        return tf.argsort(fold(self.seed, epoch, tf.range(len(self._sizes)), _SHARD_ORDER))

    def _locate(self, place):
        """The block that has a place of the endless stream, and how many of its examples lie before."""
        epoch, place = divmod(place, len(self))
        sizes = self._sizes[self._shard_order(epoch).numpy()]
        ends = np.cumsum(np.add.reduceat(sizes, np.arange(0, len(sizes), self.block_shards)))
        block = int(np.searchsorted(ends, place, side="right"))
        return epoch * self._blocks + block, place - int(ends[block - 1] if block else 0)

    def _read_block(self, shards):
        """The records of some shards, in their order, (M,) strings."""
        paths, sizes = tf.gather(self._paths, shards), tf.gather(self._sizes, shards)
        files = tf.data.Dataset.from_tensor_slices((paths, sizes))
        records = files.map(_read_shard, num_parallel_calls=_READERS).unbatch()
        return records.batch(tf.reduce_sum(sizes)).get_single_element()

    def _examples(self, records, epochs, numbers):
        """Some examples as they are in some epochs: a graph function.

        Shapes (B rows):
            records          (B,)  string
            epochs, numbers  (B,)  int64
            returns          (x, y, sample_weight) for a BertPretrainer
        """
        return masked_batch(
            *parse_examples(records, self._is_pair),
            fold(fold(self.seed, epochs, numbers), _MASKING),
            tokenizer=self.tokenizer,
            max_length=self.max_length,
            max_predictions=self.max_predictions,
            masking_rate=self.masking_rate,
            masking=self.masking,
            type_vocab_size=self.type_vocab_size,
        )


def _read_shard(path, count):
    """The first `count` records of a shard, (count,) strings: a graph function.

    TensorFlow does not say in which file it met a broken record. So the shard ends there without an
    error, and is named for having too few. Whether the file can be opened, which does name it, is tried
    before: that error would be passed over again and again.
    """
    opened = tf.data.FixedLengthRecordDataset(path, 1, buffer_size=1).take(1).get_single_element()
    with tf.control_dependencies([opened]):
        records = tf.data.TFRecordDataset(tf.identity(path)).ignore_errors().take(count)
    # an empty one behind them, because a dataset without an element has no single one
    records = records.concatenate(tf.data.Dataset.from_tensors("")).batch(count + 1)
    records = records.get_single_element()[:-1]
    found = tf.size(records, tf.int64)
    whole = tf.debugging.Assert(
        found == count,
        ["Every shard must be as it was built. Received:", path, "whose record", found, "is broken."],
        summarize=1,
    )
    with tf.control_dependencies([whole]):
        return tf.identity(records)


def _shared(rows, batch_size, start_step, context, with_places=False):
    """Batches of the rows that each replica of an input pipeline takes of each global batch.

    Args:
        rows: Dataset of the rows of all global batches from `start_step` on, one by one.
        with_places: Whether to yield, in front, the places of the rows in the endless stream.
    """
    places = training_positions(batch_size, start_step, context)
    batches = rows.batch(batch_size, drop_remainder=True)
    if context is None and not with_places:
        return batches
    replicas = _replicas(context)
    batches = batches.flat_map(lambda *batch: tf.data.Dataset.from_tensors(batch).repeat(replicas))

    def take(places, batch):
        taken = tuple(tf.gather(column, places % batch_size) for column in batch)
        return (places, *taken) if with_places else taken

    return tf.data.Dataset.zip(places, batches).map(take)


def _replicas(context):
    """Replicas of one input pipeline."""
    return 1 if context is None else context.num_replicas_in_sync // context.num_input_pipelines


def _check(directory, manifest, tokenizer, objective, max_length):
    changed = differences(manifest.tokenizer, describe_tokenizer(tokenizer))
    if changed:
        raise ValueError(
            f"`tokenizer` must be the one that the records in {directory} were built with. "
            f"Received: {changed}."
        )
    for name, value in (("objective", objective), ("max_length", max_length)):
        if value not in (None, manifest.settings[name]):
            raise ValueError(
                f"`{name}` must be that of the records in {directory}, {manifest.settings[name]!r}. "
                f"Received: {value!r}."
            )


def _check_sizes(paths, sizes):
    """Refuses shards that are missing, cut or grown; their content is checked as they are read."""

    def found(path):
        return tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else None

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for path, size, expected in zip(paths, pool.map(found, paths), sizes, strict=True):
            if size != expected:
                state = "which is missing" if size is None else f"of {size:,} bytes"
                raise ValueError(
                    f"Every shard must be as it was built, here {expected:,} bytes. "
                    f"Received: {path}, {state}."
                )
