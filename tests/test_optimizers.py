"""keras_bert.training.optimizers: numpy's steps, decay and rates by path, norms, averages, replicas."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.config import EncoderConfig
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.training.optimizers import LAMB, AdamW, layer_decay
from keras_bert.training.private_keras import expect_summed_gradients
from keras_bert.training.schedules import WarmupDecay

STEPS = 5
SHAPES = {
    "block_0/kernel": (3, 2),
    "block_1/kernel": (2, 2, 2),
    "block_1/bias": (2,),
    "zero/kernel": (2,),
}
FACTORS = [(r"block_0", 0.5), (r"bias", 2.0), (r"block_1/bias", 9.0)]
EXPECTED_FACTORS = {"block_0/kernel": 0.5, "block_1/kernel": 1, "block_1/bias": 2, "zero/kernel": 1}


def start_and_gradients(seed=0, scale=1.0):
    """Values of the variables, and gradients of each step, that clipping to 1 changes at some steps."""
    rng = np.random.default_rng(seed)
    values = {path: rng.normal(size=shape) for path, shape in SHAPES.items()}
    values["zero/kernel"] = np.zeros(2)
    sizes = scale * np.geomspace(0.05, 5, STEPS)
    return values, [
        {path: size * rng.normal(size=shape) for path, shape in SHAPES.items()} for size in sizes
    ]


def numpy_steps(kind, values, gradients, rate, decay, clip=1.0, betas=(0.9, 0.999), epsilon=1e-6):
    """Loshchilov & Hutter's algorithm 2, epsilon as in Kingma's section 2; You et al.'s algorithm 2."""
    values = dict(values)
    first, second = dict.fromkeys(values, 0.0), dict.fromkeys(values, 0.0)
    for step, grads in enumerate(gradients, start=1):
        norm = np.sqrt(sum((gradient**2).sum() for gradient in grads.values()))
        for path, gradient in grads.items():
            gradient = gradient * min(1, clip / norm)
            first[path] = betas[0] * first[path] + (1 - betas[0]) * gradient
            second[path] = betas[1] * second[path] + (1 - betas[1]) * gradient**2
            m, v = first[path], second[path]
            own_rate, excluded = rate * EXPECTED_FACTORS[path], path.endswith("bias")
            own_decay = 0 if excluded else decay
            if kind is AdamW:
                values[path] = values[path] * (1 - own_rate * own_decay)
                scale = own_rate * np.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step)
                values[path] = values[path] - scale * m / (np.sqrt(v) + epsilon)
            else:
                m, v = m / (1 - betas[0] ** step), v / (1 - betas[1] ** step)
                move = m / (np.sqrt(v) + epsilon) + own_decay * values[path]
                size, length = np.linalg.norm(values[path].ravel()), np.linalg.norm(move.ravel())
                ratio = 1 if excluded or size == 0 or length == 0 else size / length
                values[path] = values[path] - own_rate * ratio * move
    return values


def variables_of(values):
    made = []
    for path, value in values.items():
        scope, name = path.split("/")
        with keras.name_scope(scope):
            made.append(keras.Variable(value.astype("float32"), name=name))
    return made


def values_of(variables):
    return {variable.path: variable.numpy() for variable in variables}


def apply_all(optimizer, variables, gradients, graph):
    """Applies the gradients of each step, one after the other."""
    optimizer.build(variables)

    def apply(*grads):
        optimizer.apply(list(grads), variables)

    apply = tf.function(apply, autograph=False) if graph else apply
    for grads in gradients:
        apply(*(tf.constant(grads[variable.path], tf.float32) for variable in variables))


def assert_close(found, expected, atol=2e-6):
    assert found.keys() == expected.keys()
    for path in found:
        np.testing.assert_allclose(found[path], expected[path], atol=atol, err_msg=path)


