"""keras_bert.data.builtin and docstrings: the cleaning rules by hand, the two splits, determinism."""

import hashlib
import os
import re
import subprocess
import sys

import pytest

from keras_bert.data import builtin
from keras_bert.data.docstrings import prose, read_docstrings

CLEANED = {
    "lines become paragraphs": (
        "Sums up the values\nof all the rows.\n\nA second paragraph follows,\nover two lines.",
        ["Sums up the values of all the rows.", "A second paragraph follows, over two lines."],
    ),
    "doctests and code": (
        "Adds numbers together, like this:\n\n>>> add(1, 2)\n3\n\n```python\nx = add(1, 2)\n```\n\n"
        "It is also fast, as here::\n\n    x = add(3)\n\nNothing else ever happens to them.",
        ["Nothing else ever happens to them."],
    ),
    "markup": (
        "The :class:`~keras.Model` calls ``fit()`` on *all* [layers](https://keras.io) [1]_ at once.",
        ["The keras.Model calls fit on all layers at once."],
    ),
    "names with underscores": (
        "The `__call__` method of `my_layer` is **never** called twice.",
        ["The __call__ method of my_layer is never called twice."],
    ),
    "Google's parameters": (
        "Computes the mean of the input.\n\nArgs:\n  x: A `Tensor`.\n  axis (int): The axis to sum.\n"
        "    If it is None, all axes are reduced.\n\nRaises:\n  ValueError: If the axis is too large.",
        ["Computes the mean of the input.", "The axis to sum. If it is None, all axes are reduced."],
    ),
    "NumPy's parameters": (
        "Return the larger of two arrays.\n\nParameters\n----------\nx : array_like\n"
        "    The first array. It must\n    not be empty.\n\nSee Also\n--------\nmin : This is smaller.",
        ["Return the larger of two arrays.", "The first array. It must not be empty."],
    ),
    "directives": (
        ".. note:: This text is kept as it\n   is prose.\n\n.. math::\n   This is not an equation.\n\n"
        ".. [1] This is a reference to a book.",
        ["This text is kept as it is prose."],
    ),
    "tables, headings, signatures, addresses": (
        "A Heading of this page.\n=======================\n\nsum(a, b) -> int\n\n"
        "| this | is a | table. |\n\nSee https://www.tensorflow.org for more details.",
        [],
    ),
    "fragments": ("the lower-case rest of a sentence.\n\nNo final mark here at all\n\nToo short.", []),
    "an unfinished end": (
        "The file is read first. It may be empty. For example:",
        ["The file is read first. It may be empty."],
    ),
    "list items": (
        "* The first item of the list is kept.\n* A noun phrase, however long and winding.\n  \n"
        "2. The last item is\n   kept as well.",
        ["The first item of the list is kept.", "The last item is kept as well."],
    ),
}

SOURCE = '''# Licence
r"""The module's \\d own."""
import x


class Kind:
    """The kind."""

    def method(
        self,
    ):  # comment
        \'\'\'A "method".\'\'\'
        text = """No docstring."""


def function():
    """It prints \\\\n or \\u00e9."""
    def inner():
        """Inner."""


add_newdoc("numpy", "name",
    """
    Attached.
    """)
'''


@pytest.mark.parametrize("rule", CLEANED)
def test_cleaning(rule):
    docstring, paragraphs = CLEANED[rule]
    assert prose(docstring) == paragraphs


def test_docstrings_are_read_by_piece():
    assert [[text.strip() for text in piece] for piece in read_docstrings(SOURCE)] == [
        ["The module's \\d own."],
        ["The kind.", 'A "method".'],
        ["It prints \\n or é.", "Inner."],
        ["Attached."],
    ]
    assert read_docstrings("x = 1\n") == []


def test_repeats_go_whatever_their_digits():
    long = " ".join(
        ["This layer works on #D inputs. It has one weight for each of their channels."] * 6
    )
    modules = [
        ("a", [[long.replace("#", "1")], ["It adds one thing more. This is a short piece."]]),
        ("b", [[long.replace("#", "2")]]),
    ]
    assert list(builtin.assemble(modules)) == [
        ("a", "It adds one thing more. This is a short piece."),
        ("a", long.replace("#", "1")),
    ]


@pytest.fixture(scope="module")
def splits():
    return {split: list(builtin.builtin_documents(split)) for split in ("train", "held_out")}


def test_the_splits_share_no_module_and_no_paragraph(splits):
    held_out = {module for module, _ in builtin.module_documents() if builtin.is_held_out(module)}
    train = {module for module, _ in builtin.module_documents() if not builtin.is_held_out(module)}
    assert held_out
    assert train
    assert not held_out & train
    paragraphs = [
        paragraph for texts in splits.values() for t in texts for paragraph in t.split("\n\n")
    ]
    assert len(set(paragraphs)) == len(paragraphs)


def test_size_and_share(splits):
    characters = {split: sum(map(len, texts)) for split, texts in splits.items()}
    assert 4e6 < sum(characters.values()) < 16e6
    assert 0.02 < characters["held_out"] / sum(characters.values()) < 0.06
    assert 4000 < sum(map(len, splits.values())) < 16000


def test_documents_are_prose_of_at_least_two_sentences(splits):
    for text in splits["train"] + splits["held_out"]:
        assert re.search(r"[.!?]\S*\s+\S", text)
        assert not re.search(r">>>|```|\n(?!\n)[ \t]|https?://", text)


def test_other_hash_seeds_give_the_same_documents():
    code = (
        "import hashlib, itertools; from keras_bert.data.builtin import assemble, modules;"
        "first = list(itertools.islice(assemble(modules()), 300));"
        "print(hashlib.sha256(repr(first).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    first = list(builtin.module_documents()[:300])
    assert out.stdout.strip() == hashlib.sha256(repr(first).encode()).hexdigest()


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match='must be "train" or "held_out". Received: \'test\''):
        next(builtin.builtin_documents("test"))
