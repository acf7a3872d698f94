"""tools/export.py: a checkpoint to a directory of versions, what it prints, what it refuses."""

import numpy as np
import pytest
from conftest import ROOT
from served_models import KINDS

from keras_bert.files import read_json
from keras_bert.serving.comparing import _without_padding
from keras_bert.serving.export import FACTS


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import export

    return export.main


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint")
    KINDS["answers"][0]().save_pretrained(path)
    return str(path)


def test_a_checkpoint_is_exported_checked_and_compared(tool, checkpoint, tmp_path, capsys):
    table = tmp_path / "dev.tsv"
    table.write_text("question\tcontext\nwho\tax b. c\nwho a\t\n")
    flags = ["--weights", "int8", "--compare", str(table), "--n-best", "2"]
    tool([checkpoint, str(tmp_path / "answers"), *flags, "--no-answer-threshold", "0"])
    printed = capsys.readouterr().out
    assert f"{tmp_path}/answers/1: a BertQuestionAnswering" in printed
    assert "int8 beside float32 weights, 2 requests" in printed
    lines = {line.split()[0]: line for line in printed.splitlines() if line.startswith("  ")}
    assert "20 requests" in lines["serving_default"]
    assert "equal" in lines["answer"]
    assert 0 < float(lines["no_answer_margin"].split("largest ")[1].split(",")[0]) < 1
    options = {"n_best": 2, "no_answer_threshold": 0.0}
    assert read_json(tmp_path / "answers" / "1" / FACTS)["options"] == options


def test_refusals(tool, checkpoint, tmp_path):
    bad = tmp_path / "bad.tsv"
    bad.write_text("text\nwho\n")
    for flags, message in (
        (["--top-k", "3"], r"among n_best, .*\. Received: top_k"),
        (
            ["--compare", str(bad), "--no-check"],
            "columns context, question. Received: .*bad.tsv with text",
        ),
    ):
        with pytest.raises(SystemExit, match=message):
            tool([checkpoint, str(tmp_path / "answers"), *flags])


def test_padding_is_not_compared():
    assert _without_padding(np.array([b"a", b"", b"b", b""], object)).tolist() == [b"a", b"", b"b"]
    assert _without_padding(np.array([[1.0, 0.0], [0.0, 0.0]])).tolist() == [[1.0, 0.0]]
    assert _without_padding(np.zeros((0, 3))).shape == (0, 3)
    assert _without_padding(np.array(0.0)).tolist() == 0.0
