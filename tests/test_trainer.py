"""keras_bert.training.trainer: one update whatever the replicas, exact resume, refusals.

Runs with other devices or hosts, and runs that are killed, are processes of tests/training_run.py.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import training_run
from conftest import MEASURED, ROOT

from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.training.callbacks import OnBest
from keras_bert.training.optimizers import AdamW
from keras_bert.training.trainer import Interrupted, NonFiniteLoss, Trainer

SCRIPT = ROOT / "tests" / "training_run.py"


def start(out, workers=1, **options):
    """Starts the processes of a run; each writes what it says into out/log_<worker>.txt."""
    options = {"out": str(out), **options}
    Path(out).mkdir(exist_ok=True, parents=True)
    addresses = [f"localhost:{port}" for port in free_ports(workers)]
    processes = []
    for index in range(workers):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
        if workers > 1:
            options["strategy"] = "multi_worker"
            task = {"type": "worker", "index": index}
            environment["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
        with open(Path(out) / f"log_{index}.txt", "a") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, str(SCRIPT), json.dumps(options)],
                    env=environment,
                    stdout=log,
                    stderr=log,
                )
            )
    return processes


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def finish(processes, out):
    codes = [process.wait(timeout=300) for process in processes]
    logs = [(Path(out) / f"log_{index}.txt").read_text()[-3000:] for index in range(len(codes))]
    assert codes == [0] * len(codes), "\n".join(logs)
    return results(out)


def results(out):
    """(losses, weights, history) of the first worker; later lines of a step replace earlier ones."""
    lines = [line.split() for line in (Path(out) / "losses_0.txt").read_text().splitlines()]
    losses = {int(step): float.fromhex(loss) for step, loss in lines}
    with np.load(Path(out) / "weights_0.npz") as file:
        weights = [file[name] for name in file.files]
    history = json.loads((Path(out) / "result_0.json").read_text())
    return [losses[step] for step in sorted(losses)], weights, history


def run(out, workers=1, **options):
    """A whole run: of several workers in their processes, else in this one."""
    if workers > 1:
        return finish(start(out, workers, **options), out)
    Path(out).mkdir(parents=True)
    training_run.train({**training_run.OPTIONS, "out": str(out), **options})
    return results(out)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return run(tmp_path_factory.mktemp("plain") / "run")


def assert_equal_runs(one, other, tolerance=1e-5):
    np.testing.assert_allclose(one[0], other[0], atol=tolerance)
    for weight, expected in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(weight, expected, atol=tolerance)
    for row, expected in zip(one[2], other[2], strict=True):
        for name in expected.keys() - MEASURED:
            assert row[name] == pytest.approx(expected[name], abs=10 * tolerance), name


def test_a_run_equals_plain_steps_in_keras(tmp_path):
    """Losses and weights beside GradientTape and Keras's own AdamW, without any code of the Trainer.

    With a large epsilon: where a gradient is 0 but for rounding, Adam would go by its sign.
    """
    ours = run(tmp_path / "run", optimizer={"epsilon": 1e-3})
    keras.utils.set_random_seed(0)
    model = BertPretrainer(training_run.toy_config(dropout=0.0))
    optimizer = keras.optimizers.AdamW(1e-3, weight_decay=0.01, epsilon=1e-3, global_clipnorm=0.5)
    variables = model.trainable_variables
    optimizer.exclude_from_weight_decay(
        var_list=[v for v in variables if v.path.endswith(("bias", "gamma", "beta"))]
    )
    losses = []
    x, y, weights = training_run.global_batches()
    for step in range(training_run.STEPS):
        part = tf.nest.map_structure(lambda array, step=step: array[step], (x, y, weights))
        with tf.GradientTape() as tape:
            outputs = model(part[0])
            loss = 0.0
            for name in ("masked_lm", "sentence"):
                values = keras.ops.sparse_categorical_crossentropy(
                    part[1][name], outputs[name], from_logits=True
                )
                loss += tf.reduce_sum(values * part[2][name]) / tf.reduce_sum(part[2][name])
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
        optimizer.apply(gradients, variables)
        losses.append(float(loss))
    np.testing.assert_allclose(ours[0], losses, atol=1e-5)
    for weight, expected in zip(ours[1], variables, strict=True):
        np.testing.assert_allclose(weight, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{"accumulate": 4}, {"steps_per_call": 5, "jit_compile": True}, {"accumulate": 3}],
    ids=str,
)
def test_micro_batches_and_calls_change_nothing(plain, tmp_path, options):
    assert_equal_runs(run(tmp_path / "run", **options), plain)


def test_fit_gives_the_same_losses(plain):
    keras.utils.set_random_seed(0)
    model = BertPretrainer(training_run.toy_config(dropout=0.0))
    model.compile(AdamW(1e-3, global_clipnorm=0.5))
    losses = []
    log = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: losses.append(logs["loss"])
    )
    batches = training_run.make_batches([[4, 4]])(0, tf.distribute.InputContext())
    model.fit(batches, steps_per_epoch=20, callbacks=[log], verbose=0, shuffle=False)
    means = np.cumsum(plain[0]) / np.arange(1, 21)  # Keras shows the mean of the batches so far
    np.testing.assert_allclose(losses, means, atol=1e-5)
    for weight, expected in zip(model.trainable_variables, plain[1], strict=True):
        np.testing.assert_allclose(weight.numpy(), expected, atol=1e-5)


SLOW = pytest.mark.long


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "mirrored", "accumulate": 4, "steps_per_call": 5, "jit_compile": True},
        {"workers": 2, "accumulate": 4, "steps_per_call": 5},
        pytest.param({"strategy": "mirrored"}, marks=SLOW),
        pytest.param({"strategy": "mirrored", "accumulate": 4}, marks=SLOW),
        pytest.param({"strategy": "mirrored", "steps_per_call": 5}, marks=SLOW),
        pytest.param({"workers": 2}, marks=SLOW),
        pytest.param({"workers": 2, "accumulate": 4}, marks=SLOW),
        pytest.param({"workers": 2, "steps_per_call": 5, "jit_compile": True}, marks=SLOW),
    ],
    ids=str,
)
def test_replicas_change_nothing(plain, tmp_path, options):
    assert_equal_runs(run(tmp_path / "run", **options), plain)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strategy": "mirrored"},
        pytest.param({"workers": 2}, marks=SLOW),
    ],
    ids=str,
)
def test_replicas_with_few_rows_or_none(tmp_path, options):
    """Batches of 8, 4, 6 and 3 rows, of which two replicas have (4, 4), (4, 0), (2, 4) and (0, 3)."""
    rows = [[4, 4], [4, 0], [2, 4], [0, 3]]
    alone = run(tmp_path / "alone", rows=rows)
    assert_equal_runs(run(tmp_path / "other", rows=rows, accumulate=3, **options), alone)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_on_two_replicas(tmp_path, dtype):
    alone = run(tmp_path / "alone", dtype=dtype)
    other = run(tmp_path / "other", dtype=dtype, strategy="mirrored", steps_per_call=5)
    np.testing.assert_allclose(other[0], alone[0], atol=0.02)


def test_dropout_differs_by_replica_and_repeats(tmp_path):
    """Two replicas with the same rows: with equal masks their gradients would be equal as well."""
    options = {"strategy": "mirrored", "dropout": 0.3}
    one, again = run(tmp_path / "one", **options), run(tmp_path / "again", **options)
    assert one[0] == again[0]
    for weight, expected in zip(one[1], again[1], strict=True):
        np.testing.assert_array_equal(weight, expected)


class Killer:
    """Starts a run again and again, and kills it at random moments, until it ends."""

    def __init__(self, out, workers, kills, signals=(signal.SIGKILL,), **options):
        self.out, self.workers, self.options = Path(out), workers, {**options, "out": str(out)}
        self.random = random.Random(0)
        self.kills, self.left = 0, kills
        self.signals = signals

    def lines(self):
        path = self.out / "losses_0.txt"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def until_it_ends(self):
        while True:
            before = self.lines()
            processes = start(**self.options, workers=self.workers)
            if self.left and self.wait_for_steps(self.random.randint(0, 2), processes):
                time.sleep(self.random.uniform(0, 0.3))  # also while a state is being written
                victim = self.random.choice(processes)
                victim.send_signal(self.random.choice(self.signals))
                if self.lines() == before:
                    # perhaps it never joined, and the others would wait for it to be started again
                    for process in processes:
                        process.kill()
                self.kills, self.left = self.kills + 1, self.left - 1
                codes = [process.wait(timeout=120) for process in processes]
                assert 0 not in codes, codes
            else:
                return finish(processes, self.out)

    def wait_for_steps(self, count, processes):
        """False when the run ended by itself."""
        goal = self.lines() + count
        while self.lines() < goal or not (self.out / "losses_0.txt").exists():
            if any(process.poll() is not None for process in processes):
                return False
            time.sleep(0.01)
        return True


@pytest.mark.parametrize(
    ("workers", "kills"),
    [(1, 2), pytest.param(1, 20, marks=SLOW), pytest.param(2, 20, marks=SLOW)],
)
def test_killed_at_random_the_run_is_the_same(tmp_path, workers, kills):
    options = {"dropout": 0.1, "steps_per_epoch": 1, "seconds_per_step": 0.1}
    whole = finish(start(tmp_path / "whole", workers, **options), tmp_path / "whole")
    killer = Killer(tmp_path / "killed", workers, kills, state_dir=str(tmp_path / "states"), **options)
    again = killer.until_it_ends()
    print(f"{workers} worker(s), {killer.kills} kills, {killer.lines()} steps for {len(whole[0])}")
    assert killer.kills == kills
    assert again[0] == whole[0]
    for weight, expected in zip(again[1], whole[1], strict=True):
        np.testing.assert_array_equal(weight, expected)
    assert_same_figures(again[2], whole[2])


def assert_same_figures(history, expected):
    for row, other in zip(history, expected, strict=True):
        for name in other.keys() - MEASURED:
            assert row[name] == other[name], name


@pytest.mark.parametrize(("batch", "saved"), [(5, 7), (8, 10)])
def test_sigterm_saves_at_the_next_step(tmp_path, batch, saved):
    """In the middle of an epoch and at its end: all figures are those of a run that nobody stopped."""
    make = training_run.make_batches([[4, 4]])
    whole = toy_trainer().fit(make, 20, 10, training_run.evaluation(make))
    before = signal.getsignal(signal.SIGTERM)
    trainer = toy_trainer(state_dir=str(tmp_path))
    ask = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda index, logs: index == batch and os.kill(os.getpid(), signal.SIGTERM)
    )
    with pytest.raises(Interrupted, match=f"step {saved}"):
        trainer.fit(make, 20, 10, training_run.evaluation(make), [ask])
    assert trainer.state.saved_steps() == [saved]
    assert signal.getsignal(signal.SIGTERM) is before
    trainer = toy_trainer(state_dir=str(tmp_path))
    assert_same_figures(trainer.fit(make, 20, 10, training_run.evaluation(make)), whole)


@pytest.mark.parametrize("epoch", [0, 1])
def test_sigterm_during_an_evaluation(tmp_path, epoch):
    """The last one of a `fit`, too: what comes after it may take days."""
    make = training_run.make_batches([[4, 4]])
    asked = []

    def ask(logs):
        asked.append(trainer.steps_done)
        if len(asked) == epoch + 1:
            os.kill(os.getpid(), signal.SIGTERM)

    trainer = toy_trainer(state_dir=str(tmp_path), keep=9)
    evaluating = keras.callbacks.LambdaCallback()
    evaluating.on_test_begin = ask
    with pytest.raises(Interrupted, match=f"step {10 * epoch + 10} as"):
        trainer.fit(make, 20, 10, training_run.evaluation(make), [evaluating])
    assert trainer.state.saved_steps() == asked
    trainer.fit(make, 20, 10, training_run.evaluation(make), [evaluating])
    assert trainer.steps_done == 20


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_from_outside(tmp_path, workers):
    options = {"dropout": 0.1, "seconds_per_step": 0.2, "state_dir": str(tmp_path / "states")}
    out = tmp_path / "run"
    processes = start(out, workers, **options)
    while not (out / "losses_0.txt").exists():
        time.sleep(0.05)
    processes[-1].send_signal(signal.SIGTERM)  # one host is asked; all stop
    assert [process.wait(timeout=60) for process in processes] == [0] * workers
    steps = len((out / "losses_0.txt").read_text().splitlines())
    assert [path.name for path in (tmp_path / "states").iterdir()] == [f"step_{steps:08d}"]
    assert 0 < steps < 20
    assert "Stopped at step" in (out / "log_0.txt").read_text()
    losses, weights, history = finish(start(out, workers, **options), out)
    whole = finish(start(tmp_path / "whole", workers, dropout=0.1), tmp_path / "whole")
    assert losses == whole[0]
    assert_same_figures(history, whole[2])
    for weight, expected in zip(weights, whole[1], strict=True):
        np.testing.assert_array_equal(weight, expected)


@pytest.mark.parametrize("victim", [1, pytest.param(0, marks=SLOW)])
def test_the_death_of_a_worker_ends_the_others(tmp_path, victim):
    options = {"state_dir": str(tmp_path / "states"), "steps_per_epoch": 1, "seconds_per_step": 0.2}
    processes = start(tmp_path / "run", workers=2, **options)
    while not list((tmp_path / "states").glob("step_*/complete.json")):
        assert processes[0].poll() is None, (tmp_path / "run" / "log_0.txt").read_text()[-2000:]
        time.sleep(0.05)
    processes[victim].kill()
    processes[victim].wait()
    assert processes[1 - victim].wait(timeout=240) != 0
    if victim == 1:
        log = (tmp_path / "run" / f"log_{1 - victim}.txt").read_text()
        assert "All workers must stay alive" in log
        assert "The last good state is that of step" in log
    finish(start(tmp_path / "run", workers=2, **options), tmp_path / "run")


def toy_trainer(optimizer=None, **options):
    keras.utils.set_random_seed(0)
    model = BertPretrainer(training_run.toy_config(dropout=0.0))
    model.compile(optimizer or AdamW(1e-3))
    return Trainer(model, **options)


def spoiled(step, value):
    """Batches of which one holds a sample weight that is not finite."""
    make = training_run.make_batches([[4, 4]])

    def spoil(index, batch):
        x, y, weights = batch
        weights = {**weights, "sentence": tf.where(index == step, value, weights["sentence"])}
        return x, y, weights

    return lambda start, context: make(start, context).enumerate(start).map(spoil)


def test_a_loss_that_is_not_finite_stops_before_it_is_saved(tmp_path):
    trainer = toy_trainer(state_dir=str(tmp_path), keep=9)
    with pytest.raises(NonFiniteLoss, match="step 7, epoch 3.*last good state is that of step 6"):
        trainer.fit(spoiled(7, np.nan), 20, 2, describe=lambda step: f"epoch {step // 2}")
    assert trainer.state.saved_steps() == [2, 4, 6]


@pytest.mark.parametrize("steps_per_call", [1, 2])
def test_so_does_a_gradient_where_the_loss_is_finite(tmp_path, steps_per_call):
    """With the step and the examples of its own batch, not of the one that then has a NaN loss."""
    trainer = toy_trainer(state_dir=str(tmp_path), steps_per_call=steps_per_call)
    micro_batch = trainer.step._micro_batch

    def spoiled_at_3(*arguments):
        means, gradients = micro_batch(*arguments)
        is_third = tf.equal(trainer.model.optimizer.iterations.value, 3)
        return means, [gradients[0] * tf.where(is_third, np.nan, 1.0), *gradients[1:]]

    trainer.step._micro_batch = spoiled_at_3
    make = training_run.make_batches([[4, 4]])
    match = "gradient that is not finite, at step 3, the batch of 3, .*good state is that of step 2"
    with pytest.raises(NonFiniteLoss, match=match):
        trainer.fit(make, 20, 2, describe=lambda step: f"the batch of {step}")


def test_or_is_skipped(tmp_path):
    trainer = toy_trainer(on_nonfinite="skip")
    history = trainer.fit(spoiled(7, np.nan), 10, 10)
    assert np.isfinite(history[0]["loss"])
    assert int(trainer.model.optimizer.iterations) == 9
    # as if the step had not been there
    other = toy_trainer()
    make = training_run.make_batches([[4, 4]])

    def without(start, context):
        batches = make(start, context)
        return batches.take(7).concatenate(batches.skip(8))

    other.fit(without, 9, 9)
    for weight, expected in zip(trainer.model.weights, other.model.weights, strict=True):
        np.testing.assert_allclose(weight.numpy(), expected.numpy(), atol=1e-6)


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    trainer = toy_trainer(state_dir=str(tmp_path))
    make = training_run.make_batches([[4, 4]])
    trainer.fit(make, 2, 2)
    trainer.model.masked_lm.bias.assign(np.full(training_run.VOCAB, np.inf))
    with pytest.raises(NonFiniteLoss, match="masked_lm/bias at step 2.*step 2 in"):
        trainer.save()


def test_float16_skips_overflow_on_all_replicas():
    """A scale far too large: the first updates are left out, the scale is halved, training goes on."""
    keras.utils.set_random_seed(0)
    model = BertPretrainer(training_run.toy_config(dropout=0.0), dtype="mixed_float16")
    model.compile(keras.optimizers.LossScaleOptimizer(AdamW(1e-3), initial_scale=2.0**24))
    trainer = Trainer(model)
    trainer.fit(training_run.make_batches([[4, 4]]), 20)
    made = int(model.optimizer.iterations)
    assert 0 < made < 20
    assert float(model.optimizer.dynamic_scale) == 2.0 ** (24 - (20 - made))


def test_keras_callbacks(tmp_path):
    best = []
    trainer = toy_trainer()
    make = training_run.make_batches([[4, 4]])
    log = tmp_path / "log.csv"
    callbacks = [
        keras.callbacks.CSVLogger(log),
        keras.callbacks.TensorBoard(tmp_path / "board", write_graph=False),
        keras.callbacks.EarlyStopping("learning_rate", mode="max"),  # which stays
        keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras", monitor="val_loss"),
        OnBest("val_loss", lambda: best.append(trainer.steps_done)),
    ]
    history = trainer.fit(make, 20, 4, training_run.evaluation(make), callbacks)
    assert [row["step"] for row in history] == [4, 8]
    assert best[0] == 4
    assert log.read_text().splitlines()[0].startswith("epoch,")
    assert list((tmp_path / "board").rglob("events*"))
    reloaded = keras.models.load_model(tmp_path / "2.keras")
    for weight, expected in zip(reloaded.weights, trainer.model.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), expected.numpy())


def test_fit_goes_on_where_it_was():
    make = training_run.make_batches([[4, 4]])
    whole, parts = toy_trainer(), toy_trainer()
    whole.fit(make, 20, 5)
    parts.fit(make, 5, 5)
    parts.fit(make, 20, 5)
    assert parts.fit(make, 20, 5) == parts.history  # nothing left to do
    for weight, expected in zip(parts.model.weights, whole.model.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), expected.numpy())


def test_any_optimizer_and_its_averages():
    make = training_run.make_batches([[4, 4]])
    for optimizer in (
        keras.optimizers.SGD(0.1, momentum=0.9),
        keras.optimizers.Adafactor(0.01),
        keras.optimizers.Lion(1e-3),
    ):
        history = toy_trainer(optimizer).fit(make, 20, 10)
        assert history[1]["loss"] < history[0]["loss"], optimizer.name
    trainer = toy_trainer(AdamW(1e-2, use_ema=True, ema_momentum=0.5))
    seen = []
    log = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(trainer.model.masked_lm.bias.numpy())
    )
    trainer.fit(make, 6, 6, callbacks=[log])
    average = seen[0]
    for value in seen[1:]:
        average = 0.5 * average + 0.5 * value
    copy = trainer.strategy_free_copy()
    np.testing.assert_allclose(copy.masked_lm.bias.numpy(), average, atol=1e-6)
    np.testing.assert_array_equal(trainer.model.masked_lm.bias.numpy(), seen[-1])  # untouched


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accumulate": 0}, "`accumulate` must be at least 1"),
        ({"steps_per_call": 0}, "`steps_per_call` must be"),
        ({"on_nonfinite": "hope"}, "`on_nonfinite`.*'hope'"),
        ({"optimizer": keras.optimizers.Adam(gradient_accumulation_steps=2)}, "accumulate.*steps=2"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(ValueError, match=words):
        toy_trainer(**options)


def test_more_refusals():
    trainer = toy_trainer()
    make = training_run.make_batches([[4, 4]])
    with pytest.raises(ValueError, match="must divide.*steps_per_epoch=3, steps=10"):
        trainer.fit(make, 10, 3)
    with pytest.raises(ValueError, match="endless.*none for one of the 1 steps from step 5"):
        trainer.fit(lambda start, context: make(start, context).take(5), 10)
    with pytest.raises(ValueError, match="compiled with an optimizer"):
        Trainer(BertPretrainer(training_run.toy_config(dropout=0.0)))
