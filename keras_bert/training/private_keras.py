"""All that this package takes from the private parts of Keras and TensorFlow, in this one module.

Keras sums gradients over replicas after it has clipped those of each, decays weights apart from its
update, and gives no public way to change either. Checked with Keras 3.13.2 and 3.15.1 on TensorFlow
2.20 and 2.21; tests/test_private_keras.py fails by name on what another version has no longer.
"""

import keras
import tensorflow as tf


def strategy_of(optimizer):
    """The `tf.distribute` strategy that an optimizer was made in."""
    return optimizer._distribution_strategy


def rate_of(optimizer):
    """The learning rate as it was given: a schedule, where `learning_rate` is what it says now."""
    return optimizer._learning_rate


def averages_of(optimizer):
    """Running means of the trainable variables, in their order, of an optimizer with `use_ema`."""
    return optimizer._model_variables_moving_average


def expect_summed_gradients(optimizer):
    """From now on the optimizer is given gradients that are summed over all replicas already."""
    optimizer._all_reduce_sum_gradients = lambda grads_and_vars: grads_and_vars


def update_on_all_replicas(update, variables, *arguments):
    """Calls update(variable, *its arguments) where each variable lives; in replica context.

    Args:
        variables: Keras variables.
        *arguments: Lists, as long as `variables`, of tensors and Keras variables.
    """

    def native(value):
        return value.value if isinstance(value, keras.Variable) else value

    def merged(strategy, variables, arguments):
        for variable, *own in zip(variables, *arguments, strict=True):
            strategy.extended.update(variable, update, args=tuple(own), group=False)

    variables, *arguments = ([native(value) for value in values] for values in (variables, *arguments))
    tf.__internal__.distribute.interim.maybe_merge_call(
        merged, tf.distribute.get_strategy(), variables, arguments
    )


class WholeUpdateOptimizer(keras.optimizers.Optimizer):
    """An optimizer whose subclass makes the whole update in one method, `update_all`.

    It gets the gradients as they are, summed over the replicas: a `global_clipnorm` and the decay are
    its own business. (`clipnorm` and `clipvalue` bound gradients of each replica, as Keras does.)
    """

    _keeps_rows = False

    def apply_rows(self, gradients, variables):
        """`apply`, with IndexedSlices left as they are; not for what XLA compiles as a whole.

        Nothing of Keras's may come between: no `clipnorm`, no sum over replicas, no accumulation.
        """
        self._keeps_rows = True
        try:
            self.apply(gradients, variables)
        finally:
            self._keeps_rows = False

    def update_all(self, gradients, variables, learning_rate):
        """Moves the variables; in replica context.

        Args:
            gradients: One for each of `variables`: a tensor, or the IndexedSlices of a table of which
                some rows were looked up, ids repeated or not, of `apply_rows`.
            variables: Keras variables, of those that the optimizer was built with.
            learning_rate: () float.
        """
        raise NotImplementedError

    def update_averages(self, update):
        """Runs `update`, which moves the running means of `use_ema`."""
        update()

    def index_of(self, variable):
        """Which of the variables that the optimizer was built with this one is."""
        return self._get_variable_index(variable)

    def _backend_apply_gradients(self, grads, trainable_variables):
        if not self._keeps_rows:
            # the norm of IndexedSlices ignores repeated ids
            grads = [tf.convert_to_tensor(grad) for grad in grads]
        super()._backend_apply_gradients(grads, trainable_variables)

    def _clip_gradients(self, grads):
        # Keras would clip here the gradients of each replica, before they are summed
        return grads if self.global_clipnorm else super()._clip_gradients(grads)

    def _apply_weight_decay(self, variables):
        """Nothing: the decay is part of `update_all`."""

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        pairs = self._all_reduce_sum_gradients(list(zip(grads, trainable_variables, strict=True)))
        self.update_all([grad for grad, _ in pairs], trainable_variables, learning_rate)

    def _update_model_variables_moving_average(self, trainable_variables):
        update = super()._update_model_variables_moving_average
        self.update_averages(lambda: update(trainable_variables))
