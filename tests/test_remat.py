"""keras_bert.layers.remat: the same gradients, from blocks that really are computed twice."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import scramble
from tensorflow.python.eager import context
from training_run import mirrored

from keras_bert.hashing import fold
from keras_bert.layers.remat import remat
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.training.compilation import compile_step, count_instructions
from keras_bert.training.optimizers import AdamW
from keras_bert.training.trainer import Trainer

# Of a block: query, key and value; scores; mixture; three dense layers. The last block has one more,
# its queries, which it computes for masked tokens alone.
PRODUCTS = 6
SEED = tf.constant(9, tf.uint32)


def make_model(config, is_remat, layout="dense"):
    keras.utils.set_random_seed(0)
    model = scramble(BertPretrainer(config, layout))
    model.encoder.remat = is_remat
    return model


def run_gradients(model, batch, jit_compile=False):
    """[the loss, its gradients], and how many matrix products the graph has when it runs."""
    x, y, weights = tf.nest.map_structure(tf.constant, batch)
    shares = {name: values / tf.reduce_sum(values) for name, values in weights.items()}

    @tf.function(jit_compile=jit_compile, autograph=False)
    def gradients(x):
        with tf.GradientTape() as tape:
            figures = model.weighted_figures(y, model(x, training=True, seed=SEED), shares)
            loss = tf.add_n([values["loss"] for values in figures.values()])
        found = tape.gradient(loss, model.trainable_variables)
        return [loss, *map(tf.convert_to_tensor, found)]

    # The graph after TensorFlow has merged in it what is the same.
    context.context().enable_graph_collection()
    try:
        results = gradients(x)
        graphs = context.context().export_run_metadata().function_graphs
    finally:
        context.context().disable_graph_collection()
    nodes = [node for graph in graphs for node in graph.post_optimization_graph.node]
    return results, sum("MatMul" in node.op for node in nodes)


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("layout", "jit_compile", "groups"),
    [
        ("dense", False, 1),
        ("unpadded", False, 2),
        pytest.param("dense", False, 2, marks=LONG),
        pytest.param("dense", True, 2, marks=LONG),
        pytest.param("unpadded", False, 1, marks=LONG),
    ],
)
def test_gradients_are_those_without(toy_config, toy_batch, layout, jit_compile, groups):
    config = dataclasses.replace(toy_config, num_hidden_groups=groups)
    (expected, products), (found, more) = (
        run_gradients(make_model(config, is_remat, layout), toy_batch, jit_compile)
        for is_remat in (False, True)
    )
    assert all(np.abs(gradient).max() > 1e-3 for gradient in expected)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
    if not jit_compile:
        assert products >= 3 * PRODUCTS * config.num_hidden_layers
        assert more == products + PRODUCTS * config.num_hidden_layers + 1


@pytest.mark.parametrize("shape", [(4, 3), (None, 3)])
@pytest.mark.parametrize("is_eager", [False, True])
def test_what_is_passed_and_what_is_captured(shape, is_eager):
    """Keywords keep their values; variables get their gradients, frozen ones change nothing."""
    kernel = tf.Variable(tf.reshape(tf.range(9.0), (3, 3)) / 9)
    frozen = tf.Variable([0.1, 0.2, 0.3], trainable=False)

    def function(x, seed, shift):
        noise = tf.cast(fold(seed, tf.range(3)), tf.float32) * 2**-32
        return tf.tanh(x @ kernel + frozen) * (noise + shift)

    @tf.function(input_signature=[tf.TensorSpec(shape)])
    def gradients(x):
        found = []
        for call in (function, remat(function)):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(call(x, seed=SEED, shift=tf.constant(0.5)) ** 2)
            found.append(tape.gradient(loss, [x, kernel]))
        return found

    tf.config.run_functions_eagerly(is_eager)
    try:
        expected, found = gradients(tf.random.normal((4, 3)))
    finally:
        tf.config.run_functions_eagerly(False)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5)


def make_trainer(config, is_remat, **options):
    model = make_model(config, is_remat)
    model.compile(AdamW(0.01))
    return Trainer(model, **options)


def test_a_compiled_program_computes_blocks_twice(toy_config, toy_batch):
    spec = tf.nest.map_structure(lambda array: tf.TensorSpec(array.shape, array.dtype), toy_batch)
    plain, twice = (
        compile_step(make_trainer(toy_config, is_remat).step, spec)("hlo") for is_remat in (False, True)
    )
    layers = toy_config.num_hidden_layers
    dots = count_instructions(plain, "dot")
    assert count_instructions(twice, "dot") == dots + PRODUCTS * layers + 1
    # These keep the compiler from merging the two passes: the one for TPUs does, where it can.
    assert count_instructions(plain, "opt-barrier") == 0
    assert count_instructions(twice, "opt-barrier") == layers


@pytest.mark.parametrize(
    ("make_strategy", "jit_compile"),
    [(tf.distribute.get_strategy, True), pytest.param(mirrored, False, marks=LONG)],
)
def test_training_is_the_same_under_accumulation(toy_config, toy_batch, make_strategy, jit_compile):
    strategy = make_strategy()
    config, weights = dataclasses.replace(toy_config, num_hidden_layers=1), []
    for is_remat in (False, True):
        with strategy.scope():
            trainer = make_trainer(config, is_remat, accumulate=2, jit_compile=jit_compile)
        trainer.fit(lambda *_: tf.data.Dataset.from_tensors(toy_batch).repeat(), 3)
        weights.append([weight.numpy() for weight in trainer.model.trainable_variables])
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-4)
