"""Callbacks for `fit`: the saved state, and a progress bar that shows what matters."""

import time

import keras


class SaveState(keras.callbacks.Callback):
    """Saves the run's TrainingState at the end of each epoch, with the history of epochs so far.

    Args:
        state: A TrainingState.
        history: Logs of the epochs before, as `state.restore()` returned them.
    """

    def __init__(self, state, history=()):
        super().__init__()
        self.state = state
        self.history = list(history)

    def on_epoch_end(self, epoch, logs=None):
        step = int(self.model.optimizer.iterations)
        numbers = {name: float(value) for name, value in (logs or {}).items()}
        self.history.append({"step": step, **numbers})
        self.state.save(step, self.history)


class Progress(keras.callbacks.Callback):
    """A progress bar over the whole run: chosen metrics and tokens per second.

    The rate is also added to the logs as `tokens_per_second`, for the callbacks that come after.

    Args:
        steps: Steps of the whole run.
        tokens_per_step: Real tokens in a batch, on average.
        shown: {name in the logs: name on the bar}
    """

    def __init__(self, steps, tokens_per_step, shown):
        super().__init__()
        self.bar = keras.utils.Progbar(steps, stateful_metrics=[*shown.values(), "tokens/s"])
        self.tokens_per_step = tokens_per_step
        self.shown = shown

    def on_epoch_begin(self, epoch, logs=None):
        self.first = self.done = int(self.model.optimizer.iterations)
        self.start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.done = self.first + batch + 1
        self._show(logs, finalize=False)

    def on_epoch_end(self, epoch, logs=None):
        logs["tokens_per_second"] = self.rate
        self._show(logs, finalize=self.done == self.bar.target)

    @property
    def rate(self):
        """Tokens per second since the epoch began, validation left out."""
        return self._rate

    def _show(self, logs, finalize):
        if not finalize and self.done > self.first:
            elapsed = time.perf_counter() - self.start
            self._rate = (self.done - self.first) * self.tokens_per_step / elapsed
        values = [(short, float(logs[name])) for name, short in self.shown.items() if name in logs]
        self.bar.update(self.done, [*values, ("tokens/s", round(self._rate))], finalize)
