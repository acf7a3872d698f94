"""The learning rate over the steps of a run."""

import math

import keras
from keras import ops

SHAPES = ("linear", "cosine", "polynomial")


@keras.saving.register_keras_serializable(package="keras_bert")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from 0 to the peak, then falls to `end_rate` at `total_steps`, and stays there.

    The step numbered 0 already moves: rate(step) = peak * (step + 1) / warmup_steps while warming up.
    Of what lies between peak and `end_rate`, step s of the fall has the share

        linear      u            where u = (total_steps - s) / (total_steps - warmup_steps)
        cosine      (1 + cos(pi * (1 - u))) / 2
        polynomial  u ** power

    Steps are counted in integers: float32 has no number for step 16,777,217.

    Args:
        peak: Highest rate.
        warmup_steps: Steps until the peak.
        total_steps: Steps until `end_rate`; must be larger than `warmup_steps`.
        shape: "linear" (BERT), "cosine" or "polynomial".
        power: Exponent of the polynomial shape.
        end_rate: Rate from `total_steps` on.

    Example:

    >>> schedule = WarmupDecay(1e-3, warmup_steps=2, total_steps=6)
    >>> [round(float(schedule(step)), 6) for step in range(7)]
    [0.0005, 0.001, 0.001, 0.00075, 0.0005, 0.00025, 0.0]
    """

    def __init__(self, peak, warmup_steps, total_steps, shape="linear", power=1.0, end_rate=0.0):
        super().__init__()
        if not 0 <= warmup_steps < total_steps:
            raise ValueError(
                "`warmup_steps` must be at least 0 and below `total_steps`. "
                f"Received: warmup_steps={warmup_steps}, total_steps={total_steps}."
            )
        if shape not in SHAPES:
            raise ValueError(f"`shape` must be one of {', '.join(SHAPES)}. Received: {shape!r}.")
        if not power > 0 or (power != 1 and shape != "polynomial"):
            raise ValueError(
                "`power` must be positive, and 1 unless the shape is polynomial. "
                f"Received: power={power}, shape={shape!r}."
            )
        if not 0 <= end_rate <= peak:
            raise ValueError(
                f"`end_rate` must lie between 0 and `peak`. Received: end_rate={end_rate}, peak={peak}."
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.shape = shape
        self.power = power
        self.end_rate = end_rate

    def __call__(self, step):
        step = ops.cast(step, "int64")
        fall = self.total_steps - self.warmup_steps
        left = ops.clip(self.total_steps - step, 0, fall)
        share = ops.cast(left, "float32") / fall
        if self.shape == "cosine":
            # the same as half of 1 + cos, without cancellation near the end
            share = ops.square(ops.sin(math.pi / 2 * share))
        elif self.shape == "polynomial":
            share = ops.power(share, self.power)
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
            "total_steps": self.total_steps,
            "shape": self.shape,
            "power": self.power,
            "end_rate": self.end_rate,
        }
