"""Where documents come from: text files, JSON lines, TensorFlow Datasets, the built-in corpus.

A document is a string whose paragraphs are separated by blank lines. Sources are generators: text is
read while documents are taken, from local disks and from `gs://` alike.
"""

import gzip
import itertools
import json
import os
import zlib
from typing import Literal, get_args

import tensorflow as tf

from keras_bert.data.builtin import builtin_documents
from keras_bert.text.sentences import split_lines, split_sentences

TextLayout = Literal["file", "blank_line", "sentence_per_line"]

_SUFFIXES = (".txt", ".txt.gz")
_JSONL_SUFFIXES = (".jsonl", ".jsonl.gz")
_TFDS, _JSONL = "tfds:", "jsonl:"


def open_corpus(name, split="train", layout="file", tfds_split="train", field=None, held_out_every=33):
    """Yields the documents of a corpus by the name that recipes give it.

    Args:
        name: "builtin", "tfds:NAME", "jsonl:PATTERN", or the pattern of text files.
        split: "train" or "held_out".
        layout: How text files hold documents, as in `text_documents`.
        tfds_split: Split of a TFDS corpus.
        field: The text feature of a TFDS corpus, None for the only one; the text field of JSON lines,
            None for "text".
        held_out_every: Each document whose number is a multiple of this is held out; the built-in
            corpus has a split of its own.
    """
    if name == "builtin":
        return builtin_documents(split)
    if name.startswith(_TFDS):
        documents = tfds_documents(name.removeprefix(_TFDS), tfds_split, field)
    elif name.startswith(_JSONL):
        documents = jsonl_documents(name.removeprefix(_JSONL), field or "text")
    else:
        documents = text_documents(name, layout)
    return hold_out(documents, held_out_every, split)


def sentence_splitter(name, layout="file"):
    """The graph function that splits the documents of `open_corpus` into sentences."""
    is_by_line = name != "builtin" and layout == "sentence_per_line"
    return split_lines if is_by_line else split_sentences


def text_documents(pattern, layout="file"):
    """Yields the documents of text files in UTF-8, in the order of the files' names.

    Args:
        pattern: A file, a folder (all files below it that end in .txt or .txt.gz) or a glob; files
            that end in .gz are unpacked as they are read.
        layout: "file": each file is a document. "blank_line": blank lines end a document.
            "sentence_per_line": so they do, and each line is a sentence; to be split by
            `split_lines`, not by `split_sentences`. All but the first hold one document at a time.
    """
    if layout not in get_args(TextLayout):
        raise ValueError(
            f"`layout` must be one of {', '.join(get_args(TextLayout))}. Received: {layout!r}."
        )
    return _text_documents(pattern, _files(os.fspath(pattern), _SUFFIXES), layout)


def jsonl_documents(pattern, field="text"):
    """Yields a field of each line of files that hold a JSON object a line, in UTF-8.

    Halves of surrogate pairs, which are no characters, are left out.

    Args:
        pattern: A file, a folder (all files below it that end in .jsonl or .jsonl.gz) or a glob; files
            that end in .gz are unpacked as they are read.
        field: The name under which an object has its text.
    """
    return _jsonl_documents(pattern, _files(os.fspath(pattern), _JSONL_SUFFIXES), field)


def tfds_documents(name, split="train", field=None, data_dir=None):
    """Yields the texts of a dataset of TensorFlow Datasets, which is downloaded when it is absent.

    Args:
        name: A name with or without configuration and version ("wikipedia/20230601.en"), or the
            directory of a prepared dataset.
        split: A split or a slice of one, "train[:10%]".
        field: The text feature; may be left out where there is only one.
        data_dir: Where datasets are kept, if not in TFDS's own place.
    """
    import tensorflow_datasets as tfds  # takes seconds

    builder = tfds_builder(name, data_dir)
    features = builder.info.features.items()
    texts = sorted(key for key, feature in features if isinstance(feature, tfds.features.Text))
    if field is None and len(texts) == 1:
        field = texts[0]
    if field not in texts:
        raise ValueError(
            f"`field` must be a text feature of {builder.info.full_name}, one of: "
            f"{', '.join(texts) or 'none, it has no text'}. Received: {field!r}."
        )
    builder.download_and_prepare()
    dataset = builder.as_dataset(split=split, shuffle_files=False).map(lambda example: example[field])
    return (text.decode("utf-8") for text in dataset.as_numpy_iterator() if text.strip())


