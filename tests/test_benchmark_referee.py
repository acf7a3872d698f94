"""tools/benchmarks: the referee of fine-tuning, its table, and the limits of a processor."""

import importlib
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT

from keras_bert.runs.finetuning_recipe import FinetuneRecipe
from keras_bert.tasks.kinds import kind_of
from keras_bert.tasks.table import TASKS

TOOLS = ROOT / "tools"
RNG = np.random.default_rng(0)
LABELS = ["good", "bad", "good", "fine", "good"] * 20


@pytest.fixture
def tool(monkeypatch):
    """A function that imports a module below tools/ as the tools themselves do."""
    monkeypatch.syspath_prepend(str(TOOLS))
    monkeypatch.syspath_prepend(str(TOOLS / "contestants"))
    return importlib.import_module


@pytest.fixture
def referee(tool):
    return tool("benchmarks.referee")


@pytest.fixture
def table(tool):
    return tool("benchmarks.finetune_table")


def labelled():
    """A kind, and rows of which "good" is the most frequent label."""
    rows = [{"text": f"row {number}", "label": label} for number, label in enumerate(LABELS)]
    return kind_of(TASKS["classification"], rows), rows


def numbered():
    values = np.linspace(0, 5, 100).tolist()
    rows = [{"text": f"row {number}", "label": str(value)} for number, value in enumerate(values)]
    return kind_of(TASKS["regression"], rows), rows, values


def tagged():
    tags = [["O", "O", "B-place", "I-place"], ["B-name", "O", "O"], ["O", "O"]] * 20
    rows = [{"words": ["w"] * len(each), "tags": each} for each in tags]
    return kind_of(TASKS["tagging"], rows), rows


def asked():
    rows = [
        {
            "id": str(number),
            "question": f"what is number {number}",
            "context": f"this one is called w{number} here",
            "answers": [f"w{number}"],
            "starts": [19],
        }
        for number in range(100)
    ]
    return kind_of(TASKS["answers"], rows), rows


def answer(text):
    return {"answer": text, "answers": [{"answer": text}], "no_answer_margin": 0.0}


def test_shuffled_predictions_are_put_in_order(referee):
    order = RNG.permutation(100).tolist()
    answers = [[number, {"label": LABELS[number]}] for number in order]
    assert referee.in_order("torch", answers, 100) == [{"label": label} for label in LABELS]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([0, 1, 3], "torch: .* Received: 3, none for 2, several for no row"),
        ([0, 1, 1, 2, 3], "Received: 5, none for no row, several for 1, "),
        ([0, 1, 2, 4], "none for 3, .* for rows that there are not 4"),
    ],
)
def test_each_row_has_one_prediction(referee, numbers, message):
    with pytest.raises(ValueError, match=message):
        referee.in_order("torch", [[number, "x"] for number in numbers], 4)


def test_answers_that_were_learned_by_heart_must_come_again(referee):
    kind, rows = labelled()
    known = referee.known_rows(kind, "classification", rows)
    right = [[number, {"label": row["label"]}] for number, row in enumerate(known)]
    referee.check_known("torch", kind, "classification", known, right[::-1])
    # the numbers of the rows lost, as when a sampler reorders them
    lost = [[number, prediction] for number, (_, prediction) in enumerate(right[::-1])]
    with pytest.raises(ValueError, match="torch: trained on 24 rows .* Received: 0."):
        referee.check_known("torch", kind, "classification", known, lost)


def test_known_rows_differ_and_have_all_labels(referee):
    kind, rows = labelled()
    known = referee.known_rows(kind, "classification", rows + rows)
    assert len({row["text"] for row in known}) == len(known) == referee.KNOWN_ROWS
    assert {row["label"] for row in known} == {"good", "bad", "fine"}


def test_known_rows_of_other_kinds_are_within_reach(referee):
    kind, rows, _ = numbered()
    values = [float(row["label"]) for row in referee.known_rows(kind, "regression", rows)]
    assert (min(values), max(values)) == (0.0, 5.0)
    kind, rows = tagged()
    known = referee.known_rows(kind, "tagging", rows)
    assert all(set(row["tags"]) != {"O"} for row in known)
    kind, rows = asked()
    inside = {**rows[0], "question": "?", "answers": ["all"], "starts": [13]}  # of "called"
    without = {**rows[0], "question": "??", "answers": [], "starts": []}
    known = referee.known_rows(kind, "answers", [inside, *rows[:10], without])
    assert known == rows[:10]


def test_regression_may_miss_a_little(referee):
    kind, rows, values = numbered()
    near = [[number, {"score": 2 * value + 0.01}] for number, value in enumerate(values)]
    referee.check_known("torch", kind, "regression", rows, near)
    near[0][1]["score"] = 20.0
    with pytest.raises(ValueError, match="correlation of at least 0.99"):
        referee.check_known("torch", kind, "regression", rows, near)


def shuffled(predictions):
    return [predictions[number] for number in RNG.permutation(len(predictions))]


@pytest.mark.parametrize("blind", ["majority", "shuffled"])
def test_chance_with_labels_ends_the_run(referee, blind):
    kind, rows = labelled()
    right = [{"label": label} for label in LABELS]
    referee.check_chance("torch", kind, "classification", rows, right)
    wrong = {"majority": [{"label": "good"}] * 100, "shuffled": shuffled(right)}[blind]
    with pytest.raises(ValueError, match="torch, bfloat16: its accuracy .* chance, 0.6000 with noise"):
        referee.check_chance("torch, bfloat16", kind, "classification", rows, wrong)


