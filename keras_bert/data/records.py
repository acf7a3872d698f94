"""The form of record files: examples of any number on disk, and the manifest that tells what they are.

    records/train/     shard-00000.tfrecord  shard-00001.tfrecord ...  word_counts.json  manifest.json
    records/held_out/  the same

A record is an example without masks, a serialized tf.train.Example of the tokens of its segments,
without special tokens around them:

    a      int64 list
    b      int64 list, where the objective has pairs
    label  int64, where it has pairs: 0 for segments that are in order, 1 else

All shards hold the same number of examples, but the last, which may hold fewer. A directory without a
manifest is not finished.
"""

import dataclasses
import hashlib
import json

import tensorflow as tf

from keras_bert.files import read_json, write_atomically

MANIFEST, WORD_COUNTS, PROGRESS = "manifest.json", "word_counts.json", "progress.json"
_SHORT = 200  # characters of a tokenizer's setting that the manifest shows as it is


@dataclasses.dataclass
class Manifest:
    """What a directory of records holds, and how it was made.

    Attributes:
        settings: What decides about the records, by the names of RecordRecipe.
        tokenizer: What `describe_tokenizer` says of it.
        documents, sentences, tokens, characters: Of the corpus, read once.
        documents_left_out: How many of its documents have no example: they are too short.
        row_tokens: Tokens in the rows of all examples, special ones included.
        text_crc32: Of the text.
        shards: A dict of examples, bytes and crc32 (of the records) for each shard.
    """

    settings: dict
    tokenizer: dict
    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    characters: int = 0
    documents_left_out: int = 0
    row_tokens: int = 0
    text_crc32: int = 0
    shards: list = dataclasses.field(default_factory=list)

    @property
    def examples(self):
        """How many examples there are."""
        return sum(shard["examples"] for shard in self.shards)

    @classmethod
    def read(cls, directory):
        """The manifest of a directory of records.

        Raises:
            ValueError: When there is none, or one of another form.
        """
        path = tf.io.gfile.join(directory, MANIFEST)
        if not tf.io.gfile.exists(path):
            is_begun = tf.io.gfile.exists(tf.io.gfile.join(directory, PROGRESS))
            state = "whose build is not finished: run it again" if is_begun else f"without {MANIFEST}"
            raise ValueError(f"Records must be a finished directory. Received: {directory}, {state}.")
        content, names = read_json(path), {field.name for field in dataclasses.fields(cls)}
        if content.keys() != names:
            raise ValueError(
                f"A manifest must have the fields of this version. Received: {path}, which differs in "
                f"{', '.join(sorted(content.keys() ^ names))}. Build the records again."
            )
        return cls(**content)

    def write(self, directory):
        """Writes the manifest, at once."""
        content = json.dumps(dataclasses.asdict(self), indent=1) + "\n"
        write_atomically(tf.io.gfile.join(directory, MANIFEST), content)


def shard_path(directory, number):
    """Where shard `number` of a directory lies."""
    return tf.io.gfile.join(directory, f"shard-{number:05d}.tfrecord")


def describe_tokenizer(tokenizer):
    """What tells tokenizers apart: class, settings (long ones hashed), and a hash of the vocabulary."""
    return {
        "class": type(tokenizer).__name__,
        "config": {name: _shortened(value) for name, value in tokenizer.get_config().items()},
        "vocabulary_size": tokenizer.vocabulary_size,
        "vocabulary": _hash(json.dumps(tokenizer.vocabulary)),
    }


def differences(before, now):
    """The names under which two dicts differ, with both values: "seed was 1, is 2, ..."."""
    return ", ".join(
        f"{name} was {before.get(name)!r}, is {now.get(name)!r}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    )


def serialize_example(a, b=None, label=None):
    """A record of the tokens of one or two segments.

    Args:
        a, b: Lists of int; b = None for a single segment.
        label: 0 or 1, with a `b`.
    """
    features = {"a": a} if b is None else {"a": a, "b": b, "label": [label]}
    example = tf.train.Example()
    for name, values in features.items():
        example.features.feature[name].int64_list.value.extend(values)
    return example.SerializeToString(deterministic=True)


def parse_examples(records, is_pair):
    """The segments of records, as `masked_batch` takes them: a graph function.

    Shapes (B records, N tokens of all of them):
        records  (B,)  string
        returns  tokens  (N,)  int32
                 a, b    each two of (B,) int64: where the segments begin in `tokens`, and their
                         lengths; b = None for single segments
                 labels  (B,)  int32, or None

    Args:
        is_pair: Whether there are two segments and a label.
    """
    names = ["a", "b"] if is_pair else ["a"]
    spec = {name: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64) for name in names}
    if is_pair:
        spec["label"] = tf.io.FixedLenFeature((), tf.int64)
    parsed = tf.io.parse_example(records, spec)
    tokens = tf.cast(tf.concat([parsed[name].values for name in names], axis=0), tf.int32)
    segments, behind = [], tf.constant(0, tf.int64)
    for name in names:
        rows = parsed[name]
        starts, lengths = rows.row_starts() + behind, rows.row_lengths()
        segments.append(tuple(tf.ensure_shape(x, records.shape) for x in (starts, lengths)))
        behind += tf.size(rows.values, tf.int64)
    if not is_pair:
        return tokens, segments[0], None, None
    return tokens, *segments, tf.cast(parsed["label"], tf.int32)


def _shortened(value):
    text = json.dumps(value, sort_keys=True)
    return value if len(text) <= _SHORT else _hash(text)


def _hash(text):
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
