"""Recipes, the settings of a run as one frozen value, from defaults, TOML files and flags."""

import argparse
import dataclasses
import re
import tomllib

from keras_bert.files import read_text

# what TensorFlow puts around the words of an error in a graph
_AROUND = re.compile(r"Detected at node|<stack traces|\s+File |\s*\[\[|\d+ root error")


def parse_flags(recipe_class, argv=None, description=None, **defaults):
    """Builds a recipe from its defaults, then `--recipe FILE.toml`, then flags.

    Args:
        argv: The flags; None for those of the command line.
        description: What the help says first.
        **defaults: Those of a tool, where they are not the recipe's.
    """
    import tyro

    files = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    files.add_argument("--recipe")
    known, flags = files.parse_known_args(argv)
    given = read_fields(recipe_class, known.recipe) if known.recipe else {}
    default = recipe_class(**{**defaults, **given})
    return tyro.cli(recipe_class, args=flags, default=default, description=description)


def in_one_line(error):
    """What an error says, as one line for a terminal.

    TensorFlow wraps what happened in a graph: between where the graph was made and which nodes it came
    through. Of an assertion, its own words are left; else the first line that says something.

    Example:

    >>> in_one_line(OSError("Graph execution error:\\n\\nDetected at node x\\n  File y\\nNo memory."))
    'No memory.'
    """
    lines = [line for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("Graph execution error"):
        told = [line for line in lines[1:] if not _AROUND.match(line)]
        lines = told or lines
    line = lines[0].strip() if lines else type(error).__name__
    _, assertion, words = line.rpartition("assertion failed: ")
    return words.strip("[]").replace("] [", " ") if assertion else line


def read_recipe(recipe_class, path):
    """The recipe that a TOML file of fields tells."""
    return recipe_class(**read_fields(recipe_class, path))


def read_fields(recipe_class, path):
    """The fields in a TOML file, {name: value}; unknown ones are an error."""
    try:
        values = tomllib.loads(read_text(path, "The recipe"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"The recipe must be TOML. Received: {path}: {error}.") from None
    names = [field.name for field in dataclasses.fields(recipe_class)]
    unknown = [name for name in values if name not in names]
    if unknown:
        raise ValueError(
            f"A recipe must only hold fields of {recipe_class.__name__}. Received: {unknown} in {path}."
        )
    return values