@pytest.mark.parametrize("kind", [AdamW, LAMB])
@pytest.mark.parametrize("graph", [False, True])
def test_steps_match_numpy(kind, graph):
    values, gradients = start_and_gradients()
    optimizer = kind(0.1, weight_decay=0.05, rate_factors=FACTORS)
    variables = variables_of(values)
    apply_all(optimizer, variables, gradients, graph)
    expected = numpy_steps(kind, values, gradients, 0.1, 0.05)
    assert_close(values_of(variables), expected)
    assert int(optimizer.iterations) == STEPS


def test_lamb_by_hand():
    """A first step changes by the gradient's signs; with decay 0.1, (3, 4) by (1.3, -0.6).

    Length 1.4318 and size 5: the rate of 0.1 moves by 0.5 in that direction.
    """
    variable = keras.Variable(np.array([3, 4], "float32"), name="kernel")
    LAMB(0.1, weight_decay=0.1, epsilon=0.0).apply([tf.constant([0.2, -0.01])], [variable])
    length = np.hypot(1.3, -0.6)
    np.testing.assert_allclose(variable.numpy(), [3 - 0.65 / length, 4 + 0.3 / length], rtol=1e-6)


def test_lamb_stands_still_without_gradient_and_decay():
    variable = keras.Variable(np.array([3, 4], "float32"), name="kernel")
    LAMB(0.1, weight_decay=0.0).apply([tf.zeros(2)], [variable])
    assert variable.numpy().tolist() == [3, 4]


def test_the_first_steps_keep_float32s_digits():
    """1 - 0.999 in float32 is off by 1e-5, and with it a first step."""
    variable = keras.Variable(np.zeros(1, "float32"), name="bias")
    AdamW(1.0, beta_1=0.99999, beta_2=0.99999, epsilon=0.0).apply([tf.ones(1)], [variable])
    np.testing.assert_allclose(variable.numpy(), [-1], rtol=5e-7)


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


@pytest.mark.parametrize("kind", [AdamW, LAMB])
def test_patterns_are_in_force_after_loading(kind):
    schedule = WarmupDecay(0.5, 1, 9)
    optimizer = kind(schedule, no_decay=["table"], rate_factors=FACTORS, use_ema=True)
    loaded = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(loaded) is kind
    assert loaded.get_config() == optimizer.get_config()
    assert loaded.rate_factor("encoder/block_0/bias") == 0.5
    table = keras.Variable(np.ones(2, "float32"), name="table")
    kernel = keras.Variable(np.ones(2, "float32"), name="kernel")
    loaded.apply([tf.zeros(2)] * 2, [table, kernel])
    assert table.numpy().tolist() == [1, 1]
    assert (kernel.numpy() < 1).all()


@pytest.mark.parametrize("kind", [AdamW, LAMB])
@pytest.mark.parametrize("graph", [False, True])
def test_clipping_counts_repeated_ids(kind, graph):
    """Two gradients of row 0 add up to norm 12 before they are clipped to 1."""
    table = keras.Variable(np.zeros((3, 4), "float32"), name="table")
    optimizer = kind(0.1, weight_decay=0.0)
    optimizer.build([table])

    def step():
        slices = tf.IndexedSlices(tf.constant(3.0, shape=(2, 4)), tf.constant([0, 0]), (3, 4))
        optimizer.apply([slices], [table])

    (tf.function(step) if graph else step)()
    momentum = optimizer._momentums[0].numpy()
    np.testing.assert_allclose(momentum[0], 0.1 * 6 / 12, rtol=1e-5)


