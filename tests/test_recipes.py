"""keras_bert.runs: settings from flags and files, refusals; the sums in comments of tools/recipes."""

import dataclasses
import re
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT

from keras_bert.data.record_building import RecordRecipe
from keras_bert.runs.flags import in_one_line, parse_flags, read_recipe
from keras_bert.runs.pretraining_recipe import PretrainRecipe
from keras_bert.training.optimizers import LAMB, AdamW

FILES = sorted((ROOT / "tools" / "recipes").glob("*.toml"))
TOOLS = {"pretrain": PretrainRecipe, "build_records": RecordRecipe}


def comments(path):
    """The comment at the top of a recipe file, as one line."""
    lines = path.read_text().splitlines()
    return " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))


def commands():
    """(tool, arguments) of every command in the README, the tools and the recipe files."""
    places = [ROOT / "README.md", *(ROOT / "tools" / f"{name}.py" for name in TOOLS), *FILES]
    for place in places:
        text = re.sub(r"^#", "", place.read_text(encoding="utf-8"), flags=re.MULTILINE)
        text = re.sub(r"\\\n", " ", text)
        for tool, flags in re.findall(r"python tools/(pretrain|build_records)\.py([^\n`]*)", text):
            if "--help" not in flags:
                yield tool, tuple(shlex.split(flags, comments=True))


def test_flags_recipe_files_and_defaults(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('steps = 500\nbatch_size = 4\npreset = "bert_mini"\n')
    recipe = parse_flags(
        PretrainRecipe, ["--recipe", str(path), "--batch-size", "6", "--masking", "span"]
    )
    assert (recipe.steps, recipe.batch_size, recipe.preset) == (500, 6, "bert_mini")
    assert recipe.masking == "span"
    assert recipe.seed == PretrainRecipe().seed
    assert parse_flags(PretrainRecipe, [f"--recipe={path}"]).steps == 500
    for content, words in (
        ("steps = 'many'", "`steps` must be int. Received: 'many'"),
        ("steps = 2000.0", "`steps` must be int"),
        ("text_layout = 'foo'", "`text_layout` must be 'file' or 'blank_line'.*Received: 'foo'"),
        ("steps 5", "must be TOML"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=words):
            read_recipe(PretrainRecipe, path)
    path.write_text("stepz = 5\n")
    with pytest.raises(ValueError, match="fields of PretrainRecipe. Received: .'stepz'"):
        read_recipe(PretrainRecipe, path)


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ("No such file\nmore", "No such file"),
        ("", "OSError"),
        (
            "Graph execution error:\n\nDetected at node a/b defined at (most recent call last):\n"
            "<stack traces unavailable>\nOOM when allocating\n\t [[{{node a/b}}]] [Op:__x_1]",
            "OOM when allocating",
        ),
        (
            "Graph execution error:\n\nDetected at node a defined at (most recent call last):\n"
            '  File "x.py", line 1, in f\n\n2 root error(s) found.\n  (0) INTERNAL:  failed\n\t [[a]]',
            "(0) INTERNAL:  failed",
        ),
        (
            "{{function_node b}} assertion failed: [It must be so. Received:] [1] [and 2.]",
            "It must be so. Received: 1 and 2.",
        ),
    ],
)
def test_errors_in_one_line(told, line):
    assert in_one_line(OSError(told)) == line


