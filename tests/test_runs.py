"""tools/pretrain.py and keras_bert.runs: shrunken real runs of every form, their resume, refusals."""

import dataclasses
import importlib.util
import json
import os
import re
import shutil
import signal
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import training_run
from conftest import MEASURED, ROOT

from keras_bert import config
from keras_bert.data.record_building import RecordRecipe, build_records
from keras_bert.models.auto import load_pretrained
from keras_bert.models.pretrainer import BertMaskedLM
from keras_bert.runs import pretraining_run
from keras_bert.runs.pretraining_recipe import PretrainRecipe
from keras_bert.runs.pretraining_report import fill_in_a_fresh_process, mask_sentences
from keras_bert.runs.pretraining_run import PretrainRun, pretrain
from keras_bert.runs.workdir import prepare_workdir
from keras_bert.serving.export import export_saved_model
from keras_bert.text.pretrained import load_tokenizer
from keras_bert.text.vocabulary_training import extend_vocabulary
from keras_bert.text.wordpiece import WordPieceTokenizer
from keras_bert.training.distribution import make_strategy
from keras_bert.training.trainer import Trainer

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


@pytest.fixture(scope="module", autouse=True)
def _small_presets():
    """Tracing and compiling is what these runs take their time for."""
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    with pytest.MonkeyPatch.context() as patch:
        for name, layers in (("bert_tiny", 1), ("bert_mini", 2)):
            patch.setitem(config.PRESETS, name, {**small, "num_hidden_layers": layers})
        yield


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


@pytest.fixture
def quick(monkeypatch):
    """Leaves out the export at the end; the run of `report` has it."""
    monkeypatch.setattr(pretraining_run, "export_saved_model", lambda *_: "")
    monkeypatch.setattr(pretraining_run, "fill_in_a_fresh_process", lambda *_: [])


@pytest.fixture(scope="module")
def vocabulary(recipe, report):
    """The tokenizer of the first run's corpus, for runs that need not train one."""
    return {"tokenizer": f"{recipe.workdir}/vocab.txt"}


def load_tool():
    spec = importlib.util.spec_from_file_location("pretrain_tool", ROOT / "tools" / "pretrain.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flags_of(recipe):
    """The command line of a recipe."""
    default = PretrainRecipe()
    flags = []
    for name, value in dataclasses.asdict(recipe).items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            flags += [] if value == getattr(default, name) else [flag]
        elif value is not None:
            flags.append(f"{flag}={value}")
    return flags


def trained(recipe):
    """The model that a finished run left."""
    return keras.models.load_model(Path(recipe.workdir) / "model.keras")


def history(recipe):
    return json.loads((Path(recipe.workdir) / "history.json").read_text())


def assert_same_weights(one, other):
    for weight, expected in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), expected.numpy())


def stop_at(monkeypatch, step):
    """Sends this process SIGTERM while a run makes the step of that number, once."""

    class Stopping(pretraining_run.Progress):
        sent = False

        def on_train_batch_begin(self, batch, logs=None):
            if self.first + batch == step - 1 and not Stopping.sent:
                Stopping.sent = True
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(pretraining_run, "Progress", Stopping)


# --- what a run leaves


def test_a_run_leaves_everything_it_promises(recipe, report):
    folder = Path(recipe.workdir)
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "recipe.json", "vocab.txt", "tokenizer_config.json", "states", "logs", "history.json",
        "loss.png", "model.keras", "pretrained", "saved_model", "report.json",
    }  # fmt: skip
    assert json.loads((folder / "recipe.json").read_text()) == dataclasses.asdict(recipe)
    assert json.loads((folder / "report.json").read_text()) == report
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert len((folder / "vocab.txt").read_text().splitlines()) == 90
    assert [row["step"] for row in history(recipe)] == [2, 4]
    assert all(row["tokens_per_second"] > 0 for row in history(recipe))
    assert list((folder / "logs").rglob("events*"))


