"""tools/processor.py: what is decided from the processor's features, and that a user's word wins."""

import subprocess
import sys

import pytest
from conftest import ROOT
from processor import choose_onednn, flags, resolve_dtype

SCRIPT = """
import sys
sys.path.insert(0, {tools!r})
from processor import choose_onednn
choose_onednn({features!r}, environment := {environment!r})
print(environment, "tensorflow" in sys.modules)
"""


def decide(features, environment):
    code = SCRIPT.format(tools=str(ROOT / "tools"), features=features, environment=environment)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_onednn_is_on_where_the_processor_has_avx2():
    run = decide({"avx2"}, {})
    assert run.stdout.split() == ["{'TF_ENABLE_ONEDNN_OPTS':", "'1'}", "False"]
    assert "oneDNN is on" in run.stderr


@pytest.mark.parametrize("environment", [{"TF_ENABLE_ONEDNN_OPTS": "0"}, {"TF_ENABLE_ONEDNN_OPTS": ""}])
def test_what_the_user_set_stays(environment):
    run = decide({"avx2"}, environment)
    assert run.stdout.strip() == f"{environment} False"
    assert run.stderr == ""


def test_nothing_is_switched_on_other_processors():
    assert decide({"neon"}, {}).stdout.strip() == "{} False"


def test_too_late_is_said():
    import tensorflow  # noqa: F401

    with pytest.raises(RuntimeError, match="before TensorFlow is imported"):
        choose_onednn({"avx2"}, {})


@pytest.mark.parametrize(
    ("features", "accelerators", "expected"),
    [
        ({"avx2"}, (), "float32"),
        ({"avx512f", "avx512_bf16"}, (), "mixed_bfloat16"),
        ({"amx_bf16"}, (), "mixed_bfloat16"),
        (set(), ["TPU"], "mixed_bfloat16"),
        ({"avx2"}, [(8, 0), (9, 0)], "mixed_bfloat16"),
        ({"amx_bf16"}, [(7, 5)], "float32"),
    ],
)
def test_auto_takes_bfloat16_where_it_is_fast(features, accelerators, expected, capsys):
    assert resolve_dtype("auto", features, accelerators) == expected
    assert expected in capsys.readouterr().err


def test_a_named_dtype_stays(capsys):
    assert resolve_dtype("float32", {"amx_bf16"}) == "float32"
    assert capsys.readouterr().err == ""


def test_flags_of_a_file(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor : 0\nflags\t\t: fpu avx2 amx_bf16\n\nflags : other\n")
    assert {"fpu", "avx2", "amx_bf16"} <= flags(path)
    assert "other" not in flags(path)
    assert flags(tmp_path / "none") == set()
