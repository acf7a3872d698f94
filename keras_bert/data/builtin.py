"""The built-in corpus: English prose that every machine with TensorFlow already has, undownloaded.

It is the documentation of Python's language and standard library, of NumPy, Keras, TensorFlow and
other packages that this one requires, read from their source files: nothing of them is imported.
About 6,000 documents, 6.6 MB and 15 s; other versions of the packages give slightly other text.
"""

import ast
import functools
import importlib.util
import os
import re
import sysconfig
import zlib
from pathlib import Path

from keras_bert.data.docstrings import prose, read_docstrings

PACKAGES = (
    "keras",
    "matplotlib",
    "numpy",
    "tensorboard",
    "tensorflow",
    "tensorflow_datasets",
    "tensorflow_text",
)
# Tests, copies of other packages, folders that only re-export, and generated files
SKIPPED_FOLDERS = {"test", "tests", "testing", "idlelib", "lib2to3", "turtledemo", "ensurepip"}
SKIPPED_FOLDERS |= {"site-packages", "dist-packages", "_vendor", "_api", "_tf_keras", "compat"}
SKIPPED_FILES = re.compile(r".*(_pb2|_pb2_grpc|_generated|_test)\.py$|(test_|conftest)")
HELD_OUT = (29, 17)  # hash modulo 29 is 17: about 3 %, with something of every package
TWO_SENTENCES = re.compile(r"[.!?][\"'”’)\]]*\s+\S")
STANDS_ALONE = 400  # characters; shorter pieces join their module's document


def builtin_documents(split="train"):
    """Yields the documents of a split: strings, paragraphs separated by a blank line.

    A document is a class, a function, a language topic, or what else a module has to say.
    No module and no paragraph is in both splits.

    Args:
        split: "train", or "held_out": about 3 %, whole modules drawn by a hash of their names.
    """
    if split not in ("train", "held_out"):
        raise ValueError(f'`split` must be "train" or "held_out". Received: {split!r}.')
    for module, document in module_documents():
        if is_held_out(module) == (split == "held_out"):
            yield document


def is_held_out(module):
    """Whether the module is in the held-out split."""
    group = ".".join(module.split(".")[:4])  # keras.src.layers.pooling: its files are alike
    groups, held_out = HELD_OUT
    return zlib.crc32(group.encode()) % groups == held_out


@functools.cache
def module_documents():
    """All pairs (dotted module name, document), in order; extracted once in a process."""
    return tuple(assemble(modules()))


def assemble(modules):
    """Yields (module, document) for (module, docstrings by piece), without repeated paragraphs.

    Paragraphs that differ in digits, case or punctuation alone (`Conv1D`, `Conv2D`) are repeats:
    only the first stays, in whichever split its module is.
    """
    seen = set()

    def new_paragraphs(docstrings):
        for docstring in docstrings:
            if docstring not in seen:  # TensorFlow repeats thousands whole
                seen.add(docstring)
                for paragraph in prose(docstring):
                    letters = re.sub(r"[\W\d_]+", " ", paragraph.lower())
                    if letters not in seen:
                        seen.add(letters)
                        yield paragraph

    for module, pieces in modules:
        short, documents = [], []
        for docstrings in pieces:
            paragraphs = list(new_paragraphs(docstrings))
            if sum(map(len, paragraphs)) >= STANDS_ALONE:
                documents.append(paragraphs)
            else:
                short += paragraphs
        for paragraphs in [short, *documents]:
            document = "\n\n".join(paragraphs)
            if TWO_SENTENCES.search(document):
                yield module, document


def modules():
    """Yields (dotted name, docstrings by piece) of all modules, sorted by name."""
    for name, path in sorted(source_files()):
        source = path.read_text(encoding="utf-8", errors="ignore")
        if name == "pydoc_data.topics":
            table = ast.parse(source).body[-1].value
            for topic, text in sorted(ast.literal_eval(table).items()):
                yield f"{name}.{topic}", [[text]]
        else:
            yield name, read_docstrings(source)


def source_files():
    """Yields (dotted module name, path) of the standard library and the packages."""
    folders = [(Path(sysconfig.get_path("stdlib")), "")]
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec and spec.origin:
            folders.append((Path(spec.origin).parent, package))
    for root, package in folders:
        for folder, below, files in os.walk(root):
            below[:] = set(below) - SKIPPED_FOLDERS
            parts = [package, *Path(folder).relative_to(root).parts]
            for file in files:
                if file.endswith(".py") and not SKIPPED_FILES.match(file):
                    names = [*parts, file.removesuffix(".py")]
                    yield ".".join(n for n in names if n and n != "__init__"), Path(folder, file)
