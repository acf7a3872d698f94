"""tools/benchmarks/step_parts.py: a table of a small model's step."""

import argparse

from benchmarks.step_parts import benchmark_step


def test_every_part_has_its_line(capsys):
    options = argparse.Namespace(
        init=None,
        preset="bert_tiny",
        rows=3,
        batches=2,
        rounds=1,
        shortest=4,
        longest=9,
        dtype="float32",
        layout="unpadded",
    )
    benchmark_step(options, "this machine")
    out = capsys.readouterr().out
    assert "float32, unpadded; this machine" in out
    for name in ("forward", "backward", "clipping and update", "imports", "model", "peak"):
        assert f"\n{name}" in out
