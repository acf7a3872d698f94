"""tools/finetune.py and predict.py: from files to measured models, for each kind of task."""

import dataclasses
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
from conftest import ROOT
from safetensors.numpy import load_file

from keras_bert import (
    BertEncoder,
    BertQuestionAnswering,
    EncoderConfig,
    WordPieceTokenizer,
    load_pretrained,
)
from keras_bert.runs.finetuning_recipe import FinetuneRecipe
from keras_bert.runs.finetuning_run import FinetuneRun, finetune
from keras_bert.training.callbacks import OnBest

WORDS = [*"abcdefgh", "good", "bad", "fine", "poor", ".", "who", "is"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def init(tmp_path_factory):
    folder = tmp_path_factory.mktemp("init")
    keras.utils.set_random_seed(0)
    config = EncoderConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        initializer_range=0.1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    BertEncoder(config, tokenizer=WordPieceTokenizer(PIECES)).save_pretrained(folder)
    return str(folder)


def sentences(count):
    """(text, whether "good" or "fine" is in it)"""
    rows = []
    for number in range(count):
        word = ["bad", "good", "poor", "fine"][number % 4]
        others = RNG.choice(list("abcdefgh"), RNG.integers(1, 6)).tolist()
        rows.append((" ".join([*others[:2], word, *others[2:]]), number % 2))
    return rows


def tsv(rows):
    return "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)


def conll(rows):
    """The judging word is an entity."""
    lines = []
    for text, _ in rows:
        for word in text.split():
            kind = {"good": "B-plus", "fine": "B-plus", "bad": "B-minus", "poor": "B-minus"}.get(
                word, "O"
            )
            lines.append(f"{word} {kind}\n")
        lines.append("\n")
    return "".join(lines)


def questions(rows, some_without=False):
    qas = []
    for number, (text, _) in enumerate(rows):
        word = next(word for word in text.split() if len(word) > 1)
        asked = {
            "id": str(number),
            "question": "who is",
            "answers": [{"text": word, "answer_start": text.index(word)}],
        }
        if some_without and number % 3 == 0:
            asked |= {"answers": [], "is_impossible": True}
        qas.append({"context": text, "qas": [asked]})
    return json.dumps({"data": [{"paragraphs": qas}]})


def choices(rows):
    lines = []
    for number, (text, _) in enumerate(rows):
        options = ["bad", "bad", "bad"]
        options[number % 3] = "good"
        lines.append(json.dumps({"text": text, "choices": options, "label": number % 3}) + "\n")
    return "".join(lines)


KINDS = {
    "classification": (".tsv", tsv, "accuracy"),
    "regression": (".tsv", lambda rows: tsv((text, 2.5 * label) for text, label in rows), "pearson"),
    "multi_label": (
        ".tsv",
        lambda rows: tsv((t, "x,y" if is_x else "y") for t, is_x in rows),
        "f1_micro",
    ),
    "tagging": (".conll", conll, "f1"),
    "answers": (".json", questions, "f1"),
    "choice": (".jsonl", choices, "accuracy"),
}


def make_recipe(init, tmp_path, task="classification", **options):
    suffix, write, _ = KINDS[task]
    paths = {}
    for split, count in (("train", 64), ("dev", 24)):
        path = tmp_path / f"{split}{suffix}"
        path.write_text(write(sentences(count)))
        paths[split] = str(path)
    settings = {
        "epochs": 6,
        "batch_size": 8,
        "learning_rate": 0.01,
        "max_length": 16,
        "stride": 4,
        "workdir": str(tmp_path / "work"),
        **paths,
        **options,
    }
    return FinetuneRecipe(task=task, init=init, **settings)


@pytest.mark.parametrize("task", KINDS)
def test_every_kind_learns_and_leaves_what_it_promises(init, tmp_path, task):
    recipe = make_recipe(init, tmp_path, task)
    metrics = finetune(recipe)
    score = KINDS[task][2]
    assert metrics["dev"][score]["mean"] > (80 if task == "answers" else 0.8)
    work = tmp_path / "work"
    assert json.loads((work / "metrics.json").read_text()) == metrics
    assert score in (work / "report.md").read_text()
    drawings = ["learning.png"] if task in ("answers", "choice") else ["learning.png", "dev.png"]
    assert sorted(path.name for path in work.glob("*.png")) == sorted(drawings)
    for name in drawings:
        assert (work / name).read_bytes().startswith(b"\x89PNG")
        assert f"({name})" in (work / "report.md").read_text()
    lines = (work / "seed_0" / "predictions_dev.jsonl").read_text().splitlines()
    assert len(lines) == 24
    model = load_pretrained(metrics["best"])
    assert model.head == type(FinetuneRun(recipe).kind).model.head
    if task == "tagging":
        assert model.label_names == ("O", "B-minus", "B-plus")


@pytest.mark.parametrize("task", ["classification", "regression", "multi_label", "tagging"])
def test_packed_rows_learn_the_same(init, tmp_path, task):
    """Several texts in a row, compiled: static shapes, fewer rows, as good a score."""
    recipe = make_recipe(init, tmp_path, task, layout="packed", jit_compile=True, epochs=8)
    metrics = finetune(recipe)
    assert metrics["dev"][KINDS[task][2]]["mean"] > 0.8


@pytest.mark.parametrize("task", ["answers", "choice"])
def test_packed_rows_are_refused_where_texts_share_a_label(init, tmp_path, task):
    with pytest.raises(ValueError, match="one label for each text, or for each word"):
        finetune(make_recipe(init, tmp_path, task, layout="packed"))


def test_labels_and_predictions_keep_names_and_order(init, tmp_path):
    """From the file's labels to the checkpoint and to what tools/predict.py prints."""
    rows = [(text, ["nay", "yea"][label]) for text, label in sentences(64)]
    recipe = make_recipe(init, tmp_path, epochs=12)
    for path in (recipe.train, recipe.dev):
        with open(path, "w") as file:
            file.write(tsv(rows))
    best = finetune(recipe)["best"]
    texts = ["a good b", "", "c bad"] + ["d fine"] * 30
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    command = [sys.executable, str(ROOT / "tools" / "predict.py"), best, "--batch-size", "4"]
    run = subprocess.run(
        [*command, "--input", str(tmp_path / "texts.txt")], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    out = [json.loads(line) for line in run.stdout.splitlines()]
    assert [row["label"] for row in out[:1] + out[2:]] == ["yea", "nay"] + ["yea"] * 30
    again = [sys.executable, str(ROOT / "tools" / "predict.py"), best, "--column", "x"]
    run = subprocess.run([*again, "--input", recipe.dev], capture_output=True, text=True)
    assert run.returncode == 1
    assert "`column` must be one of text, label. Received: x." in run.stderr


def test_a_run_goes_on_and_seeds_are_added(init, tmp_path, monkeypatch):
    """Killed after an epoch, it scores as one that was not; other settings are refused."""
    recipe = make_recipe(init, tmp_path, epochs=3)
    whole = finetune(dataclasses.replace(recipe, workdir=str(tmp_path / "whole")))
    calls = []

    on_epoch_end = OnBest.on_epoch_end

    def die(self, epoch, logs=None):
        calls.append(epoch)
        if epoch == 1:
            raise KeyboardInterrupt
        on_epoch_end(self, epoch, logs)

    with monkeypatch.context() as patch:
        patch.setattr(OnBest, "on_epoch_end", die)
        with pytest.raises(KeyboardInterrupt):
            finetune(recipe)
    assert calls == [0, 1]
    again = finetune(recipe)
    assert again["dev"] == whole["dev"]
    with pytest.raises(ValueError, match="learning_rate was 0.01, is 0.02"):
        finetune(dataclasses.replace(recipe, learning_rate=0.02))
    more = finetune(dataclasses.replace(recipe, seeds=2))
    assert len(more["dev"]["accuracy"]["values"]) == 2
    assert more["dev"]["accuracy"]["values"][0] == again["dev"]["accuracy"]["mean"]


def test_the_lowest_blocks_can_stay(init, tmp_path):
    recipe = make_recipe(init, tmp_path, freeze_layers=1, epochs=1)
    best = finetune(recipe)["best"]
    before, after = (load_file(f"{folder}/model.safetensors") for folder in (init, best))
    after = {name.removeprefix("bert."): array for name, array in after.items()}
    for name, array in before.items():
        is_same = np.array_equal(array, after[name])
        assert is_same == (not name.startswith("pooler")), name
    with pytest.raises(ValueError, match="`freeze_layers` must be at most.* 1. Received: 2"):
        finetune(make_recipe(init, tmp_path, freeze_layers=2, workdir=str(tmp_path / "other")))


def test_answers_may_be_missing(init, tmp_path):
    """The threshold of no answer is found on dev, stays with the model, and is used for test."""
    recipe = make_recipe(init, tmp_path, "answers", epochs=2)
    for path in (recipe.train, recipe.dev):
        with open(path, "w") as file:
            file.write(questions(sentences(24), some_without=True))
    metrics = finetune(dataclasses.replace(recipe, test=recipe.dev))
    scores = metrics["dev"]
    assert {"best_f1", "no_answer_exact", "has_answer_f1"} <= set(scores)
    assert scores["f1"]["mean"] == pytest.approx(scores["best_f1"]["mean"])
    assert metrics["test"] == scores
    model = load_pretrained(metrics["best"])
    assert model.no_answer_threshold == scores["best_f1_threshold"]["mean"]
    again = BertQuestionAnswering.from_config(model.get_config())
    assert again.no_answer_threshold == model.no_answer_threshold
    assert "(dev.png)" in (tmp_path / "work" / "report.md").read_text()
    model.no_answer_threshold = -1e9
    assert [row["answer"] for row in model.predict_text(["who is"], ["bad a"])] == [""]
    (row,) = model.predict_text(["who is"], ["bad a"], no_answer_threshold=np.inf)
    assert row["answer"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "sst3"}, "`task` must be one of cola, sst2"),
        ({"init": ""}, "`init` must name a pretrained directory"),
        ({"dev": None}, "`dev` must be given"),
        ({"epochs": 0}, "`epochs` must be at least 1"),
        ({"text": "sentence"}, "must have the columns sentence. Received: text, label"),
        ({"jit_compile": True}, "`layout` must be dense or packed"),
        ({"balance": True, "task": "regression"}, "must be of a task with one label"),
    ],
)
def test_refusals(init, tmp_path, options, message):
    recipe = make_recipe(init, tmp_path)
    with pytest.raises(ValueError, match=message):
        finetune(dataclasses.replace(recipe, **options))


