"""The import arrows of the package: who may import whom, and how dear `import keras_bert` is."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "keras_bert"
LEAVES = {"entities", "files", "hashing", "losses", "metrics"}
MAY_IMPORT = {
    **{leaf: set() for leaf in LEAVES},
    "config": {"files"},
    "modules": {"files"},
    "scoring": {"entities"},
    "layers": {"hashing"},
    "text": {"config", "files", "hashing", "modules"},
    "checkpoints": {"config", "files", "modules"},
    "training": {"config", "files", "hashing"},
    "data": {"config", "entities", "files", "hashing", "text"},
    "models": {
        "config",
        "entities",
        "files",
        "hashing",
        "layers",
        "losses",
        "metrics",
        "text",
        "checkpoints",
        "training",  # the optimizer and the schedule of `compile()`; training knows no model
    },
    "drawings": {"files"},
    "reports": {"drawings", "files"},
    "recipes": {"config", "data", "files", "text", "training"},
    "serving": {"files", "models", "text"},
    "tasks": {"data"},
    "kinds": {"data", "entities", "drawings", "models", "scoring", "tasks", "text"},
}
MAY_IMPORT["runs"] = set(MAY_IMPORT)
MAY_IMPORT["finetuning"] = {*MAY_IMPORT, "runs"}
FILES = sorted(PACKAGE.rglob("*.py"))


def unit(path):
    """The part of the package that a file belongs to: its folder, or its own name."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_units(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports of the package absolutely"
            names = [node.module]
            if node.module == "keras_bert":
                names = [f"keras_bert.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("keras_bert."))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_follow_the_arrows(path):
    here = unit(path)
    if here == "__init__":  # the front door re-exports from everywhere
        return
    assert set(imported_units(path)) <= MAY_IMPORT[here] | {here}


def test_no_two_modules_share_a_name():
    names = [path.stem for path in FILES if path.stem != "__init__"]
    assert sorted(names) == sorted(set(names))
    assert "utils" not in names


def test_importing_is_cheap_and_does_nothing():
    """Libraries that take seconds to import are imported where they are used."""
    code = (
        "import sys, tensorflow; before = set(sys.modules); import keras_bert;"
        "print(sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"keras_nlp", "keras_hub", "tensorflow_datasets", "tokenizers", "matplotlib", "tyro"}
    assert heavy & set(ast.literal_eval(run.stdout.splitlines()[-1])) == set()
