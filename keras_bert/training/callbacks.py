"""Callbacks for `fit`: the saved state, and a progress bar that shows what matters."""

import sys
import time

import keras


class SaveState(keras.callbacks.Callback):
    """Saves the run's TrainingState at the end of each epoch, with the history of epochs so far.

    Args:
        state: A TrainingState.
        history: Logs of the epochs before, as the notes of `state.restore()` hold them.
        notes: Further notes to save, a dict.
    """

    def __init__(self, state, history=(), notes=None):
        super().__init__()
        self.state = state
        self.history = list(history)
        self.notes = notes or {}

    def on_epoch_end(self, epoch, logs=None):
        # batches, not `optimizer.iterations`: loss scaling passes over a batch that overflows
        step = (epoch + 1) * self.params["steps"]
        numbers = {name: float(value) for name, value in (logs or {}).items()}
        self.history.append({"step": step, **numbers})
        self.state.save(step, {**self.notes, "history": self.history})


class Progress(keras.callbacks.Callback):
    """Chosen metrics and tokens per second: a bar over the whole run, or a line an epoch in a log file.

    The rate is also added to the logs as `tokens_per_second`, for the callbacks that come after.

    Args:
        steps: Steps of the whole run.
        tokens_per_step: Real tokens in a batch, on average.
        shown: {name in the logs: name to show}
    """

    def __init__(self, steps, tokens_per_step, shown):
        super().__init__()
        self.steps = steps
        self.tokens_per_step = tokens_per_step
        self.shown = shown
        self.bar = None
        if sys.stdout.isatty():
            # the newest value of each: the metrics are means already
            self.bar = keras.utils.Progbar(steps, stateful_metrics=[*shown.values(), "tokens/s"])

    def on_epoch_begin(self, epoch, logs=None):
        self.first = self.done = epoch * self.params["steps"]
        self.start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.done = self.first + batch + 1
        tokens = (self.done - self.first) * self.tokens_per_step
        self.tokens_per_second = tokens / (time.perf_counter() - self.start)
        if self.bar:
            self.bar.update(self.done, self._values(logs), finalize=False)

    def on_epoch_end(self, epoch, logs=None):
        logs["tokens_per_second"] = self.tokens_per_second  # of training alone, as of its last batch
        values = self._values(logs)
        if self.bar:
            self.bar.update(self.done, values, finalize=self.done == self.steps)
        else:
            line = ", ".join(
                f"{name} {value:,.0f}" if value >= 1000 else f"{name} {value:.4g}"
                for name, value in values
            )
            print(f"step {self.done:,} of {self.steps:,}: {line}", flush=True)

    def _values(self, logs):
        values = [(short, float(logs[name])) for name, short in self.shown.items() if name in logs]
        return [*values, ("tokens/s", self.tokens_per_second)]
