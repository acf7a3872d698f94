"""What `compile()` without arguments means: AdamW, its rate made for the steps of each `fit`."""

import keras
import tensorflow as tf
from keras import ops

from keras_bert.training.optimizers import AdamW
from keras_bert.training.private_keras import rate_of
from keras_bert.training.schedules import WarmupDecay

_WARMUP_SHARE = 0.1  # of the steps
_BATCH_SIZE = 32  # Keras's own, where none is given


@keras.saving.register_keras_serializable(package="keras_bert")
class DefaultRate(keras.optimizers.schedules.LearningRateSchedule):
    """The peak for as long as the number of steps is not known; else up to it, and down to 0.

    `fit` puts one with its own steps in the place of the one before, so that a second `fit` does not go
    on at a rate of 0, and one with `initial_epoch` goes on where the run was.

    Args:
        peak: Highest rate.
        steps: Steps of the run, of which a tenth warms up; None where they are not known.
        start: Steps that the optimizer had made when the run began.
    """

    def __init__(self, peak, steps=None, start=0):
        super().__init__()
        self.peak = peak
        self.steps = steps
        self.start = start

    def __call__(self, step):
        if self.steps is None:
            return ops.convert_to_tensor(self.peak, "float32")
        schedule = WarmupDecay(self.peak, int(_WARMUP_SHARE * self.steps), self.steps)
        return schedule(ops.cast(step, "int64") - self.start)

    def get_config(self):
        return {"peak": self.peak, "steps": self.steps, "start": self.start}


def default_optimizer(peak):
    """AdamW with BERT's constants, at a DefaultRate."""
    return AdamW(DefaultRate(peak))


def set_default_rate(model, steps_per_epoch, epochs, initial_epoch):
    """Makes the rate of a default optimizer that of a run; leaves any other optimizer alone.

    Args:
        steps_per_epoch: Or None, where they are not known.
        epochs, initial_epoch: As in `fit`.
    """
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # under loss scaling
    rate = rate_of(optimizer)
    if not isinstance(rate, DefaultRate):
        return
    new = DefaultRate(rate.peak)
    if steps_per_epoch and epochs > initial_epoch:
        done = int(ops.convert_to_numpy(optimizer.iterations)) - initial_epoch * steps_per_epoch
        new = DefaultRate(rate.peak, epochs * steps_per_epoch, done)
    if new.get_config() != rate.get_config():
        optimizer.learning_rate = new
        model.train_function = None  # the old numbers are constants of its graph


def steps_of(x, batch_size=None, validation_split=0.0):
    """How many batches an epoch over the argument `x` of `fit` has; None where that is not known."""
    if isinstance(x, tf.data.Dataset):
        count = int(x.cardinality())
        return count if count >= 0 else None
    if isinstance(x, keras.utils.PyDataset):
        return x.num_batches
    leaves = [leaf for leaf in tf.nest.flatten(x) if hasattr(leaf, "shape") and len(leaf.shape)]
    if not leaves:
        return None
    rows = int(len(leaves[0]) * (1 - validation_split))
    return -(-rows // (batch_size or _BATCH_SIZE))
