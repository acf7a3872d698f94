"""What is measured of training, by the same clock for each library: seconds of epochs, and memory."""

import time
from pathlib import Path


class Meter:
    """Seconds from where an epoch begins to the end of its last step, and the most memory in between.

    Nothing before, between or after epochs counts: no imports, tokenizing, evaluation, saving. Memory
    is what the process holds in RAM, as Linux counts it, whose record is wiped where an epoch begins.
    (`ru_maxrss` is never wiped, and a process begins with that of the one that started it.)
    """

    def __init__(self):
        self.seconds = []
        self.before_gib = None
        self.peak_gib = 0.0

    def epoch_begins(self):
        if self.before_gib is None:
            self.before_gib = _memory_gib("VmRSS")
        _forget_peak()
        self.seconds.append(None)
        self._start = time.perf_counter()

    def step_ends(self):
        self.seconds[-1] = time.perf_counter() - self._start

    def epoch_ends(self):
        self.peak_gib = max(self.peak_gib, _memory_gib("VmHWM"))

    def figures(self):
        return {"seconds": self.seconds, "before_gib": self.before_gib, "peak_gib": self.peak_gib}


def _forget_peak():
    Path("/proc/self/clear_refs").write_text("5")


def _memory_gib(field):
    lines = Path("/proc/self/status").read_text().split("\n")
    kib = next(line for line in lines if line.startswith(f"{field}:")).split()[1]
    return int(kib) / 2**20