def test_chance_with_numbers_ends_the_run(referee):
    kind, rows, values = numbered()
    referee.check_chance("torch", kind, "regression", rows, [{"score": value} for value in values])
    for blind in ([{"score": 2.5}] * 100, shuffled([{"score": value} for value in values])):
        with pytest.raises(ValueError, match="torch: its correlation must .* chance, 0.0000"):
            referee.check_chance("torch", kind, "regression", rows, blind)


def test_chance_with_tags_ends_the_run(referee):
    kind, rows = tagged()
    referee.check_chance("torch", kind, "tagging", rows, [row["tags"] for row in rows])
    for tag in ("O", "B-name"):
        with pytest.raises(ValueError, match="torch: its f1 must be better than chance"):
            referee.check_chance(
                "torch", kind, "tagging", rows, [[tag] * len(row["words"]) for row in rows]
            )


def test_chance_with_answers_ends_the_run(referee):
    kind, rows = asked()
    right = [answer(row["answers"][0]) for row in rows]
    referee.check_chance("torch", kind, "answers", rows, right)
    for blind in ([answer("")] * 100, [*right[1:], right[0]]):
        with pytest.raises(ValueError, match="torch: its f1 must be better than chance"):
            referee.check_chance("torch", kind, "answers", rows, blind)


def test_table_quotes_epochs_after_the_first(table):
    """The compiled setting is slower in its first epoch and all told, and still the faster one."""

    def result(seconds, before, peak):
        return {"seconds": seconds, "before_gib": before, "peak_gib": peak}

    entrants = [
        table.Entrant("keras_bert", "float32"),
        table.Entrant("keras_bert", "bfloat16"),
        table.Entrant("torch", "float32"),
        table.Entrant("torch", "bfloat16", "compiled"),
    ]
    results = dict(
        zip(
            entrants,
            [
                [result([5.0, 4.0, 4.0], 0.5, 1.0)],
                [result([9.0, 2.0, 2.0], 0.5, 1.0), result([8.0, 3.0, 2.0], 0.6, 1.0)],
                [result([6.0, 6.0, 6.0], 0.25, 2.0)],
                [result([60.0, 5.0, 5.0], 0.25, 1.5)],
            ],
            strict=True,
        )
    )
    best = table.best_of_libraries(results)
    assert best == {"keras_bert": entrants[1], "torch": entrants[3]}
    scores = {entrants[1]: [0.5, 0.7], entrants[3]: [0.75]}
    head, ours, torch, ratio = table.table(results, scores, "accuracy")
    assert "accuracy" in head
    assert ours.split() == [
        *["keras_bert,", "bfloat16", "0.6000", "±", "0.1414", "2.00"],
        *["(", "2.00", "-", "3.00)", "8.50", "0.60", "1.00"],
    ]
    assert torch.split()[:5] == ["torch,", "bfloat16,", "compiled", "0.7500", "5.00"]
    assert ratio == "torch / keras_bert: 2.50 x the seconds of an epoch, 1.50 x the memory"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 1}, "`epochs` must be at least 2"),
        ({"layer_decay": 0.9}, "`layer_decay` must be 1.0: peers are not told of it. Received: 0.9"),
        ({"init": ""}, "`init` must name"),
    ],
)
def test_what_cannot_be_compared_is_refused(tool, options, message):
    recipe = FinetuneRecipe(**{"init": "somewhere", **options})
    with pytest.raises(ValueError, match=message):
        tool("benchmarks.finetune_runs").check_recipe(recipe)


def test_a_limited_processor_is_told_to_all_libraries(tool, monkeypatch):
    processor = tool("benchmarks.processor")
    monkeypatch.setattr(processor, "features", lambda: ["avx2"])
    environment = {"XLA_FLAGS": "--xla_dump_to=x"}
    said = processor.limit("avx2", environment)
    assert environment["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert environment["TF_ENABLE_ONEDNN_OPTS"] == "0"
    assert environment["XLA_FLAGS"] == "--xla_dump_to=x --xla_cpu_max_isa=AVX2"
    assert all(f"{name}={value}" in said for name, value in environment.items())
    assert "Not limited" in said
    environment = {"TF_ENABLE_ONEDNN_OPTS": "1"}
    processor.limit("avx2", environment)
    assert environment["TF_ENABLE_ONEDNN_OPTS"] == "1"
    with pytest.raises(ValueError, match="Received: avx512_vnni, and a processor with avx2"):
        processor.limit("avx512_vnni", {})


def test_meter_takes_the_steps_alone(tool, monkeypatch):
    meter_module = tool("meter")
    now = iter([10.0, 11.0, 13.0, 20.0, 21.5])
    memory = {"VmRSS": 0.5, "VmHWM": 0.75}
    monkeypatch.setattr(meter_module.time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(meter_module, "_memory_gib", memory.get)
    monkeypatch.setattr(meter_module, "_forget_peak", lambda: None)
    meter = meter_module.Meter()
    meter.epoch_begins()
    meter.step_ends()
    meter.step_ends()
    meter.epoch_ends()  # however late
    memory["VmRSS"], memory["VmHWM"] = 0.6, 0.7
    meter.epoch_begins()
    meter.step_ends()
    meter.epoch_ends()
    assert meter.figures() == {"seconds": [3.0, 1.5], "before_gib": 0.5, "peak_gib": 0.75}


def test_help_names_the_options():
    command = [sys.executable, str(TOOLS / "benchmark.py"), "finetune", "--help"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert "--cpu" in run.stdout
    assert "--rows" in run.stdout
