"""Shared fixtures: tiny shapes that every test file may use."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import training_run

# Two devices, so that a MirroredStrategy has something to mirror; nobody else looks at the second.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

ROOT = Path(__file__).parents[1]
MEASURED = {"seconds", "tokens_per_second", "peak_memory_gib"}  # of one run, in a history of figures
VOCAB, ROWS, LENGTH, PREDICTIONS = 23, 3, 7, 2


@pytest.fixture(scope="session")
def toy_config():
    """Small enough for finite differences, with dropout on."""
    return training_run.toy_config(dropout=0.1)


@pytest.fixture(scope="session")
def toy_batch():
    """(x, y, sample_weight): rows of 7, 4 and 5 real tokens, one padded prediction."""
    rng = np.random.default_rng(7)
    lengths = np.array([7, 4, 5])
    mask = np.arange(LENGTH) < lengths[:, None]
    x = {
        "token_ids": np.where(mask, rng.integers(1, VOCAB, (ROWS, LENGTH)), 0).astype("int32"),
        "padding_mask": mask.astype("int32"),
        "segment_ids": (np.arange(LENGTH) >= 3).astype("int32") * mask.astype("int32"),
        "mask_positions": np.array([[1, 6], [2, 0], [1, 4]], "int32"),
    }
    y = {
        "masked_lm": rng.integers(1, VOCAB, (ROWS, PREDICTIONS)).astype("int32"),
        "sentence": np.array([0, 1, 1], "int32"),
    }
    weights = {
        "masked_lm": np.array([[1, 1], [1, 0], [1, 1]], "float32"),
        "sentence": np.ones(ROWS, "float32"),
    }
    return x, y, weights


@pytest.fixture
def policy(request):
    """Sets the global dtype policy that the test names, and sets the old one again."""
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(request.param)
    yield request.param
    keras.mixed_precision.set_global_policy(before)


@pytest.fixture(autouse=True)
def _same_weights_in_every_run():
    keras.utils.set_random_seed(0)


def scramble(model, seed=0, scale=0.2):
    """Moves every float weight by a random value: zeros and ones would hide mistakes."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        if "int" not in str(weight.dtype):
            weight.assign(weight.numpy() + rng.normal(scale=scale, size=weight.shape))
    return model
