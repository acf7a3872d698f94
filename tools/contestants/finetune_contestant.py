"""A contestant of `benchmark.py finetune`: a process that fine-tunes with one library.

    python finetune_contestant.py job.json result.json

`benchmarks/finetune_runs.py` starts it, with the interpreter of an environment in which the library is
installed. The job has the same rows and settings for all. The result has what `Meter` measures, and for
each row of development data its number and what tools/finetune.py writes into its predictions, which
one function scores for all; and the rate of a matrix product in this very process, versions beside.
"""

import importlib
import json
import sys
import time
from importlib import metadata

from meter import Meter

# Each has `train(job, meter)`, which gives (number, prediction) of each row; `product(size, dtype)`, a
# function of a matrix product; and the `PACKAGES` whose versions matter.
LIBRARIES = {
    "keras_bert": "finetune_keras_bert",
    "torch": "finetune_torch",
    "keras-hub": "finetune_keras_hub",
}
SIZE, TURNS = 1024, 3  # of the product


def main(job_path, result_path):
    with open(job_path) as file:
        job = json.load(file)
    meter = Meter()
    library = importlib.import_module(LIBRARIES[job["library"]])
    predictions = library.train(job, meter)
    result = {
        **meter.figures(),
        "predictions": predictions,
        "product_gflops": 2 * SIZE**3 / least_seconds(library.product(SIZE, job["dtype"])) / 1e9,
        "versions": {name: metadata.version(name) for name in library.PACKAGES},
    }
    with open(result_path, "w") as file:
        json.dump(result, file)


def least_seconds(run):
    run()
    times = []
    for _ in range(TURNS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main(*sys.argv[1:])
