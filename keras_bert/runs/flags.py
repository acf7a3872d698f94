"""Recipes, the settings of a run as one frozen value, from defaults, TOML files and flags."""

import argparse
import dataclasses
import tomllib

from keras_bert.files import read_text


def parse_flags(recipe_class, argv=None, description=None):
    """Builds a recipe from its defaults, then `--recipe FILE.toml`, then flags."""
    import tyro

    files = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    files.add_argument("--recipe")
    known, flags = files.parse_known_args(argv)
    default = read_recipe(recipe_class, known.recipe) if known.recipe else recipe_class()
    return tyro.cli(recipe_class, args=flags, default=default, description=description)


def read_recipe(recipe_class, path):
    """Reads a TOML file of fields; unknown ones are an error."""
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
    return recipe_class(**values)
