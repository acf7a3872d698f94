"""keras_bert.training.compilation and tools/compile_for_tpu.py: each recipe's step is one program."""

import dataclasses
import gc
import importlib.util
import subprocess
import sys

import keras
import pytest
import tensorflow as tf
from conftest import ROOT
from training_run import mirrored

from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.runs.flags import read_recipe
from keras_bert.runs.pretraining_recipe import PretrainRecipe
from keras_bert.training.compilation import check_hlo, compile_step, count_instructions
from keras_bert.training.optimizers import AdamW
from keras_bert.training.trainer import Trainer

TOOL = ROOT / "tools" / "compile_for_tpu.py"
RECIPES = sorted((ROOT / "tools" / "recipes").glob("*.toml"))
CHIPS = 32
ROBERTA = {
    "objective": "full_sentences",
    "model_type": "roberta",
    "type_vocab_size": 1,
    "use_pooler": False,
    "global_clipnorm": 0.0,
}
ALBERT = {
    "model_type": "albert",
    "objective": "sentence_order",
    "masking": "ngram",
    "embedding_size": 64,
    "num_hidden_groups": 1,
    "hidden_act": "gelu_new",
}
FORMS = {
    "bert": {},
    "roberta": {**ROBERTA, "dtype": "mixed_bfloat16", "remat": True},
    "albert": {**ALBERT, "dtype": "mixed_bfloat16", "optimizer": "lamb", "accumulate": 2},
}
LONG_FORMS = {
    "bert, all options": {
        "dtype": "mixed_bfloat16",
        "optimizer": "lamb",
        "accumulate": 2,
        "remat": True,
        "ema_momentum": 0.999,
        "on_nonfinite": "skip",
        "layer_decay": 0.9,
    },
    "bert in bfloat16": {"dtype": "mixed_bfloat16"},
    "bert with LAMB": {"optimizer": "lamb"},
    "whole words": {"masking": "whole_word", "accumulate": 2},
    "spans": {"objective": "full_sentences", "masking": "span", "use_pooler": False},
    "roberta in float32": {**ROBERTA, "accumulate": 2},
    "albert in float32": {**ALBERT, "remat": True},
}


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("compile_for_tpu", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def toy_recipe(**options):
    options = {"preset": "bert_tiny", "vocab_size": 100, "dropout": 0.1, "layout": "dense", **options}
    return PretrainRecipe(**options)


@pytest.fixture
def _room_for_the_next():
    """Frees models with their optimizers' moments: they are gigabytes, and in reference cycles."""
    yield
    keras.backend.clear_session()
    gc.collect()


@pytest.mark.parametrize(
    "form", [*FORMS, *(pytest.param(name, marks=pytest.mark.long) for name in LONG_FORMS)]
)
def test_every_form_is_one_static_program(tool, form):
    recipe = toy_recipe(**{**FORMS, **LONG_FORMS}[form])
    text = compile_step(tool.make_step(recipe), tool.batch_spec(recipe, 16, None, 4))("hlo")
    check_hlo(text)
    # Every matrix product of two layers, forward and backward, in the precision asked for.
    assert count_instructions(text, "dot") >= 3 * 6 * 2
    assert ("bf16[" in text) == (recipe.dtype == "mixed_bfloat16")
    # A loop over micro-batches, and no other.
    assert count_instructions(text, "while") == (recipe.accumulate > 1)


@pytest.mark.long
@pytest.mark.usefixtures("_room_for_the_next")
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_one_static_program(tool, path):
    recipe = read_recipe(PretrainRecipe, path)
    # what it starts from is not here; small recipes are for one device
    changes = {"layout": "dense", "init_from": None, "new_entries": 0}
    recipe = dataclasses.replace(recipe, **changes)
    step = tool.make_step(recipe)
    for length, predictions, batch_size in tool.phases(recipe):
        rows = max(batch_size // CHIPS, recipe.accumulate)
        check_hlo(compile_step(step, tool.batch_spec(recipe, length, predictions, rows))("hlo"))


def test_recipes_have_the_phases_of_their_runs(tool):
    recipe = read_recipe(PretrainRecipe, ROOT / "tools" / "recipes" / "bert_base.toml")
    assert tool.phases(recipe) == [(128, 20, 256), (512, 77, 256)]


def test_shapes_are_those_of_real_batches(tool):
    recipe = toy_recipe(masking="whole_word", masking_rate=0.15)
    x, y, weights = tool.batch_spec(recipe, 32, None, 4)
    assert all(spec.shape.is_fully_defined() for spec in tf.nest.flatten((x, y, weights)))
    assert x["token_ids"].shape == (4, 32)
    assert x["mask_positions"].shape == y["masked_lm"].shape == weights["masked_lm"].shape == (4, 8)
    _, y, _ = tool.batch_spec(toy_recipe(**ROBERTA), 32, 5, 4)
    assert list(y) == ["masked_lm"]


def test_a_dynamic_step_is_refused(toy_config, toy_batch):
    model = BertPretrainer(toy_config, "unpadded")
    model.compile(AdamW())
    spec = tf.nest.map_structure(lambda array: tf.TensorSpec(array.shape, array.dtype), toy_batch)
    text = compile_step(Trainer(model).step, spec)("hlo")
    with pytest.raises(ValueError, match="static. Received: .* of dynamic size"):
        check_hlo(text)


def test_calls_to_the_outside_are_refused():
    line = "  %result.1 = f32[4]{0} add(f32[4]{0} %x, f32[4]{0} %x)\n"
    check_hlo(line)
    call = '  ROOT %call.2 = (f32[4]{0}, s32[]) custom-call(%result.1), custom_call_target="TopK"\n'
    with pytest.raises(ValueError, match=r"Received: 1 calls .* %call.2 \(custom-call\)"):
        check_hlo(line + call)
    with pytest.raises(ValueError, match="outfeed"):
        check_hlo(line + "  %o = token[] outfeed(%result.1, %t)\n")
    with pytest.raises(ValueError, match="must be the text of an HLO module"):
        check_hlo("")


def test_a_model_of_a_strategy_is_refused(toy_config):
    with mirrored().scope():
        model = BertPretrainer(toy_config)
        model.compile(AdamW())
    with pytest.raises(ValueError, match="outside of any strategy.*MirroredStrategy"):
        compile_step(Trainer(model).step, None)


def test_the_report_adds_up(tool):
    gib = 2**30
    sizes = {
        "arguments": 3 * gib,
        "temporaries": 2 * gib,
        "code": 0,
        "outputs": 3 * gib,
        "alias": 2 * gib,
        "seconds": 1.0,
    }
    assert tool.report(sizes, "v5e:2x2").startswith("6.00 GiB of 16 (arguments 3.00, temporaries 2.00")
    assert "does NOT fit" in tool.report({**sizes, "temporaries": 12 * gib}, "v5e:2x2")
    assert "refused by the compiler: too" in tool.report({"error": "too much"}, "v5e:2x2")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--layout", "dense", "--chips", "3"], "3 chips, 32 rows"),
        (["--layout", "dense", "--topology", "v9:1"], "one of v5e.*v9:1"),
        (["--layout", "dense", "--init-from", "runs/x"], "init_from=runs/x"),
        ([], "`layout` must be dense"),
    ],
)
def test_the_tool_refuses(tool, flags, message):
    with pytest.raises(SystemExit, match=message):
        tool.main(flags)


@pytest.mark.skipif(importlib.util.find_spec("jax") is not None, reason="jax is here")
def test_a_missing_compiler_is_named(tool):
    with pytest.raises(ValueError, match="must have jax and libtpu. Received: exit code 1 .*'jax'"):
        tool.compile_for_tpu(b"", "v5e:2x2", sys.executable)


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs jax and libtpu")
def test_the_compiler_for_tpus_takes_the_step():
    command = [sys.executable, str(TOOL), "--layout", "dense", "--remat", "--batch-size", "8"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "GiB of 16" in run.stdout
    assert "fits" in run.stdout
