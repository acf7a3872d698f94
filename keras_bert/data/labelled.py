"""Labelled data as it lies in files: tables, sentences with a tag for each word, questions on texts.

Every reader gives all rows in their order, as plain dicts of strings, and refuses a file that does not
have the form it should, with the line.
"""

import csv
import json
import os
import re

from keras_bert.data.sources import read_lines, tfds_builder
from keras_bert.files import read_json
from keras_bert.text.entities import are_entity_tags, to_bio

TFDS = "tfds:"


def read_table(path, columns=None, split="train"):
    """The rows of a table, each a dict from a column's name to a string.

    Args:
        path: A file, local or remote, whose name ends in .tsv (tabs, no quoting: as GLUE has it), .csv
            (commas, quotes), .jsonl (an object a line), each also with .gz; or "tfds:NAME".
        columns: The names of the columns, where the file has no header; None takes the first line.
        split: Of a TFDS dataset. Labels become their names there.

    Raises:
        ValueError: When a row has more or fewer columns than the header, or there is no row.
    """
    path = os.fspath(path)
    if path.startswith(TFDS):
        return _read_tfds(path, split)
    kind = re.search(r"\.(tsv|txt|csv|jsonl)(\.gz)?$", path)
    if kind is None:
        raise ValueError(
            f"A table must end in .tsv, .csv or .jsonl (with or without .gz). Received: {path}."
        )
    if kind[1] == "jsonl":
        rows = [_object(line, number, path) for number, line in _numbered(path) if line.strip()]
    else:
        rows = _with_header(_quoted(path) if kind[1] == "csv" else _cells(path), columns, path)
    if not rows:
        raise ValueError(f"A table must have rows. Received: none in {path}.")
    return rows


def read_tagged(path, split="train", words_column="tokens", tags_column="tags"):
    """Sentences with a tag for each word, from CoNLL's form: a word a line, its tag in the last column.

    Blank lines end sentences; -DOCSTART- lines are passed over. Columns are parted by tabs, or where a
    line has none by spaces. Entities in any scheme (IOB1, BIOES, BILOU) are turned into BIO; other
    tags, such as parts of speech, stay.

    Args:
        path: A file, local or remote; or "tfds:NAME".
        split, words_column, tags_column: Of a TFDS dataset.

    Returns:
        List of {"words": list of str, "tags": list of str}

    Raises:
        ValueError: When lines differ in their columns or have one alone.
    """
    path = os.fspath(path)
    if path.startswith(TFDS):
        sentences = _tagged_of_tfds(path, split, words_column, tags_column)
    else:
        sentences = _tagged_of_lines(path)
    if not sentences:
        raise ValueError(f"A file of tags must have sentences. Received: none in {path}.")
    if are_entity_tags(tag for sentence in sentences for tag in sentence["tags"]):
        for sentence in sentences:
            sentence["tags"] = to_bio(sentence["tags"])
    return sentences


def _tagged_of_tfds(path, split, words_column, tags_column):
    sentences = []
    for row in _read_tfds(path, split):
        words, tags = row.get(words_column), row.get(tags_column)
        if not (isinstance(words, list) and isinstance(tags, list)) or len(words) != len(tags):
            raise ValueError(
                "The columns of words and tags must hold lists, as long as each other. Received: "
                f"{words_column} and {tags_column} of {', '.join(row)} in {path}."
            )
        if words:
            sentences.append({"words": words, "tags": tags})
    return sentences


