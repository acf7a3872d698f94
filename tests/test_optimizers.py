"""keras_bert.training.optimizers: one step in numpy, who is decayed, norms of repeated ids."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.training.optimizers import AdamW, WarmupLinearDecay


def numpy_adamw(value, gradients, rate, decay, clip=1.0, betas=(0.9, 0.999), epsilon=1e-6):
    """Loshchilov & Hutter's algorithm 2 on one variable, Adam's epsilon as Kingma's section 2."""
    first = second = 0.0
    for step, gradient in enumerate(gradients, start=1):
        norm = np.sqrt((gradient**2).sum())
        gradient = gradient * min(1, clip / norm)
        value = value - rate * decay * value
        first = betas[0] * first + (1 - betas[0]) * gradient
        second = betas[1] * second + (1 - betas[1]) * gradient**2
        scale = rate * np.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step)
        value = value - scale * first / (np.sqrt(second) + epsilon)
    return value


@pytest.mark.parametrize("graph", [False, True])
def test_steps_match_numpy(graph):
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=(3, 2)), rng.normal(size=(4, 3, 2))
    variable = keras.Variable(start.astype("float32"), name="kernel")
    optimizer = AdamW(0.1, weight_decay=0.05)
    optimizer.build([variable])

    def apply(gradient):
        optimizer.apply([gradient], [variable])

    apply = tf.function(apply) if graph else apply
    for gradient in gradients.astype("float32"):
        apply(tf.constant(gradient))
    expected = numpy_adamw(start, gradients, 0.1, 0.05)
    np.testing.assert_allclose(variable.numpy(), expected, atol=1e-5)  # 1 - 0.999 costs digits
    assert int(optimizer.iterations) == 4


def test_biases_and_norms_are_not_decayed_and_everything_else_is(toy_config):
    model = BertPretrainer(toy_config)
    optimizer = AdamW()
    optimizer.build(model.trainable_variables)
    decayed = {v.path.split("/")[-1] for v in model.trainable_variables if optimizer.decays(v.path)}
    spared = {v.path.split("/")[-1] for v in model.trainable_variables} - decayed
    assert decayed == {"word_table", "position_table", "segment_table", "qkv_kernel", "kernel"}
    assert spared == {"bias", "qkv_bias", "gamma", "beta"}
    # and that is what the update does: gradients of zero move decayed variables alone
    before = [v.numpy() + 1 for v in model.trainable_variables]
    for variable, value in zip(model.trainable_variables, before, strict=True):
        variable.assign(value)
    optimizer.apply([tf.zeros(v.shape) for v in model.trainable_variables])
    for variable, value in zip(model.trainable_variables, before, strict=True):
        moved = np.abs(variable.numpy() - value).max() > 0
        assert moved == optimizer.decays(variable.path), variable.path


def test_exclusions_are_in_force_after_loading():
    optimizer = AdamW(WarmupLinearDecay(0.5, 1, 9), no_decay=["table"])
    loaded = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert loaded.get_config() == optimizer.get_config()
    table = keras.Variable(np.ones(2, "float32"), name="table")
    kernel = keras.Variable(np.ones(2, "float32"), name="kernel")
    loaded.apply([tf.zeros(2)] * 2, [table, kernel])
    assert table.numpy().tolist() == [1, 1]
    assert (kernel.numpy() < 1).all()


@pytest.mark.parametrize("graph", [False, True])
def test_clipping_counts_repeated_ids(graph):
    """Two gradients of row 0 add up to norm 12 before they are clipped to 1."""
    table = keras.Variable(np.zeros((3, 4), "float32"), name="table")
    optimizer = AdamW(0.1, weight_decay=0.0)
    optimizer.build([table])

    def step():
        slices = tf.IndexedSlices(tf.constant(3.0, shape=(2, 4)), tf.constant([0, 0]), (3, 4))
        optimizer.apply([slices], [table])

    (tf.function(step) if graph else step)()
    momentum = optimizer._momentums[0].numpy()
    np.testing.assert_allclose(momentum[0], 0.1 * 6 / 12, rtol=1e-5)


def test_learning_rate_rises_then_falls():
    schedule = WarmupLinearDecay(2.0, warmup_steps=4, total_steps=12)
    rates = [float(schedule(step)) for step in range(14)]
    np.testing.assert_allclose(rates[:5], [0.5, 1.0, 1.5, 2.0, 2.0])
    np.testing.assert_allclose(rates[4:], [2, 1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.25, 0, 0])
    assert float(WarmupLinearDecay(1.0, 0, 10)(0)) == 1.0
    with pytest.raises(ValueError, match="warmup_steps=5, total_steps=5"):
        WarmupLinearDecay(1.0, 5, 5)
