"""Fine-tuning with this package: what tools/finetune.py does, with its defaults."""

import functools
import tempfile
from unittest import mock

from keras_parts import Clock, product  # noqa: F401  the contestant runs the product

from keras_bert.runs import finetuning_run
from keras_bert.runs.finetuning_recipe import FinetuneRecipe

PACKAGES = ("tensorflow", "keras")


def train(job, meter):
    """(number, prediction) of each row, of the last epoch's model, as the peers', not of the best."""
    dtype = "mixed_bfloat16" if job["dtype"] == "bfloat16" else job["dtype"]
    fields = {**job["recipe"], "dtype": dtype, "seed": job["seed"]}
    if fields["columns"] is not None:
        fields["columns"] = tuple(fields["columns"])
    run = finetuning_run.FinetuneRun(FinetuneRecipe(**fields))
    run.rows = job["rows"]
    bare = functools.partial(BareTrainer, meter)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(finetuning_run, "Trainer", bare):
        trainer, _ = run.train(job["seed"], folder)
    reading = run._reading(trainer.model, job["seed"])
    rows, batch_size = run.rows["dev"], run.recipe.batch_size
    return list(enumerate(run.kind.predict(trainer.model, rows, reading, batch_size)))


class BareTrainer(finetuning_run.Trainer):
    """The Trainer without what the tool lets stand between epochs: evaluation, saved states, logs."""

    def __init__(self, meter, *arguments, state_dir, keep, **options):
        super().__init__(*arguments, **options)
        self.clock = Clock(meter)

    def fit(self, make_batches, steps, steps_per_epoch, evaluate, callbacks, describe, score):
        return super().fit(make_batches, steps, steps_per_epoch, callbacks=[self.clock])
