"""The learning rate over the steps of a run."""

import math

import keras
from keras import ops

SCHEDULES = ("linear", "cosine", "polynomial")


@keras.saving.register_keras_serializable(package="keras_bert")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from 0 to the peak, then falls to `end_rate` at `steps`, and stays there.

    The step numbered 0 already moves: rate(step) = peak * (step + 1) / warmup_steps while warming up.
    Of what lies between peak and `end_rate`, step s of the fall has the share

        linear      u            where u = (steps - s) / (steps - warmup_steps)
        cosine      (1 + cos(pi * (1 - u))) / 2
        polynomial  u ** decay_power

    Steps are counted in integers: float32 has no number for step 16,777,217.

    Args:
        peak: Highest rate.
        warmup_steps: Steps until the peak.
        steps: Steps until `end_rate`; must be larger than `warmup_steps`.
        schedule: "linear" (BERT), "cosine" or "polynomial".
        decay_power: Exponent of the polynomial schedule.
        end_rate: Rate from `steps` on.

    Example:

    >>> schedule = WarmupDecay(1e-3, warmup_steps=2, steps=6)
    >>> [round(float(schedule(step)), 6) for step in range(7)]
    [0.0005, 0.001, 0.001, 0.00075, 0.0005, 0.00025, 0.0]
    """

    def __init__(self, peak, warmup_steps, steps, schedule="linear", decay_power=1.0, end_rate=0.0):
        super().__init__()
        if not 0 <= warmup_steps < steps:
            raise ValueError(
                "`warmup_steps` must be at least 0 and below `steps`. "
                f"Received: warmup_steps={warmup_steps}, steps={steps}."
            )
        if schedule not in SCHEDULES:
            raise ValueError(
                f"`schedule` must be one of {', '.join(SCHEDULES)}. Received: {schedule!r}."
            )
        if not decay_power > 0 or (decay_power != 1 and schedule != "polynomial"):
            raise ValueError(
                "`decay_power` must be positive, and 1 unless the schedule is polynomial. "
                f"Received: decay_power={decay_power}, schedule={schedule!r}."
            )
        if not 0 <= end_rate <= peak:
            raise ValueError(
                f"`end_rate` must lie between 0 and `peak`. Received: end_rate={end_rate}, peak={peak}."
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.steps = steps
        self.schedule = schedule
        self.decay_power = decay_power
        self.end_rate = end_rate

    def __call__(self, step):
        step = ops.cast(step, "int64")
        fall = self.steps - self.warmup_steps
        left = ops.clip(self.steps - step, 0, fall)
        share = ops.cast(left, "float32") / fall
        if self.schedule == "cosine":
            # the same as half of 1 + cos, without cancellation near the end
            share = ops.square(ops.sin(math.pi / 2 * share))
        elif self.schedule == "polynomial":
            share = ops.power(share, self.decay_power)
        falling = self.end_rate + (self.peak - self.end_rate) * share
        if not self.warmup_steps:
            return falling
        risen = ops.minimum(step + 1, self.warmup_steps)
        rising = self.peak * (ops.cast(risen, "float32") / self.warmup_steps)
        return ops.where(step < self.warmup_steps, rising, falling)

    def get_config(self):
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "steps": self.steps,
            "schedule": self.schedule,
            "decay_power": self.decay_power,
            "end_rate": self.end_rate,
        }