def test_the_report_is_counted_over_its_targets(recipe, report):
    """The figures again, from the saved model and a plain loop."""
    held_out = PretrainRun(recipe, make_strategy("none")).phases[-1].held_out
    assert held_out.masking_rate == 0.15
    model = trained(recipe)
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
    model = trained(recipe)
    model.tokenizer = load_tokenizer(recipe.workdir)
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
    assert shown[:, :, 0].tolist() == [[1, 1], [0, 0], [0, 0], [1, 0], [1, 0]]
    np.testing.assert_array_equal(out["scores"] > 0, shown)
    for index, text in enumerate(texts):
        alone = serve(text=tf.constant([text]))
        masks = alone["words"].shape[1]
        np.testing.assert_array_equal(alone["words"][0], out["words"][index, :masks])
        np.testing.assert_allclose(alone["scores"][0], out["scores"][index, :masks], atol=1e-6)
    assert (np.diff(out["scores"], axis=2) <= 0).all()


def test_words_are_hidden_only_where_one_piece_brings_them_back(recipe, report):
    tokenizer = load_tokenizer(recipe.workdir)
    long = "The cat sees the unknowable dog near the old house today."
    documents = tf.ragged.constant([[long, "Second."], ["Too short."], [], ["漢字 " * 10]])
    text, word = mask_sentences(documents, tokenizer, count=5)[0]
    assert (text, word) == (long.replace(" dog ", " [MASK] "), "dog")
    assert len(mask_sentences(documents, tokenizer, count=5)) == 1
    assert fill_in_a_fresh_process("nowhere", []) == []


# --- resume


def test_sigterm_saves_and_the_same_command_goes_on(
    recipe, report, quick, tmp_path, monkeypatch, capsys
):
    """In the middle between two saved states."""
    again = dataclasses.replace(recipe, workdir=str(tmp_path / "work"))
    stop_at(monkeypatch, 3)
    with pytest.raises(SystemExit) as stop:
        load_tool().main(flags_of(again))
    assert stop.value.code == 143
    assert "Stopped at step 3" in capsys.readouterr().err
    assert (tmp_path / "work" / "states" / "step_00000003").is_dir()
    assert not (tmp_path / "work" / "report.json").exists()
    load_tool().main(flags_of(again))
    printed = capsys.readouterr().out
    assert "Going on from step 3." in printed
    assert f"held-out masked LM loss  {report['masked_lm_loss']:.3f} nats" in printed
    assert_same_weights(trained(again), trained(recipe))
    for row, expected in zip(history(again), history(recipe), strict=True):
        assert row.keys() == expected.keys()
        for name in row.keys() - MEASURED:
            assert row[name] == expected[name], name


def test_ctrl_c_outside_of_training_is_one_line(recipe, monkeypatch, capsys):
    def interrupted(recipe):
        raise KeyboardInterrupt

    tool = load_tool()
    monkeypatch.setattr(tool, "pretrain", interrupted)
    with pytest.raises(SystemExit) as stop:
        tool.main(flags_of(recipe))
    assert stop.value.code == 130
    assert capsys.readouterr().err == "pretrain.py: Stopped.\n"


def test_a_finished_run_gives_its_report_again(recipe, report):
    assert pretrain(recipe) == report
    assert [path.name for path in (Path(recipe.workdir) / "saved_model").glob("[0-9]*")] == ["1"]


def test_other_settings_do_not_go_on_with_a_run(recipe, report):
    with pytest.raises(ValueError, match="seed was 0, is 5.*--workdir"):
        pretrain(dataclasses.replace(recipe, seed=5))
    prepare_workdir(dataclasses.replace(recipe, keep=3, evaluate_examples=5, on_nonfinite="skip"))


def test_a_torn_recipe_is_named(recipe, tmp_path):
    torn = dataclasses.replace(recipe, workdir=str(tmp_path))
    for content in ('{"seed": ', "[]"):
        (tmp_path / "recipe.json").write_text(content)
        with pytest.raises(ValueError, match="must be.*recipe.json"):
            prepare_workdir(torn)


