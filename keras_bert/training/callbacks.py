"""Callbacks for the Trainer: a progress bar that shows what matters, and what a new best triggers."""

import math
import sys

import keras


class Progress(keras.callbacks.Callback):
    """Chosen figures and tokens per second: a bar over the whole run, or a line an epoch in a log file.

    Args:
        steps: Steps of the whole run.
        shown: {name in the logs: name to show}
    """

    def __init__(self, steps, shown):
        super().__init__()
        self.steps = steps
        self.shown = {**shown, "tokens_per_second": "tokens/s"}
        self.bar = None
        if sys.stdout.isatty():
            # the newest value of each: they are means over the epoch already
            self.bar = keras.utils.Progbar(steps, stateful_metrics=[*self.shown.values()])

    def on_epoch_begin(self, epoch, logs=None):
        self.first = self.done = epoch * self.params["steps"]

    def on_train_batch_end(self, batch, logs=None):
        self.done = self.first + batch + 1
        if self.bar:
            self.bar.update(self.done, self._values(logs), finalize=False)

    def on_epoch_end(self, epoch, logs=None):
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
        return [(short, float(logs[name])) for name, short in self.shown.items() if name in logs]


class OnBest(keras.callbacks.Callback):
    """Calls a function at the end of each epoch whose figure is better than all before.

    Args:
        monitor: Name of the figure in the logs.
        action: Function without arguments: exports the model, for example.
        history: Logs of the epochs before, of a run that goes on.
        mode: "min" or "max": which figures are better.
    """

    def __init__(self, monitor, action, history=(), mode="min"):
        super().__init__()
        if mode not in ("min", "max"):
            raise ValueError(f'`mode` must be "min" or "max". Received: {mode!r}.')
        self.monitor = monitor
        self.action = action
        self.sign = 1 if mode == "min" else -1
        self.best = min((self.sign * logs[monitor] for logs in history), default=math.inf)

    def on_epoch_end(self, epoch, logs=None):
        if self.monitor not in logs:
            raise ValueError(f"`monitor` must be one of {', '.join(logs)}. Received: {self.monitor!r}.")
        value = self.sign * float(logs[self.monitor])
        if value < self.best:
            self.best = value
            self.action()


class StopWhenStale(keras.callbacks.Callback):
    """Stops training when a figure was not the highest so far for some epochs.

    Unlike Keras's EarlyStopping it looks at the epochs of the whole run, those before a restart too.

    Args:
        monitor: Name of the figure in the logs.
        patience: Epochs without a new highest.
        history: Logs of the epochs before, of a run that goes on.
    """

    def __init__(self, monitor, patience, history=()):
        super().__init__()
        self.monitor = monitor
        self.patience = patience
        self.values = [logs[monitor] for logs in history]

    def on_epoch_end(self, epoch, logs=None):
        self.values.append(float(logs[self.monitor]))
        since_best = len(self.values) - 1 - self.values.index(max(self.values))
        if since_best >= self.patience:
            self.model.stop_training = True
