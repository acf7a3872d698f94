"""AdamW and LAMB as BERT uses them: exclusions and rates by path, one pass over the weights."""

import math
import re

import keras
import tensorflow as tf
from keras import ops

from keras_bert.training.private_keras import WholeUpdateOptimizer, update_on_all_replicas

# Biases and layer norms are not decayed (google-research/bert, optimization.py).
NO_DECAY = (r"bias$", r"norm/(gamma|beta)$")


class _Adam(WholeUpdateOptimizer):
    """What AdamW and LAMB share: the moments, who is decayed, at which rate, how it is computed.

    A subclass gives `_change`: what is taken off a variable, in units of its rate; and
    `_is_elementwise`: whether an element's change depends on that element alone.

    Moments start at zero, and are corrected for it by 1 - beta**step. Computed as it stands, this loses
    three of float32's seven digits to cancellation at the first steps.
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
        rate_factors=(),
        **kwargs,
    ):
        for name, value in (("weight_decay", weight_decay), ("epsilon", epsilon)):
            if value is None or value < 0:
                raise ValueError(f"`{name}` must be at least 0. Received: {value}.")
        for name, value in (("beta_1", beta_1), ("beta_2", beta_2)):
            if not 0 < value < 1:
                raise ValueError(f"`{name}` must lie between 0 and 1. Received: {value}.")
        for pattern, factor in rate_factors:
            if not factor >= 0:
                raise ValueError(
                    "`rate_factors` must pair patterns with factors of at least 0. "
                    f"Received: {factor} for {pattern!r}."
                )
        super().__init__(
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            global_clipnorm=global_clipnorm,
            **kwargs,
        )
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.no_decay = tuple(no_decay)
        self.rate_factors = tuple((pattern, factor) for pattern, factor in rate_factors)

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )

    def decays(self, path):
        """Whether a variable of this path is decayed."""
        return not any(re.search(pattern, path) for pattern in self.no_decay)

    def rate_factor(self, path):
        """What the rate is multiplied with for a variable of this path."""
        return next((factor for pattern, factor in self.rate_factors if re.search(pattern, path)), 1.0)

    @property
    def takes_rows(self):
        """Whether `apply_rows` may be called."""
        return self._is_elementwise and not (
            self.clipnorm
            or self.clipvalue
            or self.gradient_accumulation_steps
            or self.loss_scale_factor
        )

    def update_all(self, gradients, variables, learning_rate):
        gradients = [_summed_rows(gradient) for gradient in gradients]
        scale = 1.0
        if self.global_clipnorm:
            # not in the compiled part: on a CPU, XLA sums with one core
            parts = [getattr(gradient, "values", gradient) for gradient in gradients]
            halves = [tf.cast(tf.nn.l2_loss(part), tf.float32) for part in parts]
            norm = tf.sqrt(2 * tf.add_n(halves))
            scale = self.global_clipnorm / tf.maximum(norm, self.global_clipnorm)
        step = tf.cast(self.iterations + 1, tf.float32)
        rates = [learning_rate * self.rate_factor(variable.path) for variable in variables]
        decays = [self.decays(variable.path) for variable in variables]
        places = [self.index_of(variable) for variable in variables]
        slots = [
            [self._momentums[place] for place in places],
            [self._velocities[place] for place in places],
        ]

        # A table moves as if none of its rows had a gradient; those that have one move anew, from where
        # they were: the same values, for which nothing as large as the table is filled and read.
        tables = [place for place, g in enumerate(gradients) if isinstance(g, tf.IndexedSlices)]
        moved_rows = []
        for place in tables:
            states = [part[place].value for part in (variables, *slots)]
            rows = [tf.gather(state, gradients[place].indices) for state in states]
            gradient = gradients[place].values * scale
            moved = self._moved(*rows, gradient, rates[place], step, decays[place])
            moved_rows += zip(states, moved, [gradients[place].indices] * 3, strict=True)

        def update():
            update_on_all_replicas(
                self._move,
                variables,
                *slots,
                [
                    tf.zeros((), variable.dtype) if place in tables else gradient * scale
                    for place, (gradient, variable) in enumerate(zip(gradients, variables, strict=True))
                ],
                rates,
                [step] * len(variables),
                decays,
            )

        _in_one_pass(update)
        for state, values, indices in moved_rows:
            state.scatter_update(tf.IndexedSlices(values, indices))

    def _move(self, variable, momentum, velocity, *arguments):
        states = variable, momentum, velocity
        moved = self._moved(*map(tf.convert_to_tensor, states), *arguments)
        for state, value in zip(states, moved, strict=True):
            state.assign(value)

    def _moved(self, variable, momentum, velocity, gradient, rate, step, decays):
        """New values of a variable and of its moments, or of some rows of them."""
        momentum += (gradient - momentum) * (1 - self.beta_1)
        velocity += (tf.square(gradient) - velocity) * (1 - self.beta_2)
        step = tf.cast(step, variable.dtype)
        change = self._change(
            momentum,
            velocity,
            -tf.math.expm1(step * math.log(self.beta_1)),
            -tf.math.expm1(step * math.log(self.beta_2)),
            variable if decays else None,
        )
        return variable - tf.cast(rate, variable.dtype) * change, momentum, velocity

    def update_averages(self, update):
        _in_one_pass(update)

    def _change(self, momentum, velocity, momentum_share, velocity_share, decayed):
        """What to take off a variable, in units of its rate.

        Args:
            momentum, velocity: Running means of its gradient and of the gradient's square.
            momentum_share, velocity_share: What part of either mean is not its start at zero.
            decayed: Its value, or None when it is excluded from decay.
        """
        raise NotImplementedError

    def get_config(self):
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "no_decay": list(self.no_decay),
            "rate_factors": [[pattern, factor] for pattern, factor in self.rate_factors],
        }


def _summed_rows(gradient):
    """Of IndexedSlices each row once, the sum of all that it was given."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    indices, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(indices))
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def _in_one_pass(update):
    """Runs `update`, compiled by XLA where that is possible."""
    # A strategy's variables live on several devices, which one XLA program cannot reach; and
    # eagerly there would be a new program to compile with every step.
    if not (tf.distribute.has_strategy() or tf.executing_eagerly()):
        update = tf.function(update, jit_compile=True, autograph=False)
    update()