def test_a_run_that_came_to_nothing_locks_nothing(recipe, tmp_path):
    empty = dataclasses.replace(recipe, workdir=str(tmp_path / "work"), corpus="nowhere")
    with pytest.raises(ValueError, match="matches none"):
        pretrain(empty)
    right = dataclasses.replace(empty, corpus=recipe.corpus)
    prepare_workdir(right)
    assert json.loads((tmp_path / "work" / "recipe.json").read_text())["corpus"] == recipe.corpus


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


# --- forms


def test_float16_trains_and_skipped_steps_still_count(recipe, vocabulary, quick, tmp_path):
    half = dataclasses.replace(
        recipe,
        workdir=str(tmp_path / "half"),
        dtype="mixed_float16",
        steps=2,
        save_every=1,
        **vocabulary,
    )
    assert np.isfinite(pretrain(half)["masked_lm_loss"])
    steps = [path.name for path in sorted((tmp_path / "half" / "states").iterdir())]
    assert steps == ["step_00000001", "step_00000002"]


def test_a_run_in_the_form_of_roberta(recipe, vocabulary, quick, tmp_path, monkeypatch):
    """And the best model so far is exported."""
    roberta = dataclasses.replace(
        recipe,
        workdir=str(tmp_path / "work"),
        objective="full_sentences",
        model_type="roberta",
        type_vocab_size=1,
        use_pooler=False,
        max_position_embeddings=50,
        beta_2=0.98,
        global_clipnorm=0,
        export_best=True,
        **vocabulary,
    )
    monkeypatch.setattr(pretraining_run, "export_saved_model", export_saved_model)
    report = pretrain(roberta)
    assert np.isfinite(report["masked_lm_loss"])
    assert not [name for name in report if name.startswith("sentence")]
    model = trained(roberta)
    assert model.sentence is None
    assert model.encoder.embeddings.word_table.shape == (90, 16)
    assert not [weight.path for weight in model.weights if "pooler" in weight.path]
    assert model.config.max_length == 49
    written = load_pretrained(report["pretrained"])
    assert written.config.model_type == "roberta"
    written.encoder.dropout_seed.assign(model.encoder.dropout_seed)  # of the run alone
    assert_same_weights(written, model)
    losses = [row["val_loss"] for row in history(roberta)]
    best = sorted(path.name for path in (tmp_path / "work" / "best").glob("[0-9]*"))
    assert len(best) == 1 + (losses[1] < losses[0])
    serve = tf.saved_model.load(f"{roberta.workdir}/best/{best[-1]}").signatures["serving_default"]
    assert serve(text=tf.constant(["The [MASK] sees."]))["words"].shape == (1, 1, 5)


def test_albert_with_two_lengths_goes_on_inside_the_second(recipe, vocabulary, quick, tmp_path):
    """LAMB, sentence order, n-grams, a shared block; killed behind a saved state, the same recipe in a
    copy of what was left.
    """
    albert = dataclasses.replace(
        recipe,
        workdir=str(tmp_path / "whole"),
        preset="bert_mini",
        objective="sentence_order",
        masking="ngram",
        embedding_size=8,
        num_hidden_groups=1,
        optimizer="lamb",
        learning_rate=0.01,
        max_length=32,
        final_steps=4,
        final_length=64,
        final_batch_size=4,
        steps=6,
        **vocabulary,
    )
    report = pretrain(albert)
    assert 0 <= report["sentence_accuracy"] <= 1
    again = dataclasses.replace(albert, workdir=str(tmp_path / "killed"))
    shutil.copytree(albert.workdir, again.workdir)
    for name in ("report.json", "history.json", "model.keras", "recipe.json"):
        (tmp_path / "killed" / name).unlink()
    shutil.rmtree(tmp_path / "killed" / "states" / "step_00000006")
    assert pretrain(again) == report
    assert [row["step"] for row in history(again)] == [2, 4, 6]
    model = trained(albert)
    assert_same_weights(trained(again), model)

    assert {w.path.split("/")[1] for w in model.weights if "block" in w.path} == {"block_0"}
    assert model.encoder.embeddings.word_table.shape == (90, 8)
    run = PretrainRun(albert, make_strategy("none"))
    rows = [next(iter(p.data.training_batches(p.batch_size)))[0] for p in run.phases]
    assert [row["token_ids"].shape for row in rows] == [(8, 32), (4, 64)]
    assert [(p.start, p.end) for p in run.phases] == [(0, 2), (2, 6)]


