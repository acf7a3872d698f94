"""Fine-tuning beside peers: the same rows, settings and seeds, each run in a process of its own.

The first seed tries every setting of every library, after it has repeated known answers; the others run
the fastest of each, taking turns. Epochs are quoted from the second on.
"""

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.finetune_table import Entrant, best_of_libraries, heat_line, table
from benchmarks.referee import (
    KNOWN_SETTINGS,
    MEASURES,
    check_chance,
    check_known,
    in_order,
    known_rows,
)
from keras_bert.runs.finetuning_recipe import FinetuneRecipe
from keras_bert.runs.finetuning_run import FinetuneRun
from keras_bert.runs.flags import parse_flags

SETTINGS = {
    "keras_bert": ("",),
    "torch": ("", "compiled"),
    "keras-hub": ("", "compiled", "grouped"),
}
WORKER = Path(__file__).parents[1] / "contestants" / "finetune_contestant.py"
UNPLAYABLE = {("avx2", "torch", "bfloat16")}  # see `processor.UNLIMITED`
# what peers are not told of
OURS_ALONE = (
    "schedule",
    "layer_decay",
    "freeze_layers",
    "dropout",
    "label_smoothing",
    "focal_gamma",
    "balance",
    "patience",
    "accumulate",
    "strategy",
    "dtype",
)


def benchmark_finetune(options, header):
    """Runs all seeds and prints a table; `header` is printed before."""
    recipe = parse_flags(FinetuneRecipe, ["--task", *[f for f in options.flags if f != "--"]])
    comparison = Comparison(recipe, dict(entry.split("=", 1) for entry in options.python), options.rows)
    rows = comparison.rows
    print(
        f"{recipe.task}: {len(rows['train']):,} rows of training, {len(rows['dev']):,} of dev, "
        f"{recipe.epochs} epochs of batches of {recipe.batch_size}, up to {recipe.max_length} tokens; "
        f"{header}\n",
        flush=True,
    )
    results = {}
    for entrant in entrants(options):
        try:
            known = comparison.check_known(entrant)
            print(f"{entrant.name:32} repeats what it learned by heart: {known:.4f}", flush=True)
            results[entrant] = [comparison.run(entrant, recipe.seed)]
        except Died as end:
            print(end, flush=True)
            continue
        print(heat_line(entrant, results[entrant][0]), flush=True)
    best = best_of_libraries(results).values()
    for seed in range(recipe.seed + 1, recipe.seed + recipe.seeds):
        for entrant in best:
            results[entrant].append(comparison.run(entrant, seed))
    metric = comparison.task.metric
    scores = {
        entrant: [comparison.score(result["predictions"])[metric] for result in results[entrant]]
        for entrant in best
    }
    print(f"\n{recipe.seeds} seed(s), the fastest setting of each library")
    print("\n".join(table(results, scores, metric)))


def entrants(options):
    """All that start."""
    for library, settings in SETTINGS.items():
        for dtype in options.dtypes:
            if (options.cpu, library, dtype) in UNPLAYABLE:
                print(f"{library}, {dtype}: left out, --cpu {options.cpu} makes it too slow")
                continue
            for setting in settings:
                entrant = Entrant(library, dtype, setting)
                if re.search(options.only, entrant.name):
                    yield entrant


class Died(RuntimeError):
    """A contestant's process ended before its result; the message is its last line."""