def test_unknown_labels_of_the_development_data_are_named(init, tmp_path):
    recipe = make_recipe(init, tmp_path)
    with open(recipe.dev, "a") as file:
        file.write("a b\t7\n")
    with pytest.raises(ValueError, match="Labels must be among 0, 1. Received: 7"):
        finetune(recipe)


def test_ax_is_trained_on_mnli_and_predicted(init, tmp_path):
    """GLUE's diagnostic data has no labels: it gets predictions and no scores."""
    names = ["entailment", "neutral", "contradiction"]
    table = "sentence1\tsentence2\tgold_label\n" + "".join(
        f"good {word}\tbad\t{names[i % 3]}\n" for i, word in enumerate("abcdef")
    )
    (tmp_path / "mnli.tsv").write_text(table)
    (tmp_path / "diagnostic.tsv").write_text("index\tsentence1\tsentence2\n0\tgood\tbad\n1\ta\tb\n")
    mnli = str(tmp_path / "mnli.tsv")
    work = str(tmp_path / "work")
    metrics = finetune(
        FinetuneRecipe("ax", init, work, str(tmp_path), train=mnli, dev=mnli, epochs=1, batch_size=4)
    )
    assert "test" not in metrics
    lines = (tmp_path / "work" / "seed_0" / "predictions_test.jsonl").read_text().splitlines()
    assert [set(json.loads(line)["probabilities"]) for line in lines] == [set(names)] * 2


def test_the_data_set_of_the_task():
    recipe = FinetuneRecipe("squad2", data="tfds")
    assert recipe._data == "tfds:squad/v2.0"
    with pytest.raises(ValueError, match="the task swag has none of its own. Received: tfds"):
        FinetuneRecipe("swag", data="tfds").resolve_task()