def tfds_builder(name, data_dir=None):
    """The builder of a dataset of TensorFlow Datasets, by its name or by its prepared directory."""
    import tensorflow_datasets as tfds

    if tf.io.gfile.exists(os.path.join(name, "dataset_info.json")):
        return tfds.builder_from_directory(name)
    return tfds.builder(name, data_dir=data_dir)


def hold_out(documents, every, split):
    """Yields all documents but each `every`-th ("train"), or only those ("held_out")."""
    if split not in ("train", "held_out"):
        raise ValueError(f'`split` must be "train" or "held_out". Received: {split!r}.')
    if every < 2:
        raise ValueError(f"`every` must be at least 2. Received: {every}.")
    held_out = split == "held_out"
    return (text for i, text in enumerate(documents, 1) if (i % every == 0) == held_out)


def _files(pattern, suffixes):
    try:
        files = _find_files(pattern, suffixes)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Names of files must be UTF-8. Received: {error.object!r} at {pattern}."
        ) from None
    if not files:
        raise ValueError(
            f"The path must be a file, a folder with files in {' or '.join(suffixes)}, or a glob that "
            f"matches files. Received: {pattern}, which matches none."
        )
    return sorted(files)


def _find_files(pattern, suffixes):
    if tf.io.gfile.isdir(pattern):
        return [
            os.path.join(folder, name)
            for folder, _, names in tf.io.gfile.walk(pattern)
            for name in names
            if name.endswith(suffixes)
        ]
    if tf.io.gfile.exists(pattern):
        return [pattern]
    return [path for path in tf.io.gfile.glob(pattern) if not tf.io.gfile.isdir(path)]


def _text_documents(pattern, files, layout):
    empty = True
    for path in files:
        lines = read_lines(path)
        if layout == "file":
            documents = ["\n".join(lines)]
        else:
            groups = itertools.groupby(lines, key=lambda line: not line.strip())
            documents = ("\n".join(group) for blank, group in groups if not blank)
        for document in documents:
            if document.strip():
                empty = False
                yield document
    if empty:
        raise ValueError(
            f"Text files must hold some text. Received: {pattern}, {len(files)} empty file(s)."
        )


def _jsonl_documents(pattern, files, field):
    empty = True
    for path in files:
        for number, line in enumerate(read_lines(path), start=1):
            if line.strip():
                text = _text_of(line, field, f"{path}, line {number}")
                if text.strip():
                    empty = False
                    yield text
    if empty:
        raise ValueError(
            f"JSON lines must hold some text. Received: {pattern}, {len(files)} file(s) without it."
        )


def _text_of(line, field, place):
    """The text of one JSON object."""
    try:
        example = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"Each line must be a JSON object. Received: {place}: {error}.") from None
    if not isinstance(example, dict):
        raise ValueError(f"Each line must be a JSON object. Received: {place}: {line[:40]!r}.")
    if not isinstance(example.get(field), str):
        found = f"one that is {example[field]!r:.40}" if field in example else f"{sorted(example)}"
        raise ValueError(
            f"Each JSON object must have a text field {field!r}. Received: {place}: {found}."
        )
    return example[field].encode("utf-8", "ignore").decode("utf-8")


def read_lines(path):
    """Yields the lines of a file, without their ends and without a byte order mark."""
    offset = 0
    with tf.io.gfile.GFile(path, "rb") as file:
        content = gzip.GzipFile(fileobj=file) if path.endswith(".gz") else file
        try:
            for line in content:
                text = line.decode("utf-8").rstrip("\r\n")
                yield text if offset else text.removeprefix("\ufeff")
                offset += len(line)
        except UnicodeDecodeError as error:
            raise ValueError(
                "Text files must be UTF-8; convert them first. "
                f"Received: {path}, whose byte {offset + error.start} is not."
            ) from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(
                f"Files in .gz must be whole gzip files. Received: {path}: {error}."
            ) from error