class Comparison:
    """What all runs share: rows, settings, and the referee's checks.

    Args:
        recipe: A FinetuneRecipe.
        pythons: {library: interpreter}; the present one for others.
        most_rows: Of training and of dev; None for all.
    """

    def __init__(self, recipe, pythons, most_rows=None):
        check_recipe(recipe)
        run = FinetuneRun(recipe)
        self.recipe, self.pythons = recipe, pythons
        self.kind, self.task, self.init = run.kind, run.task, run.init
        if self.task.kind not in MEASURES:
            raise ValueError(
                f"`task` must be of {', '.join(MEASURES)} to have peers. Received: {self.task.kind}."
            )
        self.rows = {split: evenly(run.rows[split], most_rows) for split in ("train", "dev")}

    def run(self, entrant, seed):
        """The result of a contestant, with predictions in the rows' order and better than chance."""
        result = self._run(entrant, self.recipe, self.rows, seed)
        dev = self.rows["dev"]
        predictions = in_order(entrant.name, result["predictions"], len(dev))
        check_chance(entrant.name, self.kind, self.task.kind, dev, predictions)
        return {**result, "predictions": predictions}

    def check_known(self, entrant):
        """Lets a contestant learn a few rows by heart; its score when it repeats them."""
        known = known_rows(self.kind, self.task.kind, self.rows["train"])
        recipe = dataclasses.replace(self.recipe, **KNOWN_SETTINGS)
        result = self._run(entrant, recipe, {"train": known, "dev": known}, recipe.seed)
        return check_known(entrant.name, self.kind, self.task.kind, known, result["predictions"])

    def score(self, predictions):
        return self.kind.score(self.rows["dev"], predictions)

    def job(self, entrant, recipe, rows, seed):
        """What a contestant is told, as JSON holds it."""
        if entrant.library != "keras_bert":  # ours reads rows as the tool does
            rows = {split: plain_rows(self.kind, self.task.kind, rows[split]) for split in rows}
        return {
            **dataclasses.asdict(entrant),
            "seed": seed,
            "recipe": dataclasses.asdict(recipe),
            "init": str(self.init),
            "kind": self.task.kind,
            "label_names": self.kind.label_names,
            "rows": rows,
        }

    def _run(self, entrant, *arguments):
        python = self.pythons.get(entrant.library, sys.executable)
        with tempfile.TemporaryDirectory() as folder:
            job_path, result_path = (Path(folder) / name for name in ("job.json", "result.json"))
            job_path.write_text(json.dumps(self.job(entrant, *arguments)))
            command = [python, str(WORKER), str(job_path), str(result_path)]
            ended = subprocess.run(command, capture_output=True, text=True)
            if ended.returncode:
                lines = (line for line in reversed(ended.stderr.split("\n")) if line.strip())
                message = next(lines, f"exit status {ended.returncode}")
                raise Died(f"{entrant.name}: left out, {message}")
            return json.loads(result_path.read_text())


def check_recipe(recipe):
    """Refuses what cannot be compared."""
    if not recipe.init:
        raise ValueError("`init` must name a pretrained directory. Received: nothing.")
    if recipe.epochs < 2:
        raise ValueError(
            "`epochs` must be at least 2: the first, which traces and warms up, is not quoted. "
            f"Received: {recipe.epochs}."
        )
    for name in OURS_ALONE:
        default = FinetuneRecipe.__dataclass_fields__[name].default
        if getattr(recipe, name) != default:
            raise ValueError(
                f"`{name}` must be {default}: peers are not told of it. "
                f"Received: {getattr(recipe, name)}."
            )


def evenly(rows, most):
    """At most so many of the rows, evenly spaced."""
    if most is None or len(rows) <= most:
        return rows
    return [rows[place] for place in np.linspace(0, len(rows) - 1, most).round().astype(int)]


def plain_rows(kind, kind_name, rows):
    """What peers are given of some rows."""
    if kind_name == "tagging":
        numbers = iter(kind.label_numbers(rows).tolist())
        tags = [[next(numbers) for _ in row["words"]] for row in rows]
        return {"words": [row["words"] for row in rows], "tags": tags}
    if kind_name == "answers":
        starts = [row["starts"][0] if row["starts"] else -1 for row in rows]
        ends = [
            start + len(row["answers"][0]) if row["starts"] else -1
            for start, row in zip(starts, rows, strict=True)
        ]
        return {
            "questions": [row["question"] for row in rows],
            "contexts": [row["context"] for row in rows],
            "starts": starts,
            "ends": ends,
        }
    return {"texts": kind.texts(rows), "labels": kind.labels(rows).tolist()}