def test_mirrored_by_its_recipe_trains_and_exports(recipe, report, vocabulary, tmp_path, monkeypatch):
    """On two replicas, whose dropout is another; the export is read by a process without them."""
    monkeypatch.setattr(pretraining_run, "make_strategy", lambda *_: training_run.mirrored())
    mirrored = dataclasses.replace(
        recipe, workdir=str(tmp_path / "work"), strategy="mirrored", **vocabulary
    )
    again = pretrain(mirrored)
    assert again["masked_lm_loss"] == pytest.approx(report["masked_lm_loss"], abs=0.01)
    assert [row["text"] for row in again["filled"]] == [row["text"] for row in report["filled"]]
    model = trained(mirrored)
    model.tokenizer = load_tokenizer(mirrored.workdir)
    texts = [row["text"] for row in again["filled"]]
    for row, masks in zip(again["filled"], model.predict_text(texts), strict=True):
        np.testing.assert_allclose([score for _, score in masks[0]], row["scores"], atol=1e-5)


# --- going on from another run's model


def test_init_from_is_not_resume(recipe, report, tmp_path, capsys):
    new = dataclasses.replace(recipe, workdir=str(tmp_path / "new"), init_from=recipe.workdir)
    new = dataclasses.replace(new, preset="bert_mini", seed=3)  # the checkpoint has the architecture
    prepare_workdir(new)
    run = PretrainRun(new, make_strategy("none"))
    assert run.trainer.restore() == 0
    assert int(run.model.optimizer.iterations) == 0
    assert not any(np.any(m.numpy()) for m in run.model.optimizer._momentums)
    assert_same_weights(run.model, trained(recipe))
    assert run.tokenizer.vocabulary == load_tokenizer(recipe.workdir).vocabulary
    assert "initialised" not in capsys.readouterr().out

    resumed = PretrainRun(recipe, make_strategy("none"))
    assert resumed.trainer.restore() == int(resumed.model.optimizer.iterations) == 4
    assert any(np.any(m.numpy()) for m in resumed.model.optimizer._momentums)
    assert_same_weights(resumed.model, trained(recipe))


def test_init_from_names_the_heads_that_come_and_go(recipe, report, tmp_path, capsys):
    full = dataclasses.replace(
        recipe,
        workdir=str(tmp_path / "full"),
        init_from=recipe.workdir,
        objective="full_sentences",
        layer_decay=0.5,
    )
    prepare_workdir(full)
    run = PretrainRun(full, make_strategy("none"))
    assert "Left behind: sentence/kernel, sentence/bias" in capsys.readouterr().out
    assert run.model.sentence is None
    assert run.model.optimizer.rate_factor("encoder/block_0/x") == 0.5
    nothing = dataclasses.replace(full, init_from=str(tmp_path))
    with pytest.raises(ValueError, match="directory of a finished run.*model.keras"):
        PretrainRun(nothing, make_strategy("none"))


def test_init_from_takes_a_checkpoint_of_any_library(recipe, report, tmp_path, capsys):
    """One of transformers with a word table that is longer than its vocabulary, and no pooler."""
    source = trained(recipe)
    padded = BertMaskedLM(dataclasses.replace(source.config, vocab_size=96, use_pooler=False))
    tokenizer = load_tokenizer(recipe.workdir)
    padded.save_pretrained(tmp_path / "released")
    tokenizer.save_pretrained(tmp_path / "released")
    new = dataclasses.replace(
        recipe, workdir=str(tmp_path / "new"), init_from=str(tmp_path / "released")
    )
    prepare_workdir(new)
    run = PretrainRun(new, make_strategy("none"))
    printed = capsys.readouterr().out
    assert "has 96 rows for 90 entries" in printed
    assert "Newly initialised: encoder/pooler/kernel" in printed
    assert run.model.config.vocab_size == 90
    rows = padded.encoder.embeddings.word_table.numpy()[:90]
    np.testing.assert_array_equal(run.model.encoder.embeddings.word_table, rows)
    np.testing.assert_array_equal(
        run.model.encoder.blocks[0].output_dense.kernel, padded.encoder.blocks[0].output_dense.kernel
    )