def _tagged_of_lines(path):
    sentences, words, tags, width = [], [], [], None
    for number, line in [*_numbered(path), (None, "")]:
        cells = [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()
        if not any(cells) or cells[0] == "-DOCSTART-":
            if words:
                sentences.append({"words": words, "tags": tags})
                words, tags = [], []
            continue
        width = width or len(cells)
        if len(cells) != width or width < 2 or not (cells[0] and cells[-1]):
            raise ValueError(
                "Each line must hold a word and, in the last of always as many columns, its tag. "
                f"Received: {path}, line {number}: {line[:60]!r}, {len(cells)} columns after {width}."
            )
        words.append(cells[0])
        tags.append(cells[-1])
    return sentences


def read_questions(path, split="train"):
    """Questions on texts, from the JSON of SQuAD 1.1 or 2.0.

    Args:
        path: A file, local or remote; or "tfds:NAME".
        split: Of a TFDS dataset.

    Returns:
        List of {"id", "question", "context": str, "answers": list of str, "starts": list of int}: where
        in the context, in characters, each answer begins; both empty where there is no answer.

    Raises:
        ValueError: When an answer is not to be found where it should begin.
    """
    path = os.fspath(path)
    try:
        if path.startswith(TFDS):
            rows = [
                _question(row, row["context"], row["answers"]["text"], row["answers"]["answer_start"])
                for row in _read_tfds(path, split)
            ]
        else:
            rows = [
                _question(asked, paragraph["context"], *_answers_of(asked))
                for article in read_json(path)["data"]
                for paragraph in article["paragraphs"]
                for asked in paragraph["qas"]
            ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            "The file must have SQuAD's form: data, paragraphs, context, qas with id, question and "
            f"answers (text, answer_start). Received: {path}, {type(error).__name__} {error}."
        ) from None
    if not rows:
        raise ValueError(f"The file must have questions. Received: none in {path}.")
    for row in rows:
        _check_answers(row, path)
    return rows


def _question(asked, context, texts, starts):
    is_impossible = asked.get("is_impossible") in (True, "True")
    return {
        "id": asked["id"],
        "question": asked["question"],
        "context": context,
        "answers": [] if is_impossible else list(texts),
        "starts": [] if is_impossible else [int(start) for start in starts],
    }


def _answers_of(asked):
    answers = asked.get("answers", [])
    return [answer["text"] for answer in answers], [answer["answer_start"] for answer in answers]


def _check_answers(row, path):
    for text, start in zip(row["answers"], row["starts"], strict=True):
        found = row["context"][start : start + len(text)]
        if found != text or not text:
            raise ValueError(
                "Each answer must stand in its context where `answer_start` says. "
                f"Received: {text!r}, where the context has {found!r}, for {row['id']} in {path}."
            )


def tfds_splits(name):
    """The splits of a data set of TensorFlow Datasets, which is prepared for it."""
    builder = tfds_builder(name)
    builder.download_and_prepare()
    return list(builder.info.splits)


def _read_tfds(path, split):
    """The examples of "tfds:NAME", each a dict of str, lists of them, and such dicts."""
    import tensorflow_datasets as tfds

    builder = tfds_builder(path.removeprefix(TFDS))
    builder.download_and_prepare()
    examples = tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False))
    return [_readable(builder.info.features, example) for example in examples]


def _readable(feature, value):
    """A value of TFDS in words: labels by their names, "" where there is none."""
    import tensorflow_datasets as tfds

    if isinstance(feature, tfds.features.FeaturesDict):
        return {name: _readable(feature[name], each) for name, each in value.items()}
    if isinstance(feature, tfds.features.Sequence):
        if isinstance(value, dict):  # of lists, as TFDS gives a list of dicts
            inner = feature.feature
            return {name: [_readable(inner[name], e) for e in each] for name, each in value.items()}
        return [_readable(feature.feature, each) for each in value]
    if isinstance(feature, tfds.features.ClassLabel):
        return feature.int2str(int(value)) if value >= 0 else ""
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _with_header(lines, columns, path):
    """Dicts from the cells of lines, the first of which names them where `columns` is None."""
    rows, names = [], columns
    for number, cells in enumerate(lines, start=1):
        if not any(cells):
            continue  # a blank line holds no row
        if names is None:
            names = [name.strip() for name in cells]
            if len(set(names)) != len(names):
                raise ValueError(f"The columns must have different names. Received: {names} in {path}.")
            continue
        if len(cells) != len(names):
            raise ValueError(
                f"Each row must have the columns {', '.join(names)}. "
                f"Received: {path}, row {number} with {len(cells)} instead of {len(names)}."
            )
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


def _cells(path):
    return (line.split("\t") for line in read_lines(path))


def _quoted(path):
    # with their ends, which are part of quoted cells
    reader = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
    try:
        yield from reader
    except csv.Error as error:
        raise ValueError(
            f"A table must be well-formed CSV. Received: {path}, line {reader.line_num}: {error}."
        ) from None


def _numbered(path):
    return list(enumerate(read_lines(path), start=1))


def _object(line, number, path):
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"Each line must be a JSON object. Received: {path}, line {number}: {error}."
        ) from None
    if not isinstance(row, dict):
        raise ValueError(
            f"Each line must be a JSON object. Received: {path}, line {number}: {line[:40]!r}."
        )
    return {
        key: value if isinstance(value, str | list) else _plain(value) for key, value in row.items()
    }


def _plain(value):
    return "" if value is None else str(value)
