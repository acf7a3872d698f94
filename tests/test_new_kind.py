"""A new kind of task is one new file and one line: tried on a copy of the package."""

import filecmp
import json
import os
import shutil
import subprocess
import sys

import keras
from conftest import ROOT

from keras_bert import BertEncoder, EncoderConfig, WordPieceTokenizer

FILE = '''"""A whole number of stars for each text."""

import numpy as np

from keras_bert.tasks.regression import Regression
from keras_bert.tasks.task import Task


class Stars(Regression):
    """A whole number of stars for each text."""

    own_data = Task("stars", label="stars", metric="right")

    def score(self, rows, predictions):
        stars = np.rint([each["score"] for each in predictions])
        return {"right": float(np.mean(stars == self.labels(rows)))}
'''
LINE = "from keras_bert.tasks.stars import Stars as Stars\n"


def changed_files(new, old):
    """Paths, below `new`, of what is not in `old` or not the same there."""
    comparison = filecmp.dircmp(new, old, ignore=["__pycache__"])
    assert not comparison.right_only
    found = [*comparison.left_only, *comparison.diff_files]
    for name, inner in comparison.subdirs.items():
        found += [f"{name}/{path}" for path in changed_files(inner.left, inner.right)]
    return sorted(found)


def test_a_new_kind_is_one_file_and_one_line(tmp_path):
    package = tmp_path / "keras_bert"
    shutil.copytree(ROOT / "keras_bert", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "tasks" / "stars.py").write_text(FILE)
    kinds = package / "tasks" / "kinds.py"
    kinds.write_text(kinds.read_text().replace("\n\n\ndef", f"\n{LINE}\n\ndef", 1))
    assert changed_files(package, ROOT / "keras_bert") == ["tasks/kinds.py", "tasks/stars.py"]
    lines = [set(path.read_text().splitlines()) for path in (kinds, ROOT / "keras_bert/tasks/kinds.py")]
    assert lines[0] ^ lines[1] == {LINE.strip()}

    keras.utils.set_random_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "bad", "fine", "good"]
    config = EncoderConfig(len(words), 8, 1, 1, 16, max_position_embeddings=16, initializer_range=0.2)
    BertEncoder(config, tokenizer=WordPieceTokenizer(words)).save_pretrained(tmp_path / "init")
    table = "text\tstars\n" + "bad\t1\nfine\t2\ngood\t3\n" * 20
    (tmp_path / "stars.tsv").write_text(table)
    command = "stars --init init --train stars.tsv --dev stars.tsv"
    command += " --batch-size 6 --epochs 30 --learning-rate 0.02"
    run = subprocess.run(
        [sys.executable, ROOT / "tools/finetune.py", *command.split(), "--workdir", "work"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    metrics = json.loads((tmp_path / "work/metrics.json").read_text())
    assert metrics["dev"]["right"]["mean"] == 1.0
    assert (tmp_path / "work/dev.png").exists()