@keras.saving.register_keras_serializable(package="keras_bert")
class AdamW(_Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2017), set as for BERT.

    It differs from `keras.optimizers.AdamW` in this:

    * Exclusions from decay are patterns on `variable.path`, kept in the config and so in force after
      loading. (Keras matches the bare name and forgets them.) Rates can differ by path, too.
    * `global_clipnorm` bounds the norm of what is applied: of gradients summed over all replicas, those
      of embeddings made dense.
    * Outside of a distribution strategy XLA compiles the update into one pass over the variables.

    Args:
        learning_rate: A float or a schedule.
        weight_decay: Share of each decayed variable, times its rate, taken off in each step.
        beta_1, beta_2, epsilon: Adam's constants.
        global_clipnorm: Largest norm of all gradients together; None for no limit.
        no_decay: Regular expressions; a variable is not decayed when one is found in its path.
        rate_factors: Pairs (regular expression, factor). The first one found in a variable's path
            scales its rate, and with it its decay; without one it is 1. See `layer_decay`.
        **kwargs: Of `keras.optimizers.Optimizer`, such as `use_ema`.
    """

    _is_elementwise = True

    def _change(self, momentum, velocity, momentum_share, velocity_share, decayed):
        scale = ops.sqrt(velocity_share) / momentum_share
        change = momentum * scale / (ops.sqrt(velocity) + self.epsilon)
        return change if decayed is None else change + self.weight_decay * decayed


@keras.saving.register_keras_serializable(package="keras_bert")
class LAMB(_Adam):
    """Adam for large batches: each variable moves in proportion to its own norm.

    You et al. 2019, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes",
    algorithm 2, with moments corrected for their start. A step of rate r, decay included, moves a
    variable by r times its norm, whatever its gradient. The variables that `no_decay` excludes, biases
    and norms, are moved as Adam does; so are those that are all zero.

    (`keras.optimizers.Lamb` has the decay outside of that proportion, and biases and norms inside.)

    The kernels of query, key and value are one variable here, and have one norm.

    Args:
        learning_rate: A float or a schedule. The paper's peak for BERT is 0.005 at a batch of 32,768,
            and for smaller ones that much less as the square root of the batch is.
        weight_decay: Share of each decayed variable in the direction of its step.
        beta_1, beta_2, epsilon: Adam's constants.
        global_clipnorm: Largest norm of all gradients together; None for no limit.
        no_decay: Regular expressions; a variable is neither decayed nor moved in proportion to its norm
            when one is found in its path.
        rate_factors: As in `AdamW`.
        **kwargs: Of `keras.optimizers.Optimizer`, such as `use_ema`.
    """

    _is_elementwise = False

    def _change(self, momentum, velocity, momentum_share, velocity_share, decayed):
        change = momentum / momentum_share / (ops.sqrt(velocity / velocity_share) + self.epsilon)
        if decayed is None:
            return change
        change += self.weight_decay * decayed
        size, length = _norm(decayed), _norm(change)
        return change * ops.where((size > 0) & (length > 0), size / length, 1.0)


def _norm(tensor):
    # of the norms of its rows: XLA would sum up millions of squares one after the other
    return tf.norm(tf.norm(tensor[None], axis=-1))


def layer_decay(config, decay):
    """`rate_factors` that let a checkpoint's lower layers, which are more general, move less.

    Heads keep the full rate, the last block of L has decay, the first decay**L, and the embeddings
    decay**(L + 1): Howard & Ruder 2018 (ULMFiT), section 3.2; Clark et al. 2020 (ELECTRA), whose code
    has one more factor of decay below the heads.

    L counts blocks with weights of their own. Where layers share them (ALBERT), a block takes part in
    the last of its layers as much as in the first, so there is one factor for each block.

    Args:
        config: The EncoderConfig.
        decay: Rate of a block in units of that of the block above it; ELECTRA takes 0.8 or 0.9.

    Returns:
        A list of pairs (pattern, factor).

    Example:

    >>> layer_decay(EncoderConfig(num_hidden_layers=2), 0.5)
    [('(^|/)block_0/', 0.25), ('(^|/)block_1/', 0.5), ('(^|/)embeddings/', 0.125)]
    """
    if not 0 < decay <= 1:
        raise ValueError(f"`decay` must be above 0 and at most 1. Received: {decay}.")
    blocks = config.groups
    return [
        *((f"(^|/)block_{index}/", decay ** (blocks - index)) for index in range(blocks)),
        ("(^|/)embeddings/", decay ** (blocks + 1)),
    ]
