"""keras_bert.training.state: exact resume, torn files, other models, remote paths."""

import dataclasses
import json
import resource

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.training.optimizers import AdamW
from keras_bert.training.schedules import WarmupDecay
from keras_bert.training.state import TrainingState


def compiled(config):
    model = BertPretrainer(config)
    model.compile(AdamW(WarmupDecay(0.05, 2, 20)))
    return model


@pytest.fixture(scope="module")
def model(toy_config):
    return compiled(toy_config)


def values(model):
    return [w.numpy() for w in [*model.weights, *model.optimizer.variables]]


def test_a_restored_run_ends_with_the_same_bits(toy_config, toy_batch, tmp_path):
    """Six steps of `fit`, against three steps, a new process's worth of objects, and three more."""
    dataset = tf.data.Dataset.from_tensors(toy_batch).repeat()
    straight = compiled(toy_config)
    start = [w.numpy() for w in straight.weights]
    fit = {"steps_per_epoch": 3, "verbose": 0, "shuffle": False}
    straight.fit(dataset, **fit)
    TrainingState(tmp_path, straight, straight.optimizer).save(3, {"data": 5})
    straight.fit(dataset, **fit)

    resumed = compiled(toy_config)
    assert TrainingState(tmp_path, resumed, resumed.optimizer).restore() == (3, {"data": 5})
    assert float(resumed.optimizer.learning_rate) == pytest.approx(0.05 * 17 / 18)
    resumed.fit(dataset, **fit)
    for one, other in zip(values(straight), values(resumed), strict=True):
        np.testing.assert_array_equal(one, other)
    assert any((a != b.numpy()).any() for a, b in zip(start, resumed.weights, strict=True))


def test_nothing_saved_changes_nothing(model, tmp_path):
    before = values(model)
    assert TrainingState(tmp_path / "none", model, model.optimizer).restore() == (0, None)
    for one, other in zip(before, values(model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_only_the_newest_are_kept(model, tmp_path):
    state = TrainingState(tmp_path, model, model.optimizer, keep=2)
    for step in (5, 10, 15):
        state.save(step, {"note": step})
    assert state.saved_steps() == [10, 15]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_00000010", "step_00000015"]
    state.save(15, {"note": "again"})
    assert state.restore() == (15, {"note": "again"})


@pytest.mark.parametrize("damage", ["cut", "gone", "no list", "half a list"])
def test_a_torn_state_is_never_chosen(model, tmp_path, damage):
    state = TrainingState(tmp_path, model, model.optimizer)
    state.save(5)
    state.save(10)
    newest = tmp_path / "step_00000010"
    data = next(newest.glob("state.data*"))
    if damage == "cut":
        data.write_bytes(data.read_bytes()[:-100])
    elif damage == "gone":
        data.unlink()
    elif damage == "no list":
        (newest / "complete.json").unlink()
    else:
        (newest / "complete.json").write_text((newest / "complete.json").read_text()[:20])
    assert state.saved_steps() == [5]
    assert state.restore()[0] == 5
    state.save(10)  # and the damage is no obstacle
    assert state.saved_steps() == [5, 10]


def test_bytes_that_changed_are_passed_over(model, tmp_path, capsys):
    state = TrainingState(tmp_path, model, model.optimizer)
    state.save(5)
    state.save(10)
    data = next((tmp_path / "step_00000010").glob("state.data*"))
    content = data.read_bytes()
    data.write_bytes(content[:2000] + bytes(len(content) - 2000))  # as after a loss of power
    assert state.saved_steps() == [5, 10]
    assert state.restore() == (5, None)
    assert "step 10 is damaged" in capsys.readouterr().out
    older = next((tmp_path / "step_00000005").glob("state.data*"))
    older.write_bytes(bytes(older.stat().st_size))
    with pytest.raises(ValueError, match="only damaged ones"):
        state.restore()


def test_a_save_clears_what_was_damaged_or_left_half_written(model, tmp_path):
    """Also where one state is kept, and the damaged one has a higher number."""
    TrainingState(tmp_path, model, model.optimizer, keep=2).save(5)
    state = TrainingState(tmp_path, model, model.optimizer, keep=1)
    (tmp_path / "step_00000007").mkdir()  # of a process killed while it saved
    data = tmp_path / "step_00000010" / "state.data-00000-of-00001"
    state.keep = 9
    state.save(10)
    data.write_bytes(bytes(data.stat().st_size))
    assert state.restore() == (5, None)
    state.keep = 1
    state.save(6)
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000006"]
    assert state.restore() == (6, None)


@pytest.mark.parametrize("room", [0, 1000, 20_000])
def test_a_full_disk_leaves_the_last_state(model, tmp_path, room):
    """No file may grow beyond `room` bytes: the system's own error, before and within the data."""
    state = TrainingState(tmp_path, model, model.optimizer)
    state.save(5, "good")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.raises(OSError, match="step 10 could not be written.*newest good.*step 5"):
            state.save(10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000005"]
    assert state.restore() == (5, "good")


def test_another_model_is_refused(model, toy_config, tmp_path):
    TrainingState(tmp_path, model, model.optimizer).save(5)
    for change in ({"num_hidden_layers": 1}, {"num_hidden_layers": 3}, {"intermediate_size": 20}):
        other = compiled(dataclasses.replace(toy_config, **change))
        with pytest.raises(ValueError, match="same model and optimizer.*step_00000005"):
            TrainingState(tmp_path, other, other.optimizer).restore()


def test_states_may_be_remote_and_carry_notes(model):
    state = TrainingState("ram://bucket/states", model, model.optimizer)
    state.save(7, [{"loss": 1.5}])
    assert state.restore() == (7, [{"loss": 1.5}])
    listing = json.loads(tf.io.gfile.GFile("ram://bucket/states/step_00000007/complete.json").read())
    assert set(listing["files"]) == {"state.index", "state.data-00000-of-00001"}


def test_an_unbuilt_optimizer_is_refused(model, tmp_path):
    with pytest.raises(ValueError, match="optimizer.built=False"):
        TrainingState(tmp_path, model, AdamW())
