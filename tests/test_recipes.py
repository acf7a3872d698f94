"""keras_bert.recipes, serving and tools/pretrain.py: a shrunken real run, its resume, its refusals."""

import dataclasses
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_bert import recipes
from keras_bert.recipes import PretrainRecipe, parse_flags, pretrain, read_recipe
from keras_bert.reports import fill_in_a_fresh_process, mask_sentences
from keras_bert.serving import export_saved_model

TOOL = Path(__file__).parents[1] / "tools" / "pretrain.py"
ANIMALS, VERBS, PLACES = (
    ["cat", "dog", "horse", "bird", "mouse", "fish"],
    ["sees", "hears", "follows", "likes", "fears"],
    ["garden", "house", "river", "forest", "street"],
)


def write_corpus(folder, documents=40, sentences=12):
    """Stories of a fixed grammar, each about one animal: enough to learn from in seconds."""
    rng = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    for number in range(documents):
        hero = ANIMALS[number % len(ANIMALS)]
        lines = [
            f"The {hero} in the {rng.choice(PLACES)} {rng.choice(VERBS)} the {rng.choice(ANIMALS)} "
            f"near the {rng.choice(PLACES)}."
            for _ in range(sentences)
        ]
        (folder / f"story_{number:02d}.txt").write_text(" ".join(lines))
    return folder


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return PretrainRecipe(
        workdir=str(folder / "work"),
        corpus=str(write_corpus(folder / "texts")),
        held_out_every=5,
        vocab_size=90,
        max_length=48,
        batch_size=8,
        steps=4,
        save_every=2,
        warmup_steps=1,
        dropout=0.1,
        evaluate_examples=16,
        final_examples=100,
    )


@pytest.fixture(scope="module")
def report(recipe):
    return pretrain(recipe)


def load_tool():
    spec = importlib.util.spec_from_file_location("pretrain_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_run_leaves_everything_it_promises(recipe, report):
    folder = Path(recipe.workdir)
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "recipe.json", "vocab.txt", "tokenizer_config.json", "states", "logs", "history.json",
        "loss.png", "model.keras", "saved_model", "report.json",
    }  # fmt: skip
    assert json.loads((folder / "recipe.json").read_text()) == dataclasses.asdict(recipe)
    assert json.loads((folder / "report.json").read_text()) == report
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert len((folder / "vocab.txt").read_text().splitlines()) == 90
    history = json.loads((folder / "history.json").read_text())
    assert [row["step"] for row in history] == [2, 4]
    assert all(row["tokens_per_second"] > 0 for row in history)
    assert list((folder / "logs").rglob("events*"))


def test_the_report_is_counted_over_its_targets(recipe, report):
    """The figures again, from the saved model and a plain loop."""
    tokenizer = recipes.make_tokenizer(recipe)
    held_out = recipes.make_examples(recipe, tokenizer, "held_out")
    model = keras.models.load_model(Path(recipe.workdir) / "model.keras")
    total = weight = 0.0
    targets = []
    for x, y, w in held_out.evaluation_batches(8, recipe.final_examples).as_numpy_iterator():
        log_probs = tf.nn.log_softmax(model(x)["masked_lm"]).numpy()
        picked = np.take_along_axis(log_probs, y["masked_lm"][..., None], -1)[..., 0]
        total -= (picked * w["masked_lm"]).sum()
        weight += w["masked_lm"].sum()
        targets += y["masked_lm"][w["masked_lm"] > 0].tolist()
    assert report["masked_lm_loss"] == pytest.approx(total / weight, rel=1e-5)
    assert report["targets"] == len(targets) == weight
    shares = np.unique(targets, return_counts=True)[1] / len(targets)
    assert report["unigram_entropy"] == pytest.approx(-(shares * np.log(shares)).sum(), rel=1e-6)
    bits = report["masked_lm_loss"] / np.log(2) / held_out.characters_per_token
    assert report["bits_per_character"] == pytest.approx(bits)


def test_the_export_answers_as_the_model_does(recipe, report):
    tokenizer = recipes.make_tokenizer(recipe)
    model = keras.models.load_model(Path(recipe.workdir) / "model.keras")
    model.tokenizer = tokenizer
    assert len(report["filled"]) == 5
    texts = [row["text"] for row in report["filled"]]
    for row, masks in zip(report["filled"], model.predict_text(texts), strict=True):
        words, scores = zip(*masks[0], strict=True)
        assert list(words) == row["words"]
        np.testing.assert_allclose(scores, row["scores"], atol=1e-5)


