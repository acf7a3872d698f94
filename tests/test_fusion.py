"""keras_bert.layers.fusion: compiled pieces give what the plain functions give, where they may be."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import LENGTH, ROWS
from scipy.special import erf

from keras_bert.layers.activations import FUSED_ACTIVATIONS
from keras_bert.layers.dropout import dropout
from keras_bert.layers.fusion import one_pass
from keras_bert.models.encoder import BertEncoder

X = np.linspace(-6, 6, 4001, dtype="float32")


def functions_of(graph):
    """Attributes of every function that a traced graph calls, at any depth."""
    return [function.attr for function in graph.graph.as_graph_def().library.function]


def is_compiled(concrete):
    return any(attributes["_XlaMustCompile"].b for attributes in functions_of(concrete))


def value_and_slope(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        out = function(x)
    return out, tape.gradient(out, x)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gelu_and_its_slope_match_scipy(dtype):
    run = tf.function(lambda x: value_and_slope(FUSED_ACTIVATIONS["gelu"], x))
    x = tf.cast(X, dtype)
    out, slope = (value.numpy().astype("float64") for value in run(x))
    exact = x.numpy().astype("float64")
    share = (1 + erf(exact / np.sqrt(2))) / 2
    density = np.exp(-(exact**2) / 2) / np.sqrt(2 * np.pi)
    tolerance = 1e-6 if dtype == "float32" else 2**-7
    np.testing.assert_allclose(out, exact * share, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(slope, share + exact * density, rtol=tolerance, atol=tolerance)


def test_what_is_drawn_again_is_the_same():
    fused = one_pass(lambda x, seed: dropout(x, 0.3, seed, site=1))
    x = tf.ones((64, 32))
    run = tf.function(lambda x, seed: value_and_slope(lambda x: fused(x, seed), x))
    for seed in (1, 2):
        out, slope = run(x, tf.constant(seed, tf.uint32))
        np.testing.assert_array_equal(out, slope)  # of ones, a factor is its own slope
        np.testing.assert_array_equal(out, dropout(x, 0.3, tf.constant(seed, tf.uint32), site=1))


def test_compiled_only_where_shapes_are_static_and_nothing_is_missing():
    fused = one_pass(lambda x, other: x if other is None else x + other)
    static, unknown = tf.TensorSpec((3,), tf.float32), tf.TensorSpec((None,), tf.float32)
    assert is_compiled(tf.function(fused).get_concrete_function(static, static))
    assert not is_compiled(tf.function(fused).get_concrete_function(static, unknown))
    assert not is_compiled(tf.function(lambda x: fused(x, None)).get_concrete_function(static))


def test_layers_share_a_compiled_piece(toy_config, toy_batch):
    """Each piece costs a compilation, which layers of one shape must not repeat."""
    model, x = BertEncoder(toy_config), toy_batch[0]
    step = tf.function(lambda x, seed: model(x, training=True, seed=seed))
    concrete = step.get_concrete_function(x, tf.constant(1, tf.uint32))
    compiled = [each for each in functions_of(concrete) if each["_XlaMustCompile"].b]
    assert len(compiled) == 4  # attention, activation, and a norm behind each


def test_a_training_step_is_that_of_eager_mode(toy_config, toy_batch):
    model = BertEncoder(toy_config)
    x = {name: tf.constant(toy_batch[0][name]) for name in ("token_ids", "padding_mask")}
    upstream = np.random.default_rng(0).normal(size=(ROWS, LENGTH, toy_config.hidden_size))

    def step(x, seed):
        with tf.GradientTape() as tape:
            out = model(x, training=True, seed=seed)["sequence_output"]
            loss = tf.reduce_sum(out * upstream.astype("float32"))
        variables = [v.value for v in model.embeddings.weights + model.blocks[0].weights]
        return out, [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]

    seed = tf.constant(3, tf.uint32)
    compiled = tf.function(step)
    assert is_compiled(compiled.get_concrete_function(x, seed))
    for got, expected in zip(
        tf.nest.flatten(compiled(x, seed)), tf.nest.flatten(step(x, seed)), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_inference_asks_for_no_compiler(toy_config, toy_batch):
    """A server need not be built with XLA, whatever shapes the export has."""
    model = BertEncoder(toy_config)
    assert not is_compiled(tf.function(model).get_concrete_function(toy_batch[0]))
