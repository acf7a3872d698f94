"""keras_bert.files: whole or not at all, and errors that name the byte."""

import pytest
import tensorflow as tf

from keras_bert.files import read_text, write_atomically


def test_round_trip_replaces_what_was_there(tmp_path):
    path = tmp_path / "note.txt"
    write_atomically(path, "first, and longer")
    write_atomically(path, "zweite ß")
    assert read_text(path) == "zweite ß"
    assert [p.name for p in tmp_path.iterdir()] == ["note.txt"]
    write_atomically("ram://notes/note.txt", b"bytes")
    assert read_text("ram://notes/note.txt") == "bytes"


def test_a_failed_write_keeps_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "note.txt"
    write_atomically(path, "old")

    def full(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.io.gfile, "rename", full)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["note.txt"]


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="The file must be an existing file. Received: .*none.txt"):
        read_text(tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes("abc é".encode("latin-1"))
    with pytest.raises(ValueError, match=r"UTF-8. Received: .*latin.txt with b.\\xe9. at byte 4"):
        read_text(tmp_path / "latin.txt")
