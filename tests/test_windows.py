"""keras_bert.text.windows against loops over tokens."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_bert.text.windows import best_slots, check_stride, windows


def windows_by_hand(lengths, rooms, stride):
    """The loop of google-research/bert's run_squad.py, and an empty window for an empty text."""
    found = []
    for text, (length, room) in enumerate(zip(lengths, rooms, strict=True)):
        start = 0
        while True:
            size = min(length - start, room)
            found.append((text, start, size))
            if start + size == length:
                break
            start += min(size, stride)
    return found


def context_by_hand(found, text, token):
    """Its windows by context, most first."""
    scores = []
    for number, (owner, start, size) in enumerate(found):
        if owner == text and start <= token < start + size:
            place = token - start
            scores.append((-min(place, size - 1 - place), number, place))
    return min(scores)[1:]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), min_size=1, max_size=5), st.data())
def test_windows_are_those_of_the_loop(texts, data):
    lengths, rooms = zip(*texts, strict=True)
    stride = data.draw(st.integers(1, min(rooms)))
    got = windows(tf.constant(lengths), tf.constant(rooms), stride)
    expected = windows_by_hand(lengths, rooms, stride)
    assert np.stack(got, -1).tolist() == [list(each) for each in expected]
    numbers, places = best_slots(*got, tf.constant(lengths))
    by_hand = [
        context_by_hand(expected, text, token)
        for text, length in enumerate(lengths)
        for token in range(length)
    ]
    assert list(zip(numbers.numpy().tolist(), places.numpy().tolist(), strict=True)) == by_hand


@pytest.mark.parametrize(("room", "stride"), [(5, 0), (5, 6), (0, 1), (5, -1)])
def test_windows_that_skip_or_never_end_are_refused(room, stride):
    with pytest.raises(ValueError, match=f"Received: stride={stride}, room for {room} tokens"):
        check_stride(room, stride)
    check_stride(5, 5)