def test_new_entries_are_added_behind_the_old_ones(recipe, report, quick, tmp_path):
    """In a whole run on text with words that the old vocabulary cuts into pieces."""
    texts = write_corpus(tmp_path / "texts")
    for path in texts.iterdir():
        path.write_text(path.read_text().replace("river", "riverside").replace("fish", "starfish"))
    new = dataclasses.replace(
        recipe,
        workdir=str(tmp_path / "new"),
        corpus=str(texts),
        init_from=recipe.workdir,
        new_entries=2,
        steps=2,
    )
    prepare_workdir(new)
    run = PretrainRun(new, make_strategy("none"))
    old = trained(recipe)
    assert run.tokenizer.vocabulary[:90] == load_tokenizer(recipe.workdir).vocabulary
    assert set(run.tokenizer.vocabulary[90:]) == {"riverside", "starfish"}
    assert run.model.config.vocab_size == 92
    for weight, before in zip(run.model.weights, old.weights, strict=True):
        rows = slice(90) if weight.shape != before.shape else ...
        np.testing.assert_array_equal(weight.numpy()[rows], before.numpy())
    report = pretrain(new)  # whose tokenizer is there already
    assert np.isfinite(report["masked_lm_loss"])
    assert trained(new).config.vocab_size == 92
    assert load_tokenizer(new.workdir).vocabulary == run.tokenizer.vocabulary


# --- records


@pytest.fixture(scope="module")
def records(recipe, report, tmp_path_factory):
    """Two directories of records of the first run's corpus, with rows of 32 and of 64 tokens."""
    folder = tmp_path_factory.mktemp("records")
    short = RecordRecipe(
        output=str(folder / "short"),
        corpus=recipe.corpus,
        held_out_every=recipe.held_out_every,
        tokenizer=recipe.workdir,
        max_length=32,
        examples_per_shard=30,
    )
    long = dataclasses.replace(short, output=str(folder / "long"), max_length=64)
    for build in (short, long):
        build_records(build)
    return short, long


def on_records(recipe, records, workdir, **settings):
    short, long = records
    return dataclasses.replace(
        recipe,
        workdir=str(workdir),
        records=short.output,
        final_records=long.output,
        max_length=32,
        final_length=64,
        final_steps=2,
        **settings,
    )


def test_a_run_on_records_of_two_lengths(recipe, records, quick, tmp_path):
    run = on_records(recipe, records, tmp_path / "work")
    report = pretrain(run)
    assert np.isfinite(report["masked_lm_loss"])
    assert [row["step"] for row in history(run)] == [2, 4]
    tokenizer = load_tokenizer(run.workdir)
    assert tokenizer.vocabulary == load_tokenizer(recipe.workdir).vocabulary
    moved = dataclasses.replace(run, records=f"{records[0].output}/", block_shards=2)
    with pytest.raises(ValueError, match="block_shards was 8, is 2"):
        pretrain(moved)
    for name, (settings, words) in enumerate(
        (
            ({"objective": "sentence_order"}, "objective"),
            ({"max_length": 40}, "max_length"),
            ({"records": str(tmp_path)}, "no file of a known tokenizer"),
        )
    ):
        wrong = dataclasses.replace(run, workdir=str(tmp_path / f"wrong_{name}"), **settings)
        with pytest.raises(ValueError, match=words):
            pretrain(wrong)


def test_a_dry_run_leaves_nothing_and_reports_each_length(recipe, records, tmp_path, capsys):
    run = on_records(recipe, records, tmp_path / "work", final_batch_size=4, dry_run=True)
    (tmp_path / "work" / "dry_run" / "states_0").mkdir(parents=True)  # of one that was killed
    load_tool().main(flags_of(run))
    lines = [line for line in capsys.readouterr().out.splitlines() if "saved and restored" in line]
    assert [line.split(":")[0] for line in lines] == ["8 rows of 32 tokens", "4 rows of 64 tokens"]
    assert list((tmp_path / "work").iterdir()) == []