def table_step(apply, variables):
    def step(ids, values, gradient):
        apply([tf.IndexedSlices(values, ids, (7, 4)), gradient], variables)

    return step


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("clip", [1.0, None])
def test_rows_move_as_the_whole_table_does(graph, clip):
    """Rows with a gradient, some given twice, and those without, which decay and glide on."""
    rng = np.random.default_rng(0)
    start = {"table": rng.normal(size=(7, 4)), "kernel": rng.normal(size=(3, 4))}
    options = {"learning_rate": 0.1, "weight_decay": 0.05, "global_clipnorm": clip, "use_ema": True}
    ends = []
    for keeps_rows in (True, False):
        variables = [keras.Variable(v.astype("float32"), name=name) for name, v in start.items()]
        optimizer = AdamW(**options)
        assert optimizer.takes_rows
        optimizer.build(variables)
        step = table_step(optimizer.apply_rows if keeps_rows else optimizer.apply, variables)
        step = tf.function(step, autograph=False) if graph else step
        draws = np.random.default_rng(1)
        for size in (0.1, 3.0, 0.5, 0.0):
            ids = tf.constant(draws.integers(0, 5, 6))
            rows, gradient = draws.normal(size=(6, 4)), draws.normal(size=(3, 4))
            step(ids, tf.constant(size * rows, tf.float32), tf.constant(gradient, tf.float32))
        ends.append([v.numpy() for v in (*variables, *optimizer.variables)])
    for rows, whole in zip(*ends, strict=True):
        np.testing.assert_allclose(rows, whole, atol=1e-6)


def test_rows_are_for_an_update_of_each_element_alone():
    assert not LAMB().takes_rows
    assert not AdamW(global_clipnorm=None, clipvalue=1.0).takes_rows
    assert not AdamW(gradient_accumulation_steps=2).takes_rows


@pytest.mark.parametrize(
    ("limit", "first", "second"),
    [
        ({"global_clipnorm": None}, [3, 4], [5, 12]),
        ({"global_clipnorm": None, "clipnorm": 1.0}, [0.6, 0.8], [5 / 13, 12 / 13]),
        ({"global_clipnorm": None, "clipvalue": 4.0}, [3, 4], [4, 4]),
        ({"global_clipnorm": 97**0.5}, [1.5, 2], [2.5, 6]),
    ],
)
def test_limits_of_gradients(limit, first, second):
    variables = [keras.Variable(np.ones(2, "float32"), name="kernel") for _ in range(2)]
    optimizer = AdamW(0.1, **limit)
    optimizer.apply([tf.constant([3.0, 4]), tf.constant([5.0, 12])], variables)
    if limit["global_clipnorm"]:  # the norm of all four is 2 * 97**0.5
        assert 3**2 + 4**2 + 5**2 + 12**2 == 2 * 97
        first, second = (np.array(part) * 2**0.5 for part in (first, second))
    np.testing.assert_allclose(optimizer._momentums[0].numpy(), 0.1 * np.array(first), rtol=1e-5)
    np.testing.assert_allclose(optimizer._momentums[1].numpy(), 0.1 * np.array(second), rtol=1e-5)


@pytest.mark.parametrize("kind", [AdamW, LAMB])
@pytest.mark.parametrize("graph", [False, True])
def test_averages_follow_the_weights(kind, graph):
    values, gradients = start_and_gradients()
    optimizer = kind(0.1, weight_decay=0.05, rate_factors=FACTORS, use_ema=True, ema_momentum=0.6)
    variables = variables_of(values)
    apply_all(optimizer, variables, gradients, graph)
    averages = None
    for step in range(1, STEPS + 1):
        now = numpy_steps(kind, values, gradients[:step], 0.1, 0.05)
        averages = averages or now
        averages = {path: 0.6 * averages[path] + 0.4 * now[path] for path in now}
    assert_close(values_of(variables), now)
    optimizer.finalize_variable_values(variables)
    assert_close(values_of(variables), averages)


def test_kerass_accumulation_clips_the_mean_once():
    values, gradients = start_and_gradients()
    halves = [
        {path: share * gradient for path, gradient in grads.items()}
        for grads in gradients
        for share in (0.5, 1.5)
    ]
    optimizer = AdamW(0.1, 0.05, rate_factors=FACTORS, gradient_accumulation_steps=2)
    variables = variables_of(values)
    apply_all(optimizer, variables, halves, graph=True)
    assert_close(values_of(variables), numpy_steps(AdamW, values, gradients, 0.1, 0.05))


