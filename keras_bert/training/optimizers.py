"""AdamW as BERT uses it, and its learning rate."""

import re

import keras
import tensorflow as tf
from keras import ops

# Biases and layer norms are not decayed (google-research/bert, optimization.py).
NO_DECAY = (r"bias$", r"norm/(gamma|beta)$")


@keras.saving.register_keras_serializable(package="keras_bert")
class AdamW(keras.optimizers.AdamW):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2017), set as for BERT.

    Three things differ from `keras.optimizers.AdamW`. Exclusions from decay are patterns on
    `variable.path`, kept in the config and so in force after loading (Keras matches the bare name and
    forgets them). Gradients of embeddings are made dense before their norm is taken (the norm of
    `IndexedSlices` ignores repeated ids). Outside of a distribution strategy the update of all
    variables is compiled by XLA into one pass over them.

    Args:
        learning_rate: A float or a schedule.
        weight_decay: Share of each decayed variable, times the rate, taken off in each step.
        beta_1, beta_2, epsilon: Adam's constants.
        global_clipnorm: Largest norm of all gradients together.
        no_decay: Regular expressions; a variable is not decayed when one is found in its path.
    """

    def __init__(
        self,
        learning_rate=1e-4,
        weight_decay=0.01,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        global_clipnorm=1.0,
        no_decay=NO_DECAY,
        **kwargs,
    ):
        super().__init__(
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            global_clipnorm=global_clipnorm,
            **kwargs,
        )
        self.no_decay = tuple(no_decay)

    def build(self, variables):
        if not self.built:
            excluded = [variable for variable in variables if not self.decays(variable.path)]
            self.exclude_from_weight_decay(var_list=excluded)
        super().build(variables)

    def decays(self, path):
        """Whether a variable of this path is decayed."""
        return not any(re.search(pattern, path) for pattern in self.no_decay)

    def _backend_apply_gradients(self, grads, trainable_variables):
        grads = [tf.convert_to_tensor(grad) for grad in grads]

        def update(grads):
            super(AdamW, self)._backend_apply_gradients(grads, trainable_variables)

        # A strategy's variables live on several devices, which one XLA program cannot reach; and
        # eagerly there would be a new program to compile with every step.
        if not (tf.distribute.has_strategy() or tf.executing_eagerly()):
            update = tf.function(update, jit_compile=True, autograph=False)
        update(grads)

    def get_config(self):
        return {**super().get_config(), "no_decay": list(self.no_decay)}


@keras.saving.register_keras_serializable(package="keras_bert")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from 0 to the peak, then falls linearly to 0 at `total_steps`.

    The step numbered 0 already moves: rate(step) = peak * (step + 1) / warmup_steps while warming up.

    Args:
        peak: Highest rate.
        warmup_steps: Steps until the peak.
        total_steps: Steps until 0; must be larger than `warmup_steps`.
    """

    def __init__(self, peak, warmup_steps, total_steps, name="warmup_linear_decay"):
        super().__init__()
        if not 0 <= warmup_steps < total_steps:
            raise ValueError(
                "`warmup_steps` must be at least 0 and below `total_steps`. "
                f"Received: warmup_steps={warmup_steps}, total_steps={total_steps}."
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.name = name

    def __call__(self, step):
        step = ops.cast(step, "float32")
        rising = (step + 1) / max(self.warmup_steps, 1)
        falling = (self.total_steps - step) / (self.total_steps - self.warmup_steps)
        return self.peak * ops.clip(ops.minimum(rising, falling), 0.0, 1.0)

    def get_config(self):
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "name": self.name,
        }