def test_masks_of_a_batch_do_not_disturb_each_other(recipe, report):
    serve = tf.saved_model.load(report["saved_model"]).signatures["serving_default"]
    texts = ["The [MASK] sees the [MASK].", "No mask here.", "", "[MASK]", "cat " * 600 + "[MASK]"]
    out = {name: value.numpy() for name, value in serve(text=tf.constant(texts)).items()}
    assert out["words"].shape == out["scores"].shape == (5, 2, 5)
    shown = out["words"] != b""
    assert shown[:, :, 0].tolist() == [[1, 1], [0, 0], [0, 0], [1, 0], [0, 0]]  # the last is cut off
    np.testing.assert_array_equal(out["scores"] > 0, shown)
    for index, text in enumerate(texts):
        alone = serve(text=tf.constant([text]))
        masks = alone["words"].shape[1]
        np.testing.assert_array_equal(alone["words"][0], out["words"][index, :masks])
        np.testing.assert_allclose(alone["scores"][0], out["scores"][index, :masks], atol=1e-6)
    assert (np.diff(out["scores"], axis=2) <= 0).all()


def test_an_interrupted_run_ends_as_an_uninterrupted_one(recipe, report, tmp_path):
    """Killed behind the first saved state: the same recipe in a copy of what was left."""
    copy = dataclasses.replace(recipe, workdir=str(tmp_path / "copy"))
    for name in ("vocab.txt", "tokenizer_config.json"):
        tf.io.gfile.makedirs(copy.workdir)
        tf.io.gfile.copy(f"{recipe.workdir}/{name}", f"{copy.workdir}/{name}")
    state = "states/step_00000002"
    tf.io.gfile.makedirs(f"{copy.workdir}/{state}")
    for name in tf.io.gfile.listdir(f"{recipe.workdir}/{state}"):
        tf.io.gfile.copy(f"{recipe.workdir}/{state}/{name}", f"{copy.workdir}/{state}/{name}")
    again = pretrain(copy)
    same = {"masked_lm_loss", "sentence_loss", "masked_lm_accuracy", "unigram_entropy", "filled"}
    for name in same:
        assert again[name] == report[name], name
    one, other = (keras.models.load_model(f"{r.workdir}/model.keras") for r in (recipe, copy))
    for weight, expected in zip(other.weights, one.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), expected.numpy())


def test_exports_are_versions_and_drafts_are_replaced(recipe, report, tmp_path):
    model = keras.models.load_model(Path(recipe.workdir) / "model.keras")
    tokenizer = recipes.make_tokenizer(recipe)
    (tmp_path / "1.draft").mkdir()  # an export that was interrupted
    for version in ("1", "2"):
        assert export_saved_model(model, tokenizer, tmp_path) == f"{tmp_path}/{version}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
    exported = SavedModel.FromString((tmp_path / "1" / "saved_model.pb").read_bytes())
    functions = exported.meta_graphs[0].graph_def.library.function
    ops = {node.op for function in functions for node in function.node_def}
    assert "FastWordpieceTokenizeWithOffsets" in ops
    assert not ops & {"PyFunc", "EagerPyFunc", "TFText>RoundRobinTrim"}
    small = type(tokenizer)(tokenizer.vocabulary[:-1])
    with pytest.raises(ValueError, match="89 entries, 90 rows"):
        export_saved_model(model, small, tmp_path)


def test_other_settings_do_not_go_on_with_a_run(recipe, report):
    with pytest.raises(ValueError, match="seed was 0, is 5.*--workdir"):
        pretrain(dataclasses.replace(recipe, seed=5))
    recipes.prepare_workdir(dataclasses.replace(recipe, keep=3, evaluate_examples=5))


def test_a_run_that_came_to_nothing_locks_nothing(recipe, tmp_path):
    empty = dataclasses.replace(recipe, workdir=str(tmp_path / "work"), corpus="nowhere")
    with pytest.raises(ValueError, match="matches none"):
        pretrain(empty)
    right = dataclasses.replace(empty, corpus=recipe.corpus)
    recipes.prepare_workdir(right)
    assert json.loads((tmp_path / "work" / "recipe.json").read_text())["corpus"] == recipe.corpus


def test_a_finished_run_gives_its_report_again(recipe, report):
    assert pretrain(recipe) == report
    assert [path.name for path in (Path(recipe.workdir) / "saved_model").iterdir()] == ["1"]


