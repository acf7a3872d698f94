"""Fine-tuning beside peers: the same rows, settings and seeds, each run in a process of its own.

The first seed tries every dtype of every library; the others run the fastest of each, taking turns. All
predictions, those after the last epoch, are scored by one function.
"""

import dataclasses
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from keras_bert.runs.finetuning_recipe import FinetuneRecipe
from keras_bert.runs.finetuning_run import FinetuneRun
from keras_bert.runs.flags import parse_flags

LIBRARIES = ("keras_bert", "torch", "keras-hub")
WORKER = Path(__file__).with_name("finetune_contestant.py")


def benchmark_finetune(options, machine):
    """Runs all seeds and prints a table; `machine` is printed beside."""
    recipe = parse_flags(FinetuneRecipe, ["--task", *[f for f in options.flags if f != "--"]])
    run = FinetuneRun(recipe)
    rows = {split: run.rows[split] for split in ("train", "dev")}
    job = {
        "recipe": dataclasses.asdict(recipe),
        "init": str(run.init),
        "kind": run.task.kind,
        "label_names": run.kind.label_names,
        "rows": {split: plain_rows(run.kind, run.task.kind, rows[split]) for split in rows},
    }
    print(
        f"{recipe.task}: {len(rows['train']):,} rows of training, {len(rows['dev']):,} of dev, "
        f"{recipe.epochs} epochs of batches of {recipe.batch_size}, up to {recipe.max_length} tokens; "
        f"{machine}\n",
        flush=True,
    )
    pythons = dict(entry.split("=", 1) for entry in options.python)

    def start(entrant, seed):
        python = pythons.get(entrant[0], sys.executable)
        return run_alone(python, job, entrant, seed)

    results = {}
    for entrant in entrants(options):
        result = start(entrant, recipe.seed)
        if isinstance(result, str):
            print(f"{title(entrant)}: left out, {result}", flush=True)
            continue
        results[entrant] = [result]
        print(f"{title(entrant)}: {statistics.median(result['seconds']):.1f} s an epoch", flush=True)
    best = {}
    for entrant, (result,) in results.items():
        library = entrant[0]
        if library not in best or np.median(result["seconds"]) < median_seconds(results[best[library]]):
            best[library] = entrant
    for seed in range(recipe.seed + 1, recipe.seed + recipe.seeds):
        for entrant in best.values():
            results[entrant].append(start(entrant, seed))
    print(f"\n{recipe.seeds} seed(s)")
    for entrant in best.values():
        scores = [
            run.kind.score(rows["dev"], result["predictions"])[run.task.metric]
            for result in results[entrant]
        ]
        print(row(title(entrant), results[entrant], run.task.metric, scores))
    for library in best.keys() - {"keras_bert"}:
        ratio = median_seconds(results[best[library]]) / median_seconds(results[best["keras_bert"]])
        print(f"{library} / keras_bert: {ratio:.2f} x the seconds")


def plain_rows(kind, name, rows):
    """What every library is given of some rows."""
    if name == "tagging":
        numbers = iter(kind.label_numbers(rows).tolist())
        tags = [[next(numbers) for _ in row["words"]] for row in rows]
        return {"words": [row["words"] for row in rows], "tags": tags}
    if name == "answers":
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


def entrants(options):
    """(library, dtype, whether XLA compiles the step) of all that start."""
    for library in LIBRARIES:
        for dtype in options.dtypes:
            for compiled in (False, True) if library == "keras-hub" else (False,):
                if re.search(options.only, title((library, dtype, compiled))):
                    yield library, dtype, compiled


def title(entrant):
    library, dtype, compiled = entrant
    return ", ".join([library, dtype, *(["compiled"] if compiled else [])])


def run_alone(python, job, entrant, seed):
    """The result of a contestant, or the last line that it wrote before it died."""
    library, dtype, compiled = entrant
    with tempfile.TemporaryDirectory() as folder:
        job_path, result_path = (Path(folder) / name for name in ("job.json", "result.json"))
        content = {**job, "library": library, "dtype": dtype, "compiled": compiled, "seed": seed}
        job_path.write_text(json.dumps(content))
        ended = subprocess.run(
            [python, str(WORKER), str(job_path), str(result_path)], capture_output=True, text=True
        )
        if ended.returncode:
            return next((line for line in reversed(ended.stderr.split("\n")) if line.strip()), "?")
        return json.loads(result_path.read_text())


def median_seconds(results):
    return statistics.median(seconds for result in results for seconds in result["seconds"])


def row(name, results, metric, scores):
    spread = f" ± {np.std(scores, ddof=1):.4f}" if len(scores) > 1 else ""
    memory = max(result["peak_memory_gib"] for result in results)
    return (
        f"{name:32} {metric} {np.mean(scores):.4f}{spread}  "
        f"{median_seconds(results):6.1f} s an epoch  {memory:.2f} GiB"
    )
