"""keras_bert.text.sentences: hard cases by hand, nothing lost, the same inside tf.data."""

import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_bert.text.sentences import split_lines, split_sentences

# "|" stands where a sentence ends
HARD = [
    "He came. | She left! | Why? | 7 days passed… | Then it rained.",
    'She said "Stop." | "Why?" he asked. | "No," she said.',
    "She said “Stop.” | ‘Why?’ he asked. | It ended (at last). | (Nobody knew.) | [Two did.]",
    "Dr. Smith met Mr. and Mrs. Jones at 3 p.m. on St. James St. near Apple Inc. in Boston.",
    "J. R. Smith joined the U.S. Army. | He left it.",
    "See Fig. 3, cf. Brown et al. (2003), e.g. Table 2, i.e. this, vs. No. 5 and pp. 7.",
    "No. | He never did. | Neither did I. | They know.",
    "It costs $3.50 or 1,000.75 in all. | Call numpy.sum or tf.nn.relu. | See README.md for more.",
    "Yes. no capital follows. it stays whole.",
    "Wait... what? | Wait... | What?",
    "1. Open the box. | 2. Close it.",
    "Été came. | Étienne left. | Ωmega followed.",
    "What?! | Yes!!! | Really?! he said.",
    "the end has no mark",
]


def sentences(text):
    return [s.decode() for s in split_sentences(tf.constant([text]))[0].numpy()]


@pytest.mark.parametrize("marked", HARD)
def test_hard_sentences(marked):
    # the second numbered sentence stands on its own line, as lists do
    text = marked.replace(" | 2.", "\n2.") if marked.startswith("1.") else marked.replace(" | ", " ")
    expected = marked.split(" | ")
    assert sentences(text) == expected


def test_a_list_number_ends_nothing_on_its_own_line():
    assert sentences("First:\n\n1. Open it.\n 12. Close it.\n\nIV. The End") == [
        "First:",
        "1. Open it.",
        "12. Close it.",
        "IV. The End",
    ]


def test_paragraphs_end_sentences_and_white_space_is_single():
    text = "\ufeff\n\nA  title\r\n \r\nOne\ttwo\nthree\u00a0 four.\v Five\n\n\n\n"
    assert sentences(text.removeprefix("\ufeff")) == ["A title", "One two three four.", "Five"]


def test_batches_are_ragged_and_nothing_is_empty():
    split = split_sentences(tf.constant(["", "A. B.", " \n\n ", "One. Two."]))
    assert split.to_list() == [[], [b"A. B."], [], [b"One.", b"Two."]]
    assert split_sentences(tf.constant([], tf.string)).to_list() == []


def test_control_characters_cannot_forge_an_end():
    assert sentences("One\x02two.\x01 Three") == ["Onetwo.", "Three"]


def test_lines_are_sentences_as_they_stand():
    split = split_lines(tf.constant(["One. Two.\r\n  three   four \n\nV", ""]))
    assert split.to_list() == [[b"One. Two.", b"three four", b"V"], []]


def test_in_tf_data_as_eagerly():
    texts = ["One. Two.", "Dr. No. Three? Four."]
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(2).map(split_sentences)
    assert next(iter(dataset)).to_list() == split_sentences(tf.constant(texts)).to_list()


def without_space(text):
    return "".join(c for c in text if c not in "\t\n\v\f\r" and unicodedata.category(c)[0] != "Z")


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"))
PROSE = st.lists(st.sampled_from([*"AbI.?!\"'“”() \n\t3é", "Dr.", "e.g.", "\n\n"])).map("".join)


@settings(max_examples=200, deadline=None)
@given(TEXTS | PROSE)
def test_no_character_is_lost_and_splitting_again_changes_nothing(text):
    split = sentences(text)
    assert "".join(map(without_space, split)) == without_space(text)
    assert all(s and s == s.strip(" ") and "  " not in s for s in split)