def test_help_documents_every_setting():
    run = subprocess.run(
        [sys.executable, ROOT / "tools" / "pretrain.py", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    for field in dataclasses.fields(PretrainRecipe):
        assert f"--{field.name.replace('_', '-')}" in run.stdout, field.name
    assert "Share of tokens to predict in training." in run.stdout


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": 0}, "`steps` must be at least 1"),
        ({"accumulate": 0}, "`accumulate` must be at least 1"),
        ({"steps": 100, "save_every": 30}, "save_every=30, steps=100"),
        ({"final_steps": 100}, "save_every=250, steps=2500, final_steps=100"),
        ({"final_steps": 2500}, "`final_steps` must be the last"),
        ({"final_steps": 250, "final_length": 513}, "final_length=513, bert_tiny has 512"),
        ({"max_length": 512, "model_type": "roberta"}, "max_length=512, bert_tiny has 511"),
        ({"global_clipnorm": -1.0}, "global_clipnorm.*-1.0"),
        ({"global_clipnorm": float("nan")}, "`global_clipnorm` must be a finite number"),
        ({"weight_decay": float("inf")}, "`weight_decay` must be a finite number"),
        ({"ema_momentum": 1.0}, "`ema_momentum` must lie in"),
        ({"new_entries": 5}, "new_entries=5, init_from=None"),
        ({"new_entries": 5, "init_from": "run", "records": "r"}, "without `records`"),
        ({"init_from": "run", "tokenizer": "t"}, "tokenizer=t beside init_from=run"),
        ({"records": "r", "final_steps": 250}, "`final_records` must be given"),
        ({"final_records": "r"}, "`final_records` must be given.*only there"),
        ({"data_service": "grpc://host:1"}, "`data_service` must come with `records`"),
        ({"jit_compile": True}, "`layout` must be dense"),
        ({"strategy": "tpu", "tpu": "local"}, "`layout` must be dense"),
        ({"strategy": "tpu", "layout": "dense"}, "`tpu` must be given"),
        ({"tpu": "local"}, "`tpu` must be given"),
        ({"strategy": "two"}, "`strategy` must be 'none' or 'mirrored'"),
        ({"objective": "none"}, "`objective` must be 'next_sentence' or"),
        ({"num_hidden_groups": 3}, "num_hidden_groups=3, num_hidden_layers=2"),
        ({"warmup_steps": 2500}, "below `steps`.*warmup_steps=2500, steps=2500"),
        ({"warmup_steps": -1}, "warmup_steps=-1"),
        ({"schedule": "cosine", "decay_power": 2.0}, "decay_power=2.0, schedule='cosine'"),
        ({"schedule": "polynomial", "decay_power": 0.0}, "`decay_power` must be positive"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        PretrainRecipe(**settings)


def test_the_optimizer_has_the_settings_of_the_recipe():
    config = PretrainRecipe().encoder_config()
    adam = PretrainRecipe(beta_2=0.98, epsilon=1e-8, weight_decay=0.1).make_optimizer(config)
    assert type(adam) is AdamW
    assert (adam.beta_2, adam.epsilon, adam.weight_decay) == (0.98, 1e-8, 0.1)
    assert (adam.global_clipnorm, adam.use_ema, adam.rate_factors) == (1.0, False, ())
    recipe = PretrainRecipe(optimizer="lamb", global_clipnorm=0, ema_momentum=0.9, layer_decay=0.5)
    lamb = recipe.make_optimizer(config)
    assert type(lamb) is LAMB
    assert (lamb.global_clipnorm, lamb.use_ema, lamb.ema_momentum) == (None, True, 0.9)
    assert [lamb.rate_factor(f"encoder/{part}/kernel") for part in ("embeddings", "block_1")] == [
        0.125,
        0.5,
    ]
    rates = [float(recipe.make_schedule()(step)) for step in (49, 99, 2499)]
    assert rates == pytest.approx([recipe.learning_rate / 2, recipe.learning_rate, 8.333e-7], rel=1e-3)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_comments_of_recipe_files_do_the_sums(path):
    recipe, text = read_recipe(PretrainRecipe, path), comments(path)
    batches = {recipe.batch_size * recipe.max_length: recipe.steps - recipe.final_steps}
    if recipe.final_steps:
        size = recipe.final_batch_size or recipe.batch_size
        batches[size * recipe.final_length] = recipe.final_steps
    for slots, steps in batches.items():
        assert f"{slots:,}" in text, f"{slots:,} token slots in a batch"
        assert f"{steps:,} steps" in text or f"the last {steps:,}" in text
    total = sum(slots * steps for slots, steps in batches.items())
    unit, word = (1e9, "billion") if total >= 1e9 else (1e6, "million")
    assert f"{total / unit:,.1f} {word}" in text
    assert f"warm-up is {100 * recipe.warmup_steps / recipe.steps:.3g} % of the steps" in text
    assert {"adamw": "AdamW", "lamb": "LAMB"}[recipe.optimizer] in text


def test_published_recipes_have_the_published_sizes():
    """Weights of the encoders, counted by hand, in millions: BERT, RoBERTa, ALBERT."""
    recipes = {path.stem: read_recipe(PretrainRecipe, path) for path in FILES}
    configs = {name: recipe.encoder_config() for name, recipe in recipes.items()}

    def count(c):
        width, inner, table = c.hidden_size, c.intermediate_size, c.embedding_width
        block = 4 * (width + 1) * width + (width + 1) * inner + (inner + 1) * width + 4 * width
        rows = c.vocab_size + c.max_position_embeddings + c.type_vocab_size
        factor = (table + 1) * width if table != width else 0
        pooler = (width + 1) * width if c.use_pooler else 0
        return (rows * table + 2 * table + factor + c.groups * block + pooler) / 1e6

    for name, millions in {
        "bert_base": 109.5,
        "bert_large": 335.1,
        "bert_whole_word": 335.1,
        "roberta_base": 124.1,
        "roberta_large": 354.3,
        "albert_base": 11.7,
    }.items():
        assert count(configs[name]) == pytest.approx(millions, abs=0.06), name
    for name in ("roberta_base", "roberta_large", "albert_base", "span"):
        pad = int("roberta" in name)  # of a byte-level BPE
        assert recipes[name].encoder_config(pad_token_id=pad).max_length == 512
        assert recipes[name].max_length == 512
    rate = 0.005 * (4096 / 32768) ** 0.5
    assert recipes["albert_base"].learning_rate == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize(("tool", "flags"), sorted(set(commands())), ids=lambda value: str(value)[:60])
def test_every_command_that_is_shown_can_be_given(monkeypatch, tool, flags):
    monkeypatch.chdir(ROOT)
    parse_flags(TOOLS[tool], list(flags))
