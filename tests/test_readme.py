"""README.md and CONTRIBUTING.md: each snippet of Python runs, and what they name exists."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from keras_bert import (
    AdamW,
    BertEncoder,
    BertPretrainer,
    BertTokenClassifier,
    EncoderConfig,
    PretrainingData,
    WordPieceTokenizer,
    build_corpus,
    export_saved_model,
)
from keras_bert.runs.finetuning_recipe import FinetuneRecipe
from keras_bert.runs.flags import parse_flags

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
TEXT = "a an film to remember dull fine not bad at all . the of list returns function integers"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TEXT.split(), "caf", "##e"]
# What is shorter, or nearer, here than in the README: {in the snippet: instead}.
SHORTER = {
    "steps_per_epoch=100": "steps_per_epoch=2",
    "builtin_documents()": "['The function returns a list. It is fine.', 'A film. Not bad.'] * 4",
    "size=4000": "size=60",
    "steps=1000": "steps=2",
    '"mirrored"': '"none"',
    "evaluation_batches(64, 512, context)": "evaluation_batches(4, 4, context)",
    "training_batches(64, step, context)": "training_batches(4, step, context)",
    "bert_base": "bert_tiny",
    "hf://owner/name": "ner/",
    "path/to/": "",
}


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(PIECES)


@pytest.fixture(scope="module")
def place(tokenizer, tmp_path_factory):
    """A directory with all that the snippets name; they run in it one after the other."""
    folder = tmp_path_factory.mktemp("readme")
    config = EncoderConfig.from_preset("bert_tiny", vocab_size=len(PIECES))
    BertEncoder(config, tokenizer=tokenizer).save_pretrained(folder / "bert")
    for name in ("all-MiniLM-L6-v2", "uncased_L-12_H-768_A-12"):
        shutil.copytree(folder / "bert", folder / name)
    BertTokenClassifier(config, 3, tokenizer=tokenizer).save_pretrained(folder / "ner")
    export_saved_model(
        BertPretrainer(config, tokenizer=tokenizer), tokenizer, folder / "runs/pretrain/saved_model"
    )
    return folder


@pytest.fixture
def names(tokenizer):
    """What the prose around a snippet has spoken of."""
    texts = ["The function returns a list. It is fine.", "A film. Not bad. Not dull."] * 4
    return {
        "AdamW": AdamW,
        "BertEncoder": BertEncoder,
        "BertPretrainer": BertPretrainer,
        "EncoderConfig": EncoderConfig,
        "config": EncoderConfig.from_preset("bert_tiny", vocab_size=len(PIECES)),
        "data": PretrainingData(build_corpus(texts, tokenizer), tokenizer, max_length=16),
        "ids": np.ones((1, 3), "int32"),
        "mask": np.ones((1, 3), "int32"),
        "texts": texts,
        "tokenizer": tokenizer,
    }


@pytest.mark.filterwarnings("ignore:.*newly initialised")
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_snippet_runs(number, place, names, monkeypatch, capsys):
    monkeypatch.chdir(place)
    code = BLOCKS[number]
    for written, shorter in SHORTER.items():
        code = code.replace(written, shorter)
    exec(compile(code, f"README.md, snippet {number}", "exec"), names)
    printed = capsys.readouterr().out
    if 'model.save("sentiment.keras")' in code:
        (answer,) = eval(printed.splitlines()[-1])
        assert set(answer["probabilities"]) == {"bad", "good"}
        assert Path("sentiment/model.safetensors").exists()
    if "served/" in code:
        assert re.search(r"\[b'(bad|good)'\]", printed)
    if "MASK" in code and "predict_text" in code:
        ((words,),) = eval(printed.splitlines()[-1])
        assert len(words) == 5
    if "trainer.evaluate" in code:
        assert re.search(r"'masked_lm_loss': \d", printed)


def test_commands_of_fine_tuning_have_flags_that_exist(monkeypatch):
    commands = re.findall(r"^python tools/finetune\.py (.*)$", README, re.MULTILINE)
    assert len(commands) > 3
    for command in commands:
        assert parse_flags(FinetuneRecipe, ["--task", *shlex.split(command)]).init


def test_files_and_headings_that_are_named_exist():
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    texts = [README, guide, *(path.read_text(encoding="utf-8") for path in ROOT.glob("tools/*.py"))]
    pattern = r"(?:tools|tests|docs|keras_bert)/[\w/]+\.(?:py|toml|png)"
    names = {name for text in texts for name in re.findall(pattern, text)}
    assert len(names) > 20
    for name in names:
        assert Path(ROOT, name).exists(), name
    assert not re.search(r"^[A-Z]{3,}$", README, re.MULTILINE)  # no place left to be filled
    headings = {
        re.sub(r"[^\w -]", "", h).lower().replace(" ", "-")
        for h in re.findall(r"^#+ (.*)$", README, re.M)
    }
    for anchor in re.findall(r"\]\(#([\w-]+)\)", README):
        assert anchor in headings, anchor


def test_recipes_of_contributing_are_short():
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", guide, flags=re.MULTILINE)[1:]
    recipes = [section for section in sections if section.startswith("Add ")]
    assert len(recipes) == 5
    assert all(len(recipe.strip().splitlines()) - 2 <= 10 for recipe in recipes)
