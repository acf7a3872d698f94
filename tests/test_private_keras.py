"""keras_bert.training.private_keras: what Keras must have, and that nobody else reaches into it."""

import inspect
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.training import private_keras
from keras_bert.training.private_keras import (
    WholeUpdateOptimizer,
    averages_of,
    expect_summed_gradients,
    rate_of,
    strategy_of,
    update_on_all_replicas,
)

PACKAGE = Path(private_keras.__file__).parents[1]
HOOKS = {  # what the module overrides or calls, with the arguments that it relies on
    "_all_reduce_sum_gradients": ["grads_and_vars"],
    "_apply_weight_decay": ["variables"],
    "_backend_apply_gradients": ["grads", "trainable_variables"],
    "_backend_update_step": ["grads", "trainable_variables", "learning_rate"],
    "_clip_gradients": ["grads"],
    "_get_variable_index": ["variable"],
    "_update_model_variables_moving_average": ["trainable_variables"],
}
CHANGED = (
    f"Keras {keras.__version__} has changed what keras_bert/training/private_keras.py builds on: read "
    "its optimizers/base_optimizer.py and backend/tensorflow/optimizer.py, and adapt the module."
)


class Recorder(WholeUpdateOptimizer):
    """Takes its gradients off, and notes what it was given."""

    def update_all(self, gradients, variables, learning_rate):
        self.given = gradients, variables, learning_rate
        for gradient, variable in zip(gradients, variables, strict=True):
            variable.assign_sub(gradient)

    def update_averages(self, update):
        self.averaged = True
        update()


def apply_to_ones(gradients, **options):
    optimizer = Recorder(0.5, **options)
    variables = [keras.Variable(np.ones(len(gradient), "float32")) for gradient in gradients]
    optimizer.apply([tf.constant(gradient, tf.float32) for gradient in gradients], variables)
    return optimizer, variables


@pytest.mark.parametrize("name", HOOKS)
def test_keras_has_the_hook(name):
    hook = getattr(keras.optimizers.Optimizer, name, None)
    assert hook is not None, f"{CHANGED} Missing: {name}."
    found = list(inspect.signature(hook).parameters)[1:]
    assert found == HOOKS[name], f"{CHANGED} Changed: {name}({', '.join(found)})."


def test_keras_calls_what_the_module_overrides():
    optimizer, variables = apply_to_ones([[3, 4]], use_ema=True, weight_decay=0.1, global_clipnorm=1.0)
    gradients, given, rate = getattr(optimizer, "given", (None, None, None))
    assert given is not None, f"{CHANGED} `update_all` is not called."
    assert [id(v) for v in given] == [id(v) for v in variables]
    assert gradients[0].numpy().tolist() == [3, 4], f"{CHANGED} Gradients are clipped."
    assert float(rate) == 0.5
    assert variables[0].numpy().tolist() == [-2, -3], f"{CHANGED} Weights are decayed."
    assert getattr(optimizer, "averaged", False), f"{CHANGED} `update_averages` is not called."
    np.testing.assert_allclose(averages_of(optimizer)[0].numpy(), [-2, -3])
    assert optimizer.index_of(variables[0]) == 0
    assert int(optimizer.iterations) == 1


def test_limits_of_each_gradient_stay_kerass():
    optimizer, _ = apply_to_ones([[3, 4]], clipnorm=1.0)
    np.testing.assert_allclose(optimizer.given[0][0], [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize("make", [keras.optimizers.SGD, Recorder])
def test_summed_gradients_are_not_summed_again(make):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        optimizer, variable = make(1.0), keras.Variable(np.ones(2, "float32"))
        optimizer.build([variable])
    assert strategy_of(optimizer) is strategy, CHANGED
    calls = []
    original = optimizer._all_reduce_sum_gradients
    optimizer._all_reduce_sum_gradients = lambda pairs: calls.append(1) or original(pairs)
    strategy.run(lambda: optimizer.apply([tf.ones(2)], [variable]))
    assert calls, f"{CHANGED} It sums gradients elsewhere."
    expect_summed_gradients(optimizer)
    strategy.run(lambda: optimizer.apply([tf.ones(2)], [variable]))
    assert len(calls) == 1


def test_updates_reach_variables_with_their_own_arguments():
    variables = [keras.Variable(np.zeros(2, "float32")) for _ in range(2)]
    slots = [keras.Variable(np.full(2, i, "float32")) for i in range(2)]

    def update(variable, slot, factor):
        variable.assign_add(slot + factor)

    update_on_all_replicas(update, variables, slots, [10.0, 20.0])
    assert [v.numpy().tolist() for v in variables] == [[10, 10], [21, 21]]


def test_a_schedule_is_given_back_as_it_is():
    schedule = keras.optimizers.schedules.CosineDecay(1.0, 10)
    assert rate_of(keras.optimizers.SGD(schedule)) is schedule


def test_no_other_module_reaches_into_the_optimizer():
    private = re.compile(rf"optimizer\._\w+|optimizer, \"_|tf\.__internal__|\b({'|'.join(HOOKS)})\b")
    for path in sorted(PACKAGE.rglob("*.py")):
        if path != Path(private_keras.__file__):
            found = {match[0] for match in private.finditer(path.read_text(encoding="utf-8"))}
            assert not found, f"{path.relative_to(PACKAGE)}: {found} belongs into private_keras.py"
