"""README.md: its Python runs as it stands, and it names what exists."""

import re
from pathlib import Path

import pytest
from conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_fit_example_runs(capsys):
    """As written, but for fewer steps."""
    code = BLOCKS[0]
    assert "steps_per_epoch=100" in code
    exec(code.replace("steps_per_epoch=100", "steps_per_epoch=2"), {})
    printed = capsys.readouterr().out.splitlines()[-1]
    words = eval(printed)[0][0]
    assert len(words) == 5
    assert all(0 < score < 1 for _, score in words)


def test_the_encoder_example_runs():
    import numpy as np

    from keras_bert import BertEncoder, EncoderConfig

    names = {
        "BertEncoder": BertEncoder,
        "EncoderConfig": EncoderConfig,
        "ids": np.ones((1, 3), "int32"),
        "mask": np.ones((1, 3), "int32"),
    }
    exec(BLOCKS[1].replace("bert_base", "bert_tiny"), names)
    assert names["states"].shape == (1, 3, 128)


def test_the_fine_tuning_example_runs(tmp_path, monkeypatch, capsys):
    """As written, on a tiny model in its place."""
    from keras_bert import BertEncoder, EncoderConfig, WordPieceTokenizer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "dull", "not", "bad"]
    config = EncoderConfig.from_preset("bert_tiny", vocab_size=len(words))
    tokenizer = WordPieceTokenizer(words)
    BertEncoder(config, tokenizer=tokenizer).save_pretrained(tmp_path / "bert")
    monkeypatch.chdir(tmp_path)
    (code,) = (block for block in BLOCKS if 'BertClassifier.from_pretrained("bert/"' in block)
    with pytest.warns(UserWarning, match="no classifier"):
        exec(code, {})
    (answer,) = eval(capsys.readouterr().out.splitlines()[-1])
    assert answer["label"] in answer["probabilities"]
    assert (tmp_path / "sentiment" / "model.safetensors").exists()


def test_files_that_are_named_exist():
    texts = [README, *(path.read_text(encoding="utf-8") for path in ROOT.glob("tools/*.py"))]
    names = [name for text in texts for name in re.findall(r"tools/[\w/]+\.(?:py|toml)", text)]
    assert len(names) > 5
    for name in names:
        assert Path(ROOT, name).exists(), name
    assert not re.search(r"^[A-Z]{3,}$", README, re.MULTILINE)  # no place left to be filled
