"""keras_bert.models.resizing: old rows and scores stay, new ones are means, and all of it trains."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import scramble

from keras_bert.config import EncoderConfig
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.models.resizing import resize_vocabulary
from keras_bert.text.bytepair import BytePairTokenizer, byte_alphabet
from keras_bert.text.vocabulary_training import SPECIAL_TOKENS
from keras_bert.text.wordpiece import WordPieceTokenizer
from keras_bert.training.optimizers import AdamW

OLD = [*SPECIAL_TOKENS, "a", "he", "##pa", "##ti", "##tis", "##s", "it", "the", "[", "]", "e"]
NEW = ["hepatitis", "hes", "##titis", "[e]", "ß"]
MADE_OF = [
    ["he", "##pa", "##ti", "##tis"],
    ["he", "##s"],
    ["##ti", "##tis"],
    ["[", "e", "]"],
    ["[UNK]"],
]
TEXTS = ["the hepa it a", "it heti s", "a [MASK] the e"]


def tokenizer_of(vocabulary, **options):
    return WordPieceTokenizer(vocabulary, **options)


def model_of(kind, **options):
    config = EncoderConfig(
        vocab_size=len(OLD),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
        **options,
    )
    return scramble(kind(config))


def batch(tokenizer, texts=TEXTS):
    ids = tokenizer.tokenize(texts, parse_special_tokens=True)
    ids = tf.concat([tf.fill([len(texts), 1], tokenizer.cls_token_id), ids], axis=1)
    positions = np.array([[1, 2], [2, 0], [2, 3]], "int32")
    mask = tf.sequence_mask(ids.row_lengths())
    return {"token_ids": ids.to_tensor(), "padding_mask": mask, "mask_positions": positions}


@pytest.mark.parametrize("kind", [BertPretrainer, BertEncoder])
@pytest.mark.parametrize("options", [{}, {"embedding_size": 4, "num_hidden_groups": 1}])
def test_old_rows_stay_and_new_ones_are_means(kind, options):
    model = model_of(kind, **options)
    old_tokenizer, new_tokenizer = tokenizer_of(OLD), tokenizer_of(OLD + NEW)
    before = [weight.numpy() for weight in model.weights]
    resized = resize_vocabulary(model, old_tokenizer, new_tokenizer)
    assert type(resized) is kind
    assert resized.config.vocab_size == len(OLD + NEW)
    grown = set()
    for old, value, new in zip(model.weights, before, resized.weights, strict=True):
        np.testing.assert_array_equal(old.numpy(), value)  # left as it is
        assert new.path == old.path
        np.testing.assert_array_equal(new.numpy()[: len(value)] if value.ndim else new, value)
        if new.shape != old.shape:
            grown.add(old.path)
            for row, pieces in zip(new.numpy()[len(OLD) :], MADE_OF, strict=True):
                mean = np.mean([value[OLD.index(piece)].astype("float64") for piece in pieces], axis=0)
                np.testing.assert_allclose(row, mean, rtol=1e-6)
    bias = {"masked_lm/bias"} if kind is BertPretrainer else set()
    assert grown == {"encoder/embeddings/word_table"} | bias


def test_old_words_score_as_before_and_new_ones_as_their_pieces():
    model = model_of(BertPretrainer)
    old_tokenizer, new_tokenizer = tokenizer_of(OLD), tokenizer_of(OLD + NEW)
    resized = resize_vocabulary(model, old_tokenizer, new_tokenizer)
    x = batch(old_tokenizer)
    for name, values in batch(new_tokenizer).items():
        np.testing.assert_array_equal(values, x[name])
    old, new = model(x), resized(x)
    np.testing.assert_allclose(new["sentence"], old["sentence"], atol=1e-6)
    scores, old_scores = new["masked_lm"].numpy(), old["masked_lm"].numpy()
    np.testing.assert_allclose(scores[:, :, : len(OLD)], old_scores, atol=1e-6)
    for i, pieces in enumerate(MADE_OF, start=len(OLD)):
        mean = np.mean([old_scores[:, :, OLD.index(piece)] for piece in pieces], axis=0)
        np.testing.assert_allclose(scores[:, :, i], mean, atol=1e-5)


def test_it_trains_saves_and_predicts(tmp_path):
    resized = resize_vocabulary(model_of(BertPretrainer), tokenizer_of(OLD), tokenizer_of(OLD + NEW))
    tokenizer = resized.tokenizer
    hepatitis = tokenizer.vocabulary.index("hepatitis")
    x = batch(tokenizer, ["the Hepatitis it [MASK]", "it hepatitis a", "a hepatitis"])
    assert x["token_ids"].numpy()[0].tolist()[1:3] == [OLD.index("the"), hepatitis]
    y = {"masked_lm": np.full((3, 2), hepatitis), "sentence": np.zeros(3, "int32")}
    resized.compile(AdamW(0.01))
    before = [resized.encoder.embeddings.word_table.numpy(), resized.masked_lm.bias.numpy()]
    resized.fit(tf.data.Dataset.from_tensors((x, y)).repeat(20), verbose=0)
    assert tf.nn.softmax(resized(x)["masked_lm"])[..., hepatitis].numpy().min() > 0.5
    after = [resized.encoder.embeddings.word_table.numpy(), resized.masked_lm.bias.numpy()]
    for old, new in zip(before, after, strict=True):
        assert np.abs(new - old)[hepatitis].max() > 0.01
    # one table still: what reads words also scores them
    assert [w.path for w in resized.weights if w.shape[:1] == (tokenizer.vocabulary_size,)] == [
        "encoder/embeddings/word_table",
        "masked_lm/bias",
    ]
    assert resized.predict_text(["a [MASK]"], top_k=1)[0][0][0][0] == "hepatitis"
    resized.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(x)["masked_lm"], resized(x)["masked_lm"])


def test_policy_and_layout_are_kept():
    config = model_of(BertPretrainer).config
    model = BertPretrainer(config, layout="unpadded", dtype="mixed_bfloat16", name="mine")
    resized = resize_vocabulary(model, tokenizer_of(OLD), tokenizer_of(OLD + NEW))
    assert resized.encoder.layout == "unpadded"
    assert resized.name == "mine"
    assert resized.dtype_policy.name == resized.encoder.dtype_policy.name == "mixed_bfloat16"


def test_added_tokens_are_one_id_each_and_have_rows():
    old_tokenizer = tokenizer_of(OLD, added_tokens=["[E1]"])
    model = BertPretrainer(EncoderConfig.from_preset("bert_tiny", vocab_size=len(OLD) + 1))
    new_tokenizer = tokenizer_of(OLD, added_tokens=["[E1]", "[the]"])
    resized = resize_vocabulary(scramble(model), old_tokenizer, new_tokenizer)
    assert new_tokenizer.tokenize("a [the] [E1]").numpy().tolist() == [5, len(OLD) + 1, len(OLD)]
    table, bias = resized.encoder.embeddings.word_table.numpy(), resized.masked_lm.bias.numpy()
    assert len(table) == len(bias) == new_tokenizer.vocabulary_size
    pieces = [OLD.index(piece) for piece in ("[", "the", "]")]
    np.testing.assert_allclose(bias[-1], bias[pieces].mean(), rtol=1e-5)
    np.testing.assert_allclose(table[-1], table[pieces].mean(0), rtol=1e-4, atol=1e-6)


def test_without_new_entries_it_is_a_copy():
    model = model_of(BertPretrainer)
    resized = resize_vocabulary(model, tokenizer_of(OLD), tokenizer_of(OLD))
    for old, new in zip(model.weights, resized.weights, strict=True):
        assert new is not old
        np.testing.assert_array_equal(new.numpy(), old.numpy())


def byte_pair(added_tokens=()):
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *byte_alphabet(), "Ġa"]
    return BytePairTokenizer(vocabulary, [("Ġ", "a")], added_tokens=added_tokens)


def test_other_tokenizers_grow_by_added_tokens():
    old_tokenizer, new_tokenizer = byte_pair(), byte_pair([" a!", "[EOS]"])
    model = BertEncoder(EncoderConfig.from_preset("bert_tiny", vocab_size=262))
    resized = resize_vocabulary(model, old_tokenizer, new_tokenizer)
    table = resized.embeddings.word_table.numpy()
    assert len(table) == new_tokenizer.vocabulary_size == 264
    for i, pieces in ((262, ["Ġa", "!"]), (263, ["[", "E", "O", "S", "]"])):
        ids = [old_tokenizer.vocabulary.index(piece) for piece in pieces]
        np.testing.assert_allclose(table[i], table[ids].mean(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (tokenizer_of(OLD), tokenizer_of(OLD[:-1]), "hold all of the old one. Received: 15.*after 16"),
        (tokenizer_of(OLD), tokenizer_of([*OLD[:6], "new", *OLD[6:]]), "'new' at id 6, where 'he' was"),
        (tokenizer_of(OLD), tokenizer_of([*OLD, "\u200b"]), "makes pieces of. Received: '\\\\u200b'"),
        (tokenizer_of(OLD[:-1]), tokenizer_of(OLD), "Received: 15 entries, 16 rows"),
        (tokenizer_of(OLD), byte_pair(), "one class. Received: WordPiece.* and BytePair"),
    ],
)
def test_vocabularies_that_do_not_continue_are_refused(old, new, message):
    with pytest.raises(ValueError, match=message):
        resize_vocabulary(model_of(BertEncoder), old, new)