def test_other_text_does_not_go_on_with_a_run(recipe, report, tmp_path):
    """The same settings, but a file of the corpus has changed."""
    texts = write_corpus(tmp_path / "texts")
    moved = dataclasses.replace(recipe, workdir=str(tmp_path / "work"), corpus=str(texts))
    Path(moved.workdir).mkdir()
    for name in ("vocab.txt", "tokenizer_config.json", "states"):
        (Path(moved.workdir) / name).symlink_to(Path(recipe.workdir) / name)
    story = texts / "story_00.txt"
    story.write_text(story.read_text() + " The cat likes the dog near the house.")
    with pytest.raises(ValueError, match="text and vocabulary it began with.*step 4"):
        pretrain(moved)


def test_words_are_hidden_only_where_one_piece_brings_them_back(recipe, report):
    tokenizer = recipes.make_tokenizer(recipe)
    long = "The cat sees the unknowable dog near the old house today."
    documents = tf.ragged.constant([[long, "Second."], ["Too short."], [], ["漢字 " * 10]])
    text, word = mask_sentences(documents, tokenizer, count=5)[0]
    assert (text, word) == (long.replace(" dog ", " [MASK] "), "dog")
    assert len(mask_sentences(documents, tokenizer, count=5)) == 1
    assert fill_in_a_fresh_process("nowhere", []) == []


def test_float16_trains_and_skipped_steps_still_count(recipe, tmp_path):
    half = dataclasses.replace(
        recipe, workdir=str(tmp_path / "half"), dtype="mixed_float16", steps=2, save_every=1
    )
    assert np.isfinite(pretrain(half)["masked_lm_loss"])
    steps = [path.name for path in sorted((tmp_path / "half" / "states").iterdir())]
    assert steps == ["step_00000001", "step_00000002"]


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


def test_help_documents_every_setting():
    run = subprocess.run([sys.executable, TOOL, "--help"], capture_output=True, text=True, check=True)
    for field in dataclasses.fields(PretrainRecipe):
        assert f"--{field.name.replace('_', '-')}" in run.stdout, field.name
    assert "Share of tokens to predict in training." in run.stdout


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--corpus", "nowhere/*.txt"], "matches none"),
        (["--vocabulary", "nowhere.txt"], "vocabulary must be an existing file"),
        (["--vocabulary", "poor.txt"], "must hold.*without .MASK."),
        (["--max-length", "600"], "max_length=600, bert_tiny has 512"),
        (["--save-every", "3"], "save_every=3, steps=4"),
        (["--warmup-steps", "9"], "warmup_steps=9, total_steps=4"),
        (["--dtype", "float7"], "float7"),
        (["--seed", "-1"], "seed.*Received: -1"),
        (["--held-out-every", "100"], "held_out split.*--held-out-every"),
        (["--preset", "bert_tny"], "did you mean 'bert_tiny'"),
        (["--recipe"], "expected one argument"),
        (["--corpus", "one"], "at least two documents"),
        (["--corpus", "empty"], "some text"),
        (["--corpus", "latin"], "UTF-8.*byte 7"),
        (["--workdir", "texts/story_00.txt/under"], "workdir.*written to"),
        (["--vocab-size", "10"], "`size` must be at least"),
    ],
)
def test_bad_input_is_one_line_that_says_what_to_do(
    recipe, report, tmp_path, monkeypatch, capsys, flags, words
):
    monkeypatch.chdir(Path(recipe.corpus).parent)
    for name, content in (("one", b"One. Two. Three."), ("empty", b" \n"), ("latin", b"A word \xe9.")):
        folder = Path(name)
        folder.mkdir(exist_ok=True)
        (folder / "a.txt").write_bytes(content)
    Path("poor.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\n")
    base = {**dataclasses.asdict(recipe), "workdir": str(tmp_path / "work"), "held_out_every": 2}
    if "--vocabulary" not in flags and "--vocab-size" not in flags:
        base["vocabulary"] = f"{recipe.workdir}/vocab.txt"
    arguments = [
        f"--{key.replace('_', '-')}={value}"
        for key, value in base.items()
        if value is not None and not isinstance(value, bool)
    ]
    with pytest.raises(SystemExit) as stop:
        load_tool().main([*arguments, *flags])
    message = str(stop.value)
    if message == "2":  # a recipe that is inconsistent in itself is refused with its flags, in a frame
        message = " ".join(capsys.readouterr().err.replace("│", " ").split())
    else:
        assert message.startswith("pretrain.py: ")
        assert "\n" not in message
    assert re.search(words, message), message
