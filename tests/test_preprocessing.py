"""keras_bert.text.preprocessing: strings to batches, in datasets, models and files."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert import BertEncoder
from keras_bert.text.preprocessing import TextPreprocessor
from keras_bert.text.wordpiece import WordPieceTokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "night", "##s", "!"]
TOKENIZER = WordPieceTokenizer(WORDS)


def as_lists(batch):
    return {name: values.numpy().tolist() for name, values in batch.items()}


def test_pairs_with_offsets_by_hand():
    preprocessor = TextPreprocessor(TOKENIZER, max_length=8, return_offsets=True)
    assert as_lists(preprocessor(["Good nights", ""], ["good!", "good"])) == {
        "token_ids": [[2, 5, 6, 7, 3, 5, 8, 3], [2, 3, 5, 3, 0, 0, 0, 0]],
        "padding_mask": [[1] * 8, [1] * 4 + [0] * 4],
        "segment_ids": [[0] * 5 + [1] * 3, [0, 0, 1, 1, 0, 0, 0, 0]],
        "char_starts": [[0, 0, 5, 10, 0, 0, 4, 0], [0] * 8],
        "char_ends": [[0, 4, 10, 11, 0, 4, 5, 0], [0, 0, 4, 0, 0, 0, 0, 0]],
        "word_ids": [[-1, 0, 1, 1, -1, 0, 1, -1], [-1, -1, 0, -1, -1, -1, -1, -1]],
    }


def test_in_a_dataset():
    texts = ["good", "night night", ""]
    preprocessor = TextPreprocessor(TOKENIZER, max_length=4, padding="longest")
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(3).map(preprocessor)
    assert as_lists(next(iter(dataset))) == as_lists(preprocessor(texts))


def test_in_a_model_and_its_file(toy_config, tmp_path):
    text = keras.Input((), dtype="string", name="text")
    batch = TextPreprocessor(TOKENIZER, max_length=6)(text)
    encoder = BertEncoder(toy_config)
    model = keras.Model(text, encoder(batch)["pooled_output"])
    expected = model.predict(tf.constant(["Good night!", "nights"]), verbose=0)
    direct = encoder(TextPreprocessor(TOKENIZER, 6)(["Good night!", "nights"]))["pooled_output"]
    np.testing.assert_allclose(expected, direct, atol=1e-6)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    again = loaded.predict(tf.constant(["Good night!", "nights"]), verbose=0)
    np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize("texts", ["good", [["good"]]])
def test_other_shapes_are_refused(texts):
    with pytest.raises(ValueError, match=r"a vector of strings, \(B,\)"):
        TextPreprocessor(TOKENIZER, max_length=6)(texts)


def test_ragged_rows_are_refused():
    with pytest.raises(ValueError, match="layers give dense rows"):
        TextPreprocessor(TOKENIZER, max_length=6, padding="do_not_pad")
