"""keras_bert.training.schedules: rates against plain formulas, steps that float32 cannot count."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.training.schedules import WarmupDecay

SETTINGS = [
    {},
    {"schedule": "cosine"},
    {"schedule": "polynomial", "decay_power": 2.5},
    {"schedule": "polynomial", "decay_power": 0.5, "end_rate": 0.25},
    {"schedule": "cosine", "end_rate": 0.125},
    {"end_rate": 2.0},
]


def plain_rate(step, peak, warmup_steps, steps, schedule="linear", decay_power=1.0, end_rate=0.0):
    """The rate of a step, in Python's integers and double precision."""
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    done = min(1, (step - warmup_steps) / (steps - warmup_steps))
    if schedule == "cosine":
        return end_rate + (peak - end_rate) * (1 + math.cos(math.pi * done)) / 2
    return end_rate + (peak - end_rate) * (1 - done) ** decay_power


@pytest.mark.parametrize("options", SETTINGS)
@pytest.mark.parametrize("warmup_steps", [0, 1, 4])
def test_rates_follow_the_formulas(options, warmup_steps):
    settings = {"peak": 2.0, "warmup_steps": warmup_steps, "steps": 12, **options}
    schedule = WarmupDecay(**settings)
    rates = [float(schedule(step)) for step in range(15)]
    expected = [plain_rate(step, **settings) for step in range(15)]
    np.testing.assert_allclose(rates, expected, rtol=1e-6, atol=1e-9)
    assert rates[max(warmup_steps - 1, 0)] == rates[warmup_steps] == max(rates) == 2
    assert rates[12:] == [options.get("end_rate", 0)] * 3


def test_linear_by_hand():
    schedule = WarmupDecay(2.0, warmup_steps=4, steps=12)
    rates = [float(schedule(step)) for step in range(14)]
    np.testing.assert_allclose(rates[:5], [0.5, 1.0, 1.5, 2.0, 2.0])
    np.testing.assert_allclose(rates[4:], [2, 1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.25, 0, 0])


@pytest.mark.parametrize("options", SETTINGS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("jit", [False, True])
def test_compiled_steps_of_any_integer_type(options, dtype, jit):
    settings = {"peak": 2.0, "warmup_steps": 3, "steps": 7, **options}
    rate = tf.function(WarmupDecay(**settings), jit_compile=jit)
    for step in (0, 2, 3, 5, 7, 2**31 - 1):
        found = rate(tf.constant(step, dtype))
        assert found.dtype == tf.float32
        np.testing.assert_allclose(found, plain_rate(step, **settings), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("options", SETTINGS)
def test_steps_beyond_what_float32_counts(options):
    """2**24 + 1 has no float32; neither have most numbers of a run of 2**40 steps."""
    for total in (2**24 + 4, 2**40):
        settings = {"peak": 1.0, "warmup_steps": 10, "steps": total, **options}
        settings["end_rate"] = min(settings.get("end_rate", 0.0), 0.5)
        schedule = WarmupDecay(**settings)
        for step in (2**24 - 1, 2**24 + 1, total - 3, total - 1, total, total + 1):
            found = float(schedule(tf.constant(step, tf.int64)))
            left = max(total - step, 0) / (total - 10)  # 1 - done would round
            share = {
                "linear": left,
                "cosine": math.sin(math.pi / 2 * left) ** 2,
                "polynomial": left ** settings.get("decay_power", 1.0),
            }[settings.get("schedule", "linear")]
            expected = settings["end_rate"] + (1 - settings["end_rate"]) * share
            np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=f"{settings}, {step}")
    rising = WarmupDecay(1.0, 2**40, 2**41)
    for step in (2**24 + 1, 2**39 + 1):
        found = float(rising(tf.constant(step, tf.int64)))
        np.testing.assert_allclose(found, (step + 1) / 2**40, rtol=1e-7)


def test_an_optimizer_takes_the_rate_of_its_step():
    variable = keras.Variable(np.zeros(1, "float32"), name="kernel")
    schedule = WarmupDecay(1.0, 2, 6, "cosine")
    optimizer = keras.optimizers.SGD(schedule)
    optimizer.build([variable])
    step = tf.function(lambda: optimizer.apply([tf.ones(1)], [variable]), jit_compile=True)
    for _ in range(7):
        step()
    expected = -sum(plain_rate(step, 1.0, 2, 6, "cosine") for step in range(7))
    np.testing.assert_allclose(variable.numpy(), [expected], rtol=1e-6)


@pytest.mark.parametrize("options", SETTINGS)
def test_configs_come_back(options):
    schedule = WarmupDecay(2.5, 3, 10, **options)
    stored = keras.optimizers.schedules.serialize(schedule)
    loaded = keras.optimizers.schedules.deserialize(stored)
    assert type(loaded) is WarmupDecay
    assert loaded.get_config() == schedule.get_config()
    assert [float(loaded(step)) for step in range(12)] == [float(schedule(step)) for step in range(12)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((1.0, 5, 5), "warmup_steps=5, steps=5"),
        ((1.0, -1, 5), "warmup_steps=-1, steps=5"),
        ((1.0, 1, 5, "cos"), "one of linear, cosine, polynomial. Received: 'cos'"),
        ((1.0, 1, 5, "polynomial", 0.0), "must be positive.* Received: decay_power=0.0"),
        ((1.0, 1, 5, "linear", 2.0), "polynomial. Received: decay_power=2.0, schedule='linear'"),
        ((1.0, 1, 5, "linear", 1.0, 1.5), "between 0 and `peak`. Received: end_rate=1.5, peak=1.0"),
    ],
)
def test_impossible_schedules_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        WarmupDecay(*settings)
