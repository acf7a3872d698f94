"""keras_bert.tasks.scoring and text.entities: against seqeval's own numbers, and by hand."""

import json

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from keras_bert.tasks.scoring import (
    best_answers,
    score_answers,
    score_label_sets,
    score_labels,
    score_numbers,
    score_tags,
)
from keras_bert.text.entities import are_entity_tags, entities, to_bio

CASES = json.loads((ROOT / "tests/fixtures/entities.json").read_text())


def test_entities_are_those_of_seqeval():
    assert len(CASES) == 100
    for case in CASES:
        scores = score_tags(case["truths"], case["predictions"])
        assert scores["f1"] == pytest.approx(case["f1"], abs=1e-12)
        assert scores["f1_strict"] == pytest.approx(case["f1_strict"], abs=1e-12)
        for tags, expected in zip(case["bioes"], case["entities"], strict=True):
            assert entities(tags) == [(kind, first, last + 1) for kind, first, last in expected]
    assert len({case["f1"] for case in CASES}) > 20
    assert any(case["f1"] != case["f1_strict"] for case in CASES)


@pytest.mark.parametrize(
    ("tags", "bio"),
    [
        ("I-a I-a B-a O I-b", "B-a I-a B-a O B-b"),  # IOB1
        ("S-a B-b I-b E-b O", "B-a B-b I-b I-b O"),
        ("U-a B-b L-b B-b L-b", "B-a B-b I-b B-b I-b"),
        ("B-a I-b", "B-a B-b"),
        ("O", "O"),
    ],
)
def test_every_scheme_becomes_bio(tags, bio):
    assert " ".join(to_bio(tags.split())) == bio
    assert to_bio(bio.split()) == bio.split()


def test_tags_of_entities_are_told_from_others():
    assert are_entity_tags(["O", "B-x", "E-creative-work"])
    for tags in (["NN", "VB"], ["O"], ["B-x", "DET"], ["I-"], []):
        assert not are_entity_tags(tags)


def test_labels_by_hand():
    scores = score_labels([1, 1, 0, 0, 1], [1, 0, 0, 1, 1], ["no", "yes"])
    assert scores["accuracy"] == pytest.approx(3 / 5)
    assert scores["f1"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert scores["matthews"] == pytest.approx((2 * 1 - 1 * 1) / np.sqrt(3 * 3 * 2 * 2))
    three = score_labels([0, 1, 2, 2], [0, 1, 2, 1], ["a", "b", "c"])
    assert three["f1"] == three["f1_macro"] == pytest.approx((1 + 2 / 3 + 2 / 3) / 3)
    assert score_labels([0, 0], [0, 0], ["a", "b"])["matthews"] == 0  # nothing to correlate


def test_numbers_and_label_sets_by_hand():
    scores = score_numbers([1, 2, 3, 4], [1, 2, 3, 40])
    assert scores["spearman"] == pytest.approx(1)
    assert scores["pearson"] == pytest.approx(np.corrcoef([1, 2, 3, 4], [1, 2, 3, 40])[0, 1])
    assert scores["rmse"] == pytest.approx(18)
    assert score_numbers([1, 2], [3, 3])["pearson"] == 0
    sets = score_label_sets([[1, 0], [1, 1]], [[1, 0], [0, 1]])
    assert sets["exact"] == 0.5
    assert sets["f1_micro"] == pytest.approx(4 / 5)
    assert sets["accuracy"] == 0.75


def test_answers_by_the_rules_of_the_official_script():
    answers = {"a": ["the Norman Duke!", "Duke"], "b": ["in 1066"], "c": [], "d": []}
    got = {"a": "Norman duke", "b": "1066 or so", "c": "", "d": "yes"}
    scores = score_answers(answers, got)
    assert scores["exact"] == pytest.approx(100 * 2 / 4)
    assert scores["f1"] == pytest.approx(100 * (1 + 2 * 1 / 5 + 1 + 0) / 4)
    assert scores["has_answer_exact"] == 50
    assert scores["no_answer_f1"] == 50
    # the answer to d is dropped first, then that to b would be lost
    with_threshold = best_answers(answers, got, {"a": -5, "b": 0, "c": 9, "d": 3})
    assert with_threshold["best_exact"] == 75
    assert with_threshold["best_exact_threshold"] == -5
    assert with_threshold["best_f1_threshold"] == 0
    assert set(score_answers({"a": ["x"]}, {"a": "x"})) == {"exact", "f1"}


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(-3, 3)), min_size=1, max_size=8))
def test_the_best_threshold_gives_the_best_score(questions):
    """Beside every threshold that could be chosen, with ties and negative scores."""
    answers = {i: ["x"] if has else [] for i, (has, _, _) in enumerate(questions)}
    raw = {i: "x" if right else "y" for i, (_, right, _) in enumerate(questions)}
    margins = {i: margin for i, (_, _, margin) in enumerate(questions)}

    def exact(threshold):
        got = {i: "" if margins[i] > threshold else raw[i] for i in raw}
        return score_answers(answers, got)["exact"]

    best = best_answers(answers, raw, margins)
    assert best["best_exact"] == pytest.approx(max(exact(t) for t in range(-4, 4)))
    assert exact(best["best_exact_threshold"]) == pytest.approx(best["best_exact"])
