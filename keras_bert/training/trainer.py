"""Training under any strategy of `tf.distribute`: one loop for one device, several, several hosts."""

import contextlib
import resource
import time

import keras
import numpy as np
import tensorflow as tf

from keras_bert.training.private_keras import averages_of, strategy_of
from keras_bert.training.signals import StopRequests
from keras_bert.training.state import TrainingState
from keras_bert.training.step import TrainStep

# Loss scaling needs a few skipped steps to find its scale; more than this is no accident.
MOST_SKIPPED_IN_A_ROW = 50


class NonFiniteLoss(ArithmeticError):
    """The loss or a gradient is NaN or infinite; the message names the step and its examples."""


class WorkerLost(RuntimeError):
    """Another worker has gone; what was saved can be continued by starting all of them again."""


class Interrupted(Exception):
    """SIGTERM or SIGINT: the run stopped at a step boundary, and its state is saved."""


class Trainer:
    """Trains a compiled model of this package under the strategy that it was made in.

        with strategy.scope():              # or no scope: one device
            model = BertPretrainer(config)
            model.compile(AdamW(1e-4))
        trainer = Trainer(model, accumulate=4)
        trainer.fit(make_batches, steps=1000)

    `keras.Model.fit` clips, accumulates and averages per replica, or fails, under a strategy; this loop
    takes the one update that the global batch asks for (see `TrainStep`), on any number of replicas.
    Without dropout, losses are the same for any number of replicas and micro-batches.

    The number of a step decides everything about it: `make_batches` is asked for the batches from a
    step on, dropout is drawn from (seed, step, replica, micro-batch). So a run that continues from a
    saved state repeats what it would have done: bit for bit, with the same machines, replicas and
    `accumulate`.

    Callbacks are Keras's. An epoch is `steps_per_epoch` steps; a batch is a call, `steps_per_call`
    steps. On several hosts each runs its own callbacks: give those that write files to the chief only
    (`is_chief`).

    Args:
        model: A compiled BertModel. An optimizer under loss scaling (mixed_float16) is fine; one that
            accumulates by itself is not.
        accumulate: Micro-batches that each replica's batch is cut into, to fit into memory. The update
            is the same.
        steps_per_call: Steps between two returns to Python: fewer returns are faster on accelerators.
        jit_compile: Whether XLA compiles each replica's forward and backward pass. (A TPU always does.)
        seed: Of dropout.
        on_nonfinite: What a NaN or infinite loss or gradient does. "stop": the run ends with an error,
            and the newest saved state is the one before it. "skip": the update is left out, and only
            50 in a row end the run.
        state_dir: Directory of saved states; None saves nothing. A state is saved at the end of each
            epoch, and when SIGTERM or SIGINT asks to stop.
        keep: How many of the newest states to keep.
    """

    def __init__(
        self,
        model,
        accumulate=1,
        steps_per_call=1,
        jit_compile=False,
        seed=0,
        on_nonfinite="stop",
        state_dir=None,
        keep=2,
    ):
        for name, value in (("accumulate", accumulate), ("steps_per_call", steps_per_call)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {value}.")
        if on_nonfinite not in ("stop", "skip"):
            raise ValueError(f'`on_nonfinite` must be "stop" or "skip". Received: {on_nonfinite!r}.')
        if getattr(model, "optimizer", None) is None:
            raise ValueError("`model` must be compiled with an optimizer. Received: one without.")
        self.model = model
        _check_strategy(model)
        self.strategy = model.distribute_strategy
        self.steps_per_call = steps_per_call
        self.stops = on_nonfinite == "stop"
        is_tpu = isinstance(self.strategy, tf.distribute.TPUStrategy)
        self.step = TrainStep(model, accumulate, jit_compile and not is_tpu, seed, not self.stops)
        self.state = None
        if state_dir is not None:
            self.state = TrainingState(state_dir, model, model.optimizer, keep)
        self.notes = {}
        self.history = []
        self.step_losses = np.zeros(0)  # of each step of the last call
        self._done = None  # steps; known when the state was looked for
        self._skipped = 0  # in a row
        self._asked_to_stop = False
        self._epoch_sums = {}
        self._train_call = tf.function(self._steps, autograph=False)
        self._evaluate_call = tf.function(self._evaluate_batch, autograph=False)
        self._sum_call = tf.function(self._all_reduce, autograph=False)

    @property
    def steps_done(self):
        """Steps made in all, those before a restart included."""
        return self._done or 0

    @property
    def is_chief(self):
        """Whether this host writes what the run writes."""
        if not isinstance(self.strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return True
        resolver = self.strategy.cluster_resolver
        first = "chief" if "chief" in resolver.cluster_spec().jobs else "worker"
        return (resolver.task_type, resolver.task_id) == (first, 0)

    def restore(self):
        """Continues from the newest saved state, if there is one.

        Returns:
            How many steps are done; `notes` and `history` are those of the state.

        Raises:
            ValueError: When the state belongs to another model or optimizer, or hosts found different
                ones: all must see the same `state_dir`.
        """
        done, notes = self.state.restore() if self.state else (0, None)
        if notes is not None:
            self.notes, self.history = notes["notes"], notes["history"]
            self._epoch_sums = notes["epoch_sums"]
        if self._sum_over_replicas(done) != done * self.strategy.num_replicas_in_sync:
            raise ValueError(
                "All hosts must find the same saved state: `state_dir` must be one directory that they "
                f"share. Received: here {self.state.directory} at step {done}, elsewhere another."
            )
        self._done = done
        return done

    def fit(
        self,
        make_batches,
        steps,
        steps_per_epoch=None,
        evaluate=None,
        callbacks=(),
        describe=None,
        score=None,
    ):
        """Trains until `steps` are done in all, from where the model's saved state is.

        Called again with a larger `steps`, it goes on: with longer rows, for example.

        Args:
            make_batches: make_batches(start_step, input_context) -> endless dataset of the batches of
                one replica, (x, y) or (x, y, sample_weight), from that of step `start_step` on. What
                the replicas get at a step is together its global batch.
            steps: Steps of the whole run, those of a restored state included.
            steps_per_epoch: Steps between evaluations and saved states; must divide `steps`. None for
                one epoch.
            evaluate: make_batches(input_context) of `evaluate`, for the figures at the end of each
                epoch, which the logs hold as `val_...`.
            callbacks: Of Keras.
            describe: describe(step) -> the examples of that step in words, for errors.
            score: score() -> {name: number} of the model as it is, at the end of each epoch, for what
                no sum over elements gives (F1, correlations); the logs hold them as `val_...` too.

        Returns:
            The history: for each epoch a dict of `step`, `loss`, the model's figures over the epoch,
            each a sum over its elements divided by their weights, learning_rate, tokens_per_second and
            seconds (of training alone, since the epoch's start or a restart), peak_memory_gib.

        Raises:
            Interrupted: After SIGTERM or SIGINT; the state is saved.
            NonFiniteLoss: See `on_nonfinite`.
            WorkerLost: When another host has gone.
        """
        if self._done is None:
            self.restore()
        steps_per_epoch = steps_per_epoch or steps
        if steps % steps_per_epoch:
            raise ValueError(
                "`steps_per_epoch` must divide `steps`. "
                f"Received: steps_per_epoch={steps_per_epoch}, steps={steps}."
            )
        if self._done >= steps:
            return self.history
        epochs = range(self._done // steps_per_epoch, steps // steps_per_epoch)
        callbacks = keras.callbacks.CallbackList(
            list(callbacks),
            model=self.model,
            verbose=0,
            epochs=epochs.stop,
            steps=steps_per_epoch,
        )
        self.model.stop_training = False
        with StopRequests() as requests, self._naming_lost_workers():
            batches = iter(self._distribute(lambda context: make_batches(self._done, context)))
            callbacks.on_train_begin()
            for epoch in epochs:
                try:
                    logs = self._epoch(epoch, steps_per_epoch, batches, callbacks, requests, describe)
                except Interrupted:
                    callbacks.on_train_end()  # what they have in memory goes to their files
                    raise
                if evaluate is not None:
                    figures = self.evaluate(evaluate, callbacks)
                    logs.update({f"val_{name}": value for name, value in figures.items()})
                if score is not None:
                    logs.update({f"val_{name}": value for name, value in score().items()})
                callbacks.on_epoch_end(epoch, logs)
                self.history.append({"step": self._done, **_numbers(logs)})
                self._epoch_sums = {}
                self.save()
                # asked by a step of the epoch, or since: while it was evaluated or saved
                if self._asked_to_stop or self._sum_over_replicas(int(requests.stop)):
                    callbacks.on_train_end(logs)
                    raise self._interrupted()
                if self.model.stop_training:
                    break
            callbacks.on_train_end(logs)
        return self.history

    def evaluate(self, make_batches, callbacks=None):
        """Exact figures of a data set: sums over all elements of all replicas, divided once.

        Args:
            make_batches: make_batches(input_context) -> finite dataset of the batches of one replica.
                The last may be smaller, or missing on some replicas; rows of weight 0 do not count.

        Returns:
            {"loss": sum of the losses, f"{output}_{figure}": ...}
        """
        callbacks = callbacks or keras.callbacks.CallbackList([], model=self.model)
        sums = {}
        callbacks.on_test_begin()
        with self._naming_lost_workers():
            for index, batch in enumerate(self._distribute(make_batches)):
                callbacks.on_test_batch_begin(index)
                report = self._evaluate_call(batch)
                self._add(sums, report["means"].numpy(), report["weights"].numpy())
                callbacks.on_test_batch_end(index, _means(sums))
        figures = _means(sums)
        callbacks.on_test_end(figures)
        return figures

    def save(self):
        """Writes the state of now, if there is a `state_dir`; the chief does.

        Raises:
            NonFiniteLoss: When a weight is NaN or infinite: such a state would replace a good one.
        """
        if self.state is None:
            return
        for weight in self.model.trainable_variables:
            if not np.isfinite(weight.numpy()).all():
                raise NonFiniteLoss(
                    f"All weights must be finite. Received: {weight.path} at step {self._done:,}. "
                    f"{self._last_good()}"
                )
        if self.is_chief:
            notes = {
                "notes": self.notes,
                "history": self.history,
                "epoch_sums": self._epoch_sums,
            }
            self.state.save(self._done, notes)

    def strategy_free_copy(self):
        """The model again, in float32 and outside of any strategy, to save, serve or export.

        With an optimizer that averages weights (`use_ema`), they are the averages; training, and the
        figures of `evaluate`, keep to the weights themselves.
        """
        config = {**self.model.get_config(), "dtype": "float32"}
        copy = type(self.model).from_config(config)
        copy.tokenizer = self.model.tokenizer
        optimizer, averages = self.step.optimizer, {}
        if optimizer.use_ema:
            trained = self.model.trainable_variables
            averages = dict(zip(map(id, trained), averages_of(optimizer), strict=True))
        for old, new in zip(self.model.weights, copy.weights, strict=True):
            new.assign(averages.get(id(old), old).numpy())
        return copy

    def _epoch(self, epoch, steps_per_epoch, batches, callbacks, requests, describe):
        """Trains to the end of an epoch; its logs."""
        callbacks.on_epoch_begin(epoch)
        start, tokens = time.perf_counter(), 0.0
        end, logs = (epoch + 1) * steps_per_epoch, {}
        while self._done < end:
            count = min(self.steps_per_call, end - self._done)
            last = self._done + count - 1 - epoch * steps_per_epoch
            callbacks.on_train_batch_begin(last)
            try:
                report = self._train_call(
                    batches,
                    tf.constant(self._done, tf.int64),
                    tf.constant(count),
                    tf.constant(float(requests.stop)),
                )
            except tf.errors.OutOfRangeError:
                raise ValueError(
                    "`make_batches` must give endless batches. "
                    f"Received: none for one of the {count} steps from step {self._done:,} on."
                ) from None
            report = {name: value.numpy() for name, value in report.items()}
            for means, weights in self._good_steps(report, describe):
                self._add(self._epoch_sums, means, weights)
            self._done += count
            tokens += report["tokens"].sum()
            logs = _means(self._epoch_sums)
            logs["tokens_per_second"] = tokens / (time.perf_counter() - start)
            callbacks.on_train_batch_end(last, logs)
            self._asked_to_stop = bool(report["stop"].any())
            if self._asked_to_stop and self._done < end:  # else the epoch is ended first
                self.save()
                raise self._interrupted()
            if self.model.stop_training:
                break
        logs["seconds"] = time.perf_counter() - start
        logs["peak_memory_gib"] = _peak_memory() / 2**30
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(self.step.optimizer.learning_rate))
        return logs

    def _steps(self, batches, first, count, stop):
        """The graph of a call: `count` steps from step `first` on."""
        names = ("means", "weights", "tokens", "stop", "finite")
        dtypes = (tf.float32,) * 4 + (tf.bool,)

        def body(index, arrays):
            report = self.step(next(batches), first + tf.cast(index, tf.int64), stop)
            return index + 1, [
                array.write(index, report[name]) for name, array in zip(names, arrays, strict=True)
            ]

        arrays = [tf.TensorArray(dtype, count) for dtype in dtypes]
        _, arrays = tf.while_loop(
            lambda index, _: index < count, body, (tf.constant(0), arrays), parallel_iterations=1
        )
        return {name: array.stack() for name, array in zip(names, arrays, strict=True)}

    def _good_steps(self, report, describe):
        """(means, weights) of the steps of a call whose figures and update are finite."""
        is_loss = np.array([figure == "loss" for _, figure in self.step.figure_names])
        self.step_losses = report["means"][:, is_loss].astype("float64").sum(axis=1)
        finite = np.isfinite(report["means"]).all(axis=1)
        for index, (is_finite, is_updated) in enumerate(zip(finite, report["finite"], strict=True)):
            step = self._done + index
            if is_finite and is_updated:
                self._skipped = 0
                yield report["means"][index], report["weights"][index]
                continue
            self._skipped += 1
            # a loss that is scaled is meant to overflow now and then
            is_wrong = not is_finite or self.step.scaling is None
            if (is_wrong and self.stops) or self._skipped > MOST_SKIPPED_IN_A_ROW:
                gradient = "" if is_updated else ", with a gradient that is not finite,"
                examples = f", {describe(step)}" if describe else ""
                raise NonFiniteLoss(
                    "Loss and gradients must be finite. Received: a loss of "
                    f"{self.step_losses[index]}{gradient} at step {step:,}{examples}, after "
                    f"{self._skipped - 1} skipped steps. {self._last_good()}"
                )

    def _interrupted(self):
        return Interrupted(f"Stopped at step {self._done:,} as asked to.")

    def _last_good(self):
        steps = self.state.saved_steps() if self.state else []
        if not steps:
            return "No state was saved before."
        return f"The last good state is that of step {steps[-1]:,} in {self.state.directory}."

    def _add(self, sums, means, weights):
        """Adds the figures of a global batch to sums of values and of weights."""
        for (output, figure), mean, weight in zip(self.step.figure_names, means, weights, strict=True):
            old = sums.get(f"{output}_{figure}", (0.0, 0.0))
            sums[f"{output}_{figure}"] = (old[0] + float(mean) * float(weight), old[1] + float(weight))

    def wait_for_all(self):
        """Returns when all hosts have called it: none should leave while another needs it."""
        with self._naming_lost_workers():
            self._sum_over_replicas(0)

    def _sum_over_replicas(self, number):
        result = self._sum_call(tf.constant(number, tf.int64))
        return int(self.strategy.experimental_local_results(result)[0])

    def _all_reduce(self, number):
        def all_reduce(value):
            # a copy on the replica's own device: all-reduce needs to know where its values are
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(value))

        return self.strategy.run(all_reduce, (number,))

    def _evaluate_batch(self, batch):
        return self.step.evaluate(batch)

    def _distribute(self, make_batches):
        return self.strategy.distribute_datasets_from_function(make_batches)

    @contextlib.contextmanager
    def _naming_lost_workers(self):
        try:
            yield
        except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InternalError) as error:
            if not isinstance(self.strategy, tf.distribute.MultiWorkerMirroredStrategy):
                raise
            raise WorkerLost(
                f"All workers must stay alive. Received: the loss of one at step {self._done:,} "
                f"({type(error).__name__}). Start all of them again. {self._last_good()}"
            ) from error


def _check_strategy(model):
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # under loss scaling
    ours, others = model.distribute_strategy, strategy_of(optimizer)
    if ours is not others:
        raise ValueError(
            "The model must be made, and compiled, in the scope of one strategy. Received: made in "
            f"{type(ours).__name__}, its optimizer in {type(others).__name__}."
        )


def _peak_memory():
    """Bytes: of the first GPU, else of this process."""
    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _means(sums):
    """{figure: mean} with `loss`, the sum of all losses, first."""
    means = {name: total / weight if weight else 0.0 for name, (total, weight) in sums.items()}
    loss = sum(mean for name, mean in means.items() if name.endswith("_loss"))
    return {"loss": loss, **means}


def _numbers(logs):
    return {name: float(value) for name, value in logs.items()}
