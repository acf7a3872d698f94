"""The rooms of the package: who may import whom, no circle, and how dear `import keras_bert` is."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "keras_bert"
LEAVES = {"files", "hashing", "losses", "metrics"}
# In the order of the arrows: each room imports rooms above it alone.
MAY_IMPORT = {
    **{leaf: set() for leaf in LEAVES},
    "config": {"files"},
    "modules": {"files"},
    "layers": {"hashing"},
    "text": {"config", "files", "hashing", "modules"},
    "checkpoints": {"config", "files", "modules"},
    "training": {"config", "files", "hashing"},
    "data": {"config", "files", "hashing", "text"},
    # training: the optimizer and the schedule of `compile()`
    "models": {"config", *LEAVES, "layers", "text", "checkpoints", "training"},
    "serving": {"files", "models", "text"},
    "tasks": {"data", "models", "text"},
    "runs": {
        "config",
        "files",
        "checkpoints",
        "data",
        "models",
        "serving",
        "tasks",
        "text",
        "training",
    },
}
FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {
    ".".join(["keras_bert", *path.relative_to(PACKAGE).with_suffix("").parts]): path for path in FILES
}


def room(module):
    """The part of the package that a module belongs to: its folder, or its own name."""
    return module.split(".")[1]


def imported(path):
    """The modules of the package that a file imports, at its top or in a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports of the package absolutely"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else node.module for name in names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.startswith("keras_bert."))


IMPORTS = {module: set(imported(path)) for module, path in MODULES.items()}


def reached(module):
    """All modules that a module imports, and those that they import."""
    seen, new = set(), {module}
    while new:
        seen |= new
        new = set().union(*(IMPORTS[each] for each in new)) - seen
    return seen - {module}


@pytest.mark.parametrize("module", [name for name in MODULES if not name.endswith("__init__")])
def test_imports_follow_the_arrows(module):
    here = room(module)
    assert {room(name) for name in IMPORTS[module]} <= MAY_IMPORT[here] | {here}


def test_the_arrows_have_an_order():
    """Each room stands behind those that it imports, and the package's docstring shows that order."""
    order = list(MAY_IMPORT)
    for name, others in MAY_IMPORT.items():
        assert all(order.index(other) < order.index(name) for other in others), name
    docstring = ast.get_docstring(ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")))
    shown = [line.split()[0] for line in docstring.splitlines() if line.startswith("  ")]
    assert [name for name in shown if (PACKAGE / name).is_dir()] == [
        name for name in order if (PACKAGE / name).is_dir()
    ]


def test_no_module_imports_itself_by_way_of_others():
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


def test_runs_of_one_kind_need_nothing_of_the_other():
    runs = [module for module in MODULES if room(module) == "runs"]
    for one, other in (("finetuning", "pretraining"), ("pretraining", "finetuning")):
        for module in runs:
            if f".{one}_" in module:
                assert not [name for name in reached(module) if f"runs.{other}_" in name], module


def test_rooms_have_no_loose_modules():
    loose = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert loose == LEAVES | {"config", "modules"}


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
