"""tools/contestants: ours trains as the tool does, and answers every row of a job."""

import importlib
import json

import pytest
from conftest import ROOT
from test_finetuning import KINDS, init, make_recipe  # noqa: F401  a fixture


@pytest.mark.parametrize("task", ["classification", "answers"])
def test_ours_answers_every_row_from_a_job(init, tmp_path, monkeypatch, task):  # noqa: F811
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "contestants"))
    runs, referee, meter_module, ours = map(
        importlib.import_module,
        ("benchmarks.finetune_runs", "benchmarks.referee", "meter", "finetune_keras_bert"),
    )
    recipe = make_recipe(init, tmp_path, task, epochs=8, batch_size=5, warmup_rate=0.0)
    comparison = runs.Comparison(recipe, {}, most_rows=20)
    rows = comparison.rows["dev"]
    job = comparison.job(runs.Entrant("keras_bert", "float32"), recipe, comparison.rows, 0)
    meter = meter_module.Meter()
    predictions = ours.train(json.loads(json.dumps(job)), meter)
    ordered = referee.in_order("keras_bert", json.loads(json.dumps(predictions)), len(rows))
    referee.check_chance("keras_bert", comparison.kind, task, rows, ordered)
    assert comparison.score(ordered).keys() >= {KINDS[task][2]}
    assert len(meter.seconds) == 8
    assert min(meter.seconds[1:]) < meter.seconds[0]  # which traces
    assert 0 < meter.before_gib <= meter.peak_gib
    assert not (tmp_path / "work").exists()  # nothing was saved
