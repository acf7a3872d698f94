"""keras_bert.models.defaults: the optimizer and the figures of a model compiled without arguments."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert import AdamW, BertClassifier, BertPretrainer, WarmupDecay
from keras_bert.models.defaults import DefaultRate

X = {
    "token_ids": np.array([[1, 2, 3], [1, 4, 5], [1, 6, 7], [1, 8, 9]], "int32"),
    "padding_mask": np.ones((4, 3), "int32"),
}
Y = np.array([0, 1, 0, 1], "int32")


@pytest.fixture(scope="module")
def small_config(toy_config):
    return dataclasses.replace(toy_config, num_hidden_layers=1)


class Rates(keras.callbacks.Callback):
    """The rate that each step was made with."""

    def on_train_begin(self, logs=None):
        self.rates = []

    def on_train_batch_begin(self, batch, logs=None):
        self.rates.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))


def rates_of(model, *args, **kwargs):
    spy = Rates()
    model.fit(*args, **kwargs, verbose=0, callbacks=[spy])
    return spy.rates


def expected(steps, peak=5e-5):
    schedule = WarmupDecay(peak, steps // 10, steps)
    return pytest.approx([float(schedule(step)) for step in range(steps)], rel=1e-5)


def test_the_rate_rises_and_falls_over_the_steps_of_each_fit(small_config, tmp_path):
    model = BertClassifier(small_config, num_labels=2)
    model.compile()
    assert isinstance(model.optimizer, AdamW)
    assert rates_of(model, X, Y, batch_size=2, epochs=10) == expected(20)
    assert rates_of(model, X, Y, batch_size=3, epochs=2, validation_split=0.25) == expected(2)
    dataset = tf.data.Dataset.from_tensors((X, Y)).repeat(3)
    assert rates_of(model, dataset, epochs=4) == expected(12)
    before = [weight.numpy() for weight in model.trainable_variables]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert rates_of(loaded, dataset.repeat(), epochs=2, steps_per_epoch=5) == expected(10)
    moved = [np.abs(a - b).max() for a, b in zip(before, loaded.trainable_variables, strict=True)]
    assert max(moved) > 1e-5


def test_initial_epoch_goes_on_where_the_run_was(small_config):
    model = BertClassifier(small_config, num_labels=2)
    model.compile()
    whole = expected(20).expected
    spy = Rates()
    stop = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: setattr(model, "stop_training", epoch == 3)
    )
    model.fit(X, Y, batch_size=2, epochs=10, verbose=0, callbacks=[spy, stop])
    rest = rates_of(model, X, Y, batch_size=2, epochs=10, initial_epoch=4)
    assert spy.rates + rest == pytest.approx(whole, rel=1e-5)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_without_known_steps_the_rate_is_constant(small_config, toy_batch):
    model = BertPretrainer(small_config)
    model.compile()
    spec = tf.data.Dataset.from_tensors(toy_batch).element_spec
    dataset = tf.data.Dataset.from_generator(lambda: iter([toy_batch] * 3), output_signature=spec)
    rates = rates_of(model, dataset)
    assert len(rates) >= 3
    assert rates == pytest.approx([1e-4] * len(rates))


@pytest.mark.parametrize("policy", ["mixed_float16"], indirect=True)
def test_under_loss_scaling(small_config, policy):
    model = BertClassifier(small_config, num_labels=2)
    model.compile()
    model.fit(X, Y, batch_size=2, epochs=5, verbose=0)
    rate = model.optimizer.inner_optimizer._learning_rate
    assert rate.get_config() == {"peak": 5e-5, "steps": 10, "start": 0}


def test_another_optimizer_is_left_alone(small_config):
    model = BertClassifier(small_config, num_labels=2)
    model.compile(AdamW(1e-3))
    assert rates_of(model, X, Y, batch_size=2, epochs=2) == pytest.approx([1e-3] * 4)
    assert DefaultRate.from_config(DefaultRate(1.0, 5, 2).get_config()).steps == 5


def test_three_of_four_are_three_quarters(small_config):
    model = BertClassifier(small_config, num_labels=3)
    model.compile()
    y = model(X).numpy().argmax(axis=1)
    y[0] = (y[0] + 1) % 3
    for batch_size in (1, 2, 3, 4):
        figures = model.evaluate(X, y, batch_size=batch_size, verbose=0, return_dict=True)
        assert figures["labels_accuracy"] == 0.75