@pytest.mark.parametrize("groups", [None, 2])
def test_layer_decay_reaches_every_variable(toy_config, groups):
    config = EncoderConfig(
        **{
            **toy_config.to_dict(),
            "num_hidden_layers": 12 if groups is None else 4,
            "num_hidden_groups": groups,
            "embedding_size": 4,
        }
    )
    optimizer = AdamW(rate_factors=layer_decay(config, 0.5))
    blocks = config.groups
    for variable in BertPretrainer(config).trainable_variables:
        parts = variable.path.split("/")
        if "embeddings" in parts:
            expected = 0.5 ** (blocks + 1)
        elif parts[1].startswith("block_"):
            expected = 0.5 ** (blocks - int(parts[1].removeprefix("block_")))
        else:
            assert parts[0] in ("masked_lm", "sentence") or parts[1] == "pooler"
            expected = 1.0
        assert optimizer.rate_factor(variable.path) == expected, variable.path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_decay": None}, "`weight_decay` must be at least 0. Received: None"),
        ({"epsilon": -1.0}, "`epsilon` must be at least 0. Received: -1.0"),
        ({"beta_2": 1.0}, "`beta_2` must lie between 0 and 1. Received: 1.0"),
        ({"rate_factors": [("a", 1.0), ("b", -0.5)]}, "at least 0. Received: -0.5 for 'b'"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    for kind in (AdamW, LAMB):
        with pytest.raises(ValueError, match=message):
            kind(**options)


@pytest.mark.parametrize("decay", [0.0, 1.5])
def test_layer_decay_outside_of_its_range_is_refused(toy_config, decay):
    with pytest.raises(ValueError, match=f"above 0 and at most 1. Received: {decay}"):
        layer_decay(toy_config, decay)


def run_on_replicas():
    """In a process of its own, which may still make two CPUs of one: four checks of two replicas."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    values, gradients = start_and_gradients()
    for kind in (AdamW, LAMB):
        for summed_before in (True, False):
            with strategy.scope():
                variables = variables_of(values)
                optimizer = kind(0.1, 0.05, rate_factors=FACTORS, use_ema=True, ema_momentum=0.6)
                optimizer.build(variables)
            if summed_before:  # as the Trainer does
                expect_summed_gradients(optimizer)

            @tf.function(autograph=False)
            def apply(grads, optimizer=optimizer, variables=variables, summed_before=summed_before):
                replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                # of what is summed, the second replica has three quarters
                share = 1.0 if summed_before else 0.25 + 0.5 * tf.cast(replica, tf.float32)
                optimizer.apply([share * grad for grad in grads], variables)

            for grads in gradients:
                grads = [tf.constant(grads[variable.path], tf.float32) for variable in variables]
                strategy.run(apply, (grads,))
            alone = variables_of(values)
            reference = kind(0.1, 0.05, rate_factors=FACTORS, use_ema=True, ema_momentum=0.6)
            apply_all(reference, alone, gradients, graph=True)
            for mirrored, single in zip(
                [*variables, *optimizer.variables], [*alone, *reference.variables], strict=True
            ):
                for copy in mirrored.value.values:
                    np.testing.assert_allclose(
                        copy.numpy(), single.numpy(), atol=1e-6, err_msg=mirrored.path
                    )
            assert_close(values_of(alone), numpy_steps(kind, values, gradients, 0.1, 0.05))
            print("equal", kind.__name__, summed_before)


def test_replicas_take_the_same_steps_as_one_device():
    """With gradients that are summed already, and with Keras's own sum, which comes before clipping."""
    code = "import test_optimizers; test_optimizers.run_on_replicas()"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert run.stdout.count("equal") == 4, run.stdout + run.stderr
