"""SIGTERM and SIGINT as requests to stop at the next good moment."""

import signal
import threading

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequests:
    """Within it, the first SIGTERM or SIGINT sets `stop`; a second one acts as it would have.

    Outside of the main thread, where Python takes no signals, `stop` stays False.
    """

    def __init__(self):
        self.stop = False
        self._before = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._request) for number in _SIGNALS}
        return self

    def __exit__(self, *_):
        self._restore()

    def _request(self, number, frame):
        self.stop = True
        self._restore()

    def _restore(self):
        while self._before:
            signal.signal(*self._before.popitem())