def test_a_dry_run_of_two_batch_sizes_of_one_length(recipe, vocabulary, tmp_path, capsys):
    phases = {"final_steps": 2, "final_length": recipe.max_length, "final_batch_size": 4}
    settings = {"workdir": str(tmp_path / "work"), "dry_run": True, **vocabulary, **phases}
    load_tool().main(flags_of(dataclasses.replace(recipe, **settings)))
    lines = [line for line in capsys.readouterr().out.splitlines() if "saved and restored" in line]
    assert [line.split(":")[0] for line in lines] == ["8 rows of 48 tokens", "4 rows of 48 tokens"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("reason", ["no text", "asked to stop"])
def test_a_dry_run_that_fails_leaves_nothing(recipe, vocabulary, tmp_path, monkeypatch, capsys, reason):
    settings = {"workdir": str(tmp_path / "work"), "dry_run": True, **vocabulary}
    if reason == "no text":
        settings["corpus"] = "nowhere"
    else:
        monkeypatch.setattr(Trainer, "save", lambda self: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit) as stop:
        load_tool().main(flags_of(dataclasses.replace(recipe, **settings)))
    if reason != "no text":
        assert stop.value.code == 143
        assert "goes on" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_records_may_bring_a_longer_vocabulary(recipe, report, tmp_path):
    """Built with the extended tokenizer of `init_from`; one that reads otherwise is refused."""
    old = load_tokenizer(recipe.workdir)
    words = extend_vocabulary(old, ["A riverside and a starfish."] * 9, 2)
    for name, lowercase in (("good", True), ("bad", False)):
        folder = tmp_path / name
        WordPieceTokenizer(words, lowercase=lowercase).save_pretrained(folder / "tokenizer")
        build = RecordRecipe(
            output=str(folder / "records"),
            corpus=recipe.corpus,
            held_out_every=recipe.held_out_every,
            tokenizer=str(folder / "tokenizer"),
            max_length=48,
        )
        build_records(build)
        new = dataclasses.replace(
            recipe,
            workdir=str(folder / "work"),
            init_from=recipe.workdir,
            records=build.output,
        )
        prepare_workdir(new)
        if name == "good":
            assert PretrainRun(new, make_strategy("none")).model.config.vocab_size == 92
        else:
            with pytest.raises(ValueError, match="lowercase was True, is False"):
                PretrainRun(new, make_strategy("none"))


# --- the command


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--corpus", "nowhere/*.txt"], "matches none"),
        (["--tokenizer", "nowhere.txt"], "vocabulary must be an existing file"),
        (["--tokenizer", "poor.txt"], "must hold.*without .MASK."),
        (["--tokenizer", "texts"], "no file of a known tokenizer"),
        (["--init-from", "texts"], "directory of a finished run"),
        (["--records", "texts"], "no file of a known tokenizer"),
        (["--strategy", "multi_worker"], "TF_CONFIG"),
        (["--max-length", "600"], "max_length=600, bert_tiny has 512"),
        (["--save-every", "3"], "save_every=3, steps=4"),
        (["--warmup-steps", "9"], "warmup_steps=9, steps=4"),
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
    base = dataclasses.replace(recipe, workdir=str(tmp_path / "work"), held_out_every=2)
    if not {"--tokenizer", "--vocab-size", "--init-from"} & set(flags):
        base = dataclasses.replace(base, tokenizer=f"{recipe.workdir}/vocab.txt")
    with pytest.raises(SystemExit) as stop:
        load_tool().main([*flags_of(base), *flags])
    message = str(stop.value)
    if message == "2":  # a recipe that is inconsistent in itself is refused with its flags, in a frame
        message = " ".join(capsys.readouterr().err.replace("│", " ").split())
    else:
        assert message.startswith("pretrain.py: ")
        assert "\n" not in message
    assert re.search(words, message), message
