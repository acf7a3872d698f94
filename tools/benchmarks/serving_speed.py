"""Speed of answering texts beside peers: text in, probabilities out, each in a process of its own.

All answer with one classifier on one encoder (keras-hub with a head of its own, sentence-transformers
with embeddings), rows cut at the same length. They take turns, batch size by batch size; processes wait
for their turn without computing.
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from keras_bert import BertClassifier
from keras_bert.data.builtin import builtin_documents

WORKER = Path(__file__).parents[1] / "contestants" / "serving_contestant.py"
ENTRANTS = [
    ("keras_bert", "float32"),
    ("keras_bert", "bfloat16"),
    ("keras-hub", "float32"),
    ("transformers", "float32"),
    ("transformers", "bfloat16"),
    ("sentence-transformers", "float32"),
    ("sentence-transformers", "bfloat16"),
    ("onnxruntime", "float32"),
    ("onnxruntime", "int8"),
]
SAME_ANSWERS = ("keras_bert", "transformers", "onnxruntime")  # what they should agree in
TEXTS_IN_A_TURN = 64  # or one batch, if that has more


class Contestant:
    """A process that answers texts with one library.

    Args:
        library: Key of `LIBRARIES` in serving_contestant.py.
        dtype: "float32", "bfloat16" or "int8".
    """

    def __init__(self, library, dtype):
        self.library = library
        self.dtype = dtype
        self.name = f"{library}, {dtype}"
        self.turns = {}  # {batch size: list of answers}

    def start(self, python, model, texts, max_length):
        """Starts it and waits for its first answer, which is None when it died."""
        options = {
            "library": self.library,
            "dtype": self.dtype,
            "model": model,
            "texts": texts,
            "max_length": max_length,
        }
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  `end` closes it
        self.process = subprocess.Popen(
            [python, str(WORKER), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        answer = self.process.stdout.readline()
        self.answer = json.loads(answer) if answer else None
        return self.answer

    def turn(self, size, requests, measured=True):
        self.process.stdin.write(f"{size} {requests}\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if measured:
            self.turns.setdefault(size, []).append(answer)

    def end(self):
        """Ends the process; returns the last line that it wrote besides its answers."""
        self.process.kill()
        self.process.communicate()
        self.log.seek(0)
        lines = self.log.read().split("\n")
        self.log.close()
        return next((line.strip() for line in reversed(lines) if line.strip()), "no message")

    def wall(self, size):
        """Median seconds of a request."""
        return statistics.median(s for turn in self.turns[size] for s in turn["seconds"])

    def rate(self, size):
        """Texts in a second, of the median turn."""
        return size / statistics.median(statistics.mean(turn["seconds"]) for turn in self.turns[size])

    def cpu(self, size):
        """CPU seconds of a text, of the median turn."""
        return statistics.median(turn["cpu"] / size / len(turn["seconds"]) for turn in self.turns[size])

    @property
    def peak_gib(self):
        return max(turn["peak_gib"] for turns in self.turns.values() for turn in turns)


def benchmark_serving(options, machine):
    """Runs the contestants in turns and prints what they did; `machine` is printed beside."""
    texts = sample_texts(options.texts)
    lengths = [len(text.split()) for text in texts]
    print(
        f"{options.model}, {len(texts)} texts of {min(lengths)} to {max(lengths)} words (median "
        f"{statistics.median(lengths):.0f}), at most {options.length} tokens; {machine}"
    )
    pythons = dict(entry.split("=", 1) for entry in options.python)
    entrants = [Contestant(*each) for each in ENTRANTS]
    entrants = [each for each in entrants if re.search(options.only, each.name)]
    with tempfile.TemporaryDirectory() as folder:
        # the peers read the checkpoint that we write: one head for all
        model = BertClassifier.from_pretrained(options.model, num_labels=2, new_head=True)
        kernel = model.classifier.kernel
        kernel.assign(np.random.default_rng(0).normal(scale=0.5, size=kernel.shape))
        model.save_pretrained(folder)
        contestants = []
        for entrant in entrants:
            python = pythons.get(entrant.library, sys.executable)
            path = options.model if entrant.library == "sentence-transformers" else folder
            if entrant.start(python, path, texts, options.length) is None:
                print(f"{entrant.name}: left out, {entrant.end()}", flush=True)
            else:
                contestants.append(entrant)
        compare_answers(contestants)
        for size in options.batches:
            requests = max(1, TEXTS_IN_A_TURN // size)
            for measured in [False] + [True] * options.rounds:
                for contestant in contestants:
                    contestant.turn(size, requests, measured)
            print(f"\nbatches of {size}, {options.rounds} turns of {requests} requests")
            for contestant in contestants:
                print(row(contestant, size), flush=True)
    for contestant in contestants:
        contestant.end()
    print()
    for ours in (each for each in contestants if each.library == "keras_bert"):
        for peer in contestants:
            if peer.library != "keras_bert":
                ratios = [peer.wall(size) / ours.wall(size) for size in options.batches]
                shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
                print(f"{peer.name} / {ours.name}: seconds of a request x {shown}")


def sample_texts(count):
    """Paragraphs of documentation, in an order of their own: from a few words to some hundred."""
    paragraphs = [
        " ".join(paragraph.split())
        for document in builtin_documents()
        for paragraph in document.split("\n\n")
    ]
    paragraphs = [text for text in paragraphs if len(text.split()) > 2]
    order = np.random.default_rng(0).permutation(len(paragraphs))[:count]
    return [paragraphs[index] for index in order]


def compare_answers(contestants):
    """Prints how far the answers of those that should agree are from ours in float32."""
    ours = next((each for each in contestants if each.name == "keras_bert, float32"), None)
    for each in contestants if ours else ():
        if each.library in SAME_ANSWERS and each is not ours:
            difference = np.abs(np.array(each.answer) - np.array(ours.answer)).max()
            print(f"{each.name}: probabilities differ by {difference:.1e} from {ours.name}")


def row(contestant, size):
    return (
        f"{contestant.name:32} {1e3 * contestant.wall(size):8.1f} ms a request"
        f"  {contestant.rate(size):7.1f} texts/s  {1e3 * contestant.cpu(size):7.1f} CPU ms a text"
        f"  peak {contestant.peak_gib:.2f} GiB"
    )
