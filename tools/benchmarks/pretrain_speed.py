"""Speed of a pretraining step beside peers, each in a process and an environment of its own.

First every setting of every library runs alone (the heats), then the fastest setting of each library
takes turns with the others and with a large matrix product, the machine's peak (the final). Processes
wait for their turn without computing.
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from keras_bert import EncoderConfig

PEERS = ("keras-hub", "garden", "torch")
HEAT_TURNS = 3
PEAK_PRODUCTS = 8  # in a turn
WORKER = Path(__file__).parents[1] / "contestants" / "pretrain_contestant.py"


class Contestant:
    """A process that trains one model, and the seconds of its steps.

    Args:
        library: Key of `LIBRARIES` in pretrain_contestant.py.
        dtype: "float32" or "bfloat16".
        compiled: Whether XLA, or torch.compile, compiles the step.
        layout: Of ours, or None.
    """

    def __init__(self, library, dtype, compiled=False, layout=None):
        self.library = library
        self.dtype = dtype
        self.compiled = compiled
        self.layout = layout
        parts = [library, layout, dtype, "compiled" if compiled else None]
        self.name = ", ".join(part for part in parts if part)
        self.process = None

    def start(self, python, size, shape):
        options = {
            "library": self.library,
            "dtype": self.dtype,
            "compiled": self.compiled,
            "size": size,
            "shape": shape,
            "extra": {"layout": self.layout} if self.layout else {},
        }
        self.turns = []
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  `end` closes it
        self.process = subprocess.Popen(
            [python, str(WORKER), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def turn(self, steps, measured=True):
        """Runs some steps; False when the process has died."""
        try:
            self.process.stdin.write(f"{steps}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return False
        answer = self.process.stdout.readline()
        if answer and measured:
            turn = json.loads(answer)
            self.turns.append((turn["wall"] / steps, turn["cpu"] / steps))
        return bool(answer)

    def end(self):
        """Ends the process; returns the last line that it wrote besides its answers."""
        self.process.kill()
        self.process.communicate()
        self.log.seek(0)
        lines = self.log.read().split("\n")
        self.log.close()
        return next((line.strip() for line in reversed(lines) if line.strip()), "no message")

    @property
    def wall(self):
        """Median seconds of a step."""
        return statistics.median(wall for wall, _ in self.turns)

    @property
    def least(self):
        """Least seconds of a step."""
        return min(wall for wall, _ in self.turns)

    @property
    def cpu(self):
        """Median CPU seconds of a step, of all threads."""
        return statistics.median(cpu for _, cpu in self.turns)


def benchmark_pretrain(options, header):
    """Runs heats and final and prints them; `header` is printed before."""
    preset = EncoderConfig.from_preset(options.preset)
    fields = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    size = {name: getattr(preset, name) for name in (*fields, "intermediate_size")}
    shape = {name: getattr(options, name) for name in ("rows", "length", "predictions", "fill")}
    flops = step_flops(size, options.rows, options.length, options.predictions)
    print(
        f"{options.preset} (L{preset.num_hidden_layers} H{preset.hidden_size}), {options.rows} x "
        f"{options.length} tokens, {options.fill:.0%} real, {options.predictions} predictions, "
        f"vocabulary {preset.vocab_size:,}; {header}\n"
        f"A step is {flops / 1e9:,.0f} GFLOP of matrix products: 2 for each weight and token, those of "
        "attention and\nof the scored words, times 3, as the backward pass has two for each of these."
    )
    pythons = dict(entry.split("=", 1) for entry in options.python)

    def start(contestant):
        contestant.start(pythons.get(contestant.library, sys.executable), size, shape)

    contestants = [entry for entry in entrants(options) if re.search(options.only, entry.name)]
    print("\nHeats, each alone")
    best = heats(contestants, start, options.steps)
    final(list(best.values()), start, options, flops)


def entrants(options):
    """Every setting of every library."""
    for dtype in options.dtypes:
        layouts = ["dense"]
        if options.fill < 1:  # else there is no padding to leave out
            layouts.append("unpadded")
        for layout in layouts:
            yield Contestant("keras_bert", dtype, layout=layout)
        yield Contestant("keras_bert", dtype, compiled=True, layout="dense")
        for library in PEERS:
            for compiled in (False, True):
                yield Contestant(library, dtype, compiled)


def heats(contestants, start, steps):
    """{library: its fastest contestant}"""
    best = {}
    for contestant in contestants:
        start(contestant)
        is_alive = contestant.turn(1, measured=False) and all(
            contestant.turn(steps) for _ in range(HEAT_TURNS)
        )
        message = contestant.end()
        if not is_alive:
            print(f"{contestant.name}: left out, {message}", flush=True)
            continue
        print(row(contestant), flush=True)
        champion = best.get(contestant.library)
        if champion is None or contestant.wall < champion.wall:
            best[contestant.library] = contestant
    return best


def final(contestants, start, options, flops):
    """The fastest of each library, and the machine's peak, in turns."""
    peaks = [Contestant("peak", dtype) for dtype in options.dtypes]
    everyone = peaks + contestants
    for contestant in everyone:
        start(contestant)
    for measured in [False] + [True] * options.rounds:
        for contestant in everyone:
            contestant.turn(PEAK_PRODUCTS if contestant in peaks else options.steps, measured)
    for contestant in everyone:
        contestant.end()
    print(f"\nFinal, {options.rounds} turns of {options.steps} steps each")
    # of the least seconds of both: what else the machine did must not count as peak or as work
    rates = {peak.dtype: 2 * 4096**3 / peak.least for peak in peaks}
    for dtype, rate in rates.items():
        print(f"peak of {dtype}: {rate / 1e9:,.0f} GFLOP/s, matrices of 4,096 rows")
    tokens = options.rows * options.length * options.fill
    for contestant in contestants:
        share = flops / contestant.least / rates[contestant.dtype]
        print(f"{row(contestant)}  {tokens / contestant.wall:8,.0f} tokens/s  {share:4.0%} of the peak")
    ours = next((entry for entry in contestants if entry.library == "keras_bert"), None)
    for peer in contestants:
        if ours and peer is not ours:
            print(
                f"{peer.library}'s best / keras_bert's best: wall {peer.wall / ours.wall:.2f}, "
                f"CPU {peer.cpu / ours.cpu:.2f}"
            )


def row(contestant):
    return (
        f"{contestant.name:38} {contestant.wall:7.3f} s/step (least {contestant.least:.3f})"
        f"  {contestant.cpu:7.3f} CPU s"
    )


def step_flops(size, rows, length, predictions):
    """Floating-point operations of the matrix products of a step, forward and backward.

    Each of a kernel's weights is a multiplication and an addition for each token. Padding counts, and
    so do all positions in the last block, whatever an implementation leaves out.
    """
    width, layers = size["hidden_size"], size["num_hidden_layers"]
    kernels = layers * (4 * width**2 + 2 * width * size["intermediate_size"])
    attention = layers * 2 * length * width  # scores and mixture, of each token
    scored = predictions * (width**2 + width * size["vocab_size"])
    pooler = width**2 + 2 * width
    return 3 * 2 * rows * (length * (kernels + attention) + scored + pooler)
