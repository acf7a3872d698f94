"""keras_bert.config: presets, refusals with the words that help, JSON round trip."""

import json

import pytest

from keras_bert.config import HIDDEN_ACTS, PRESETS, EncoderConfig
from keras_bert.layers.activations import ACTIVATIONS


@pytest.mark.parametrize(
    ("name", "layers", "width", "heads", "inner"),
    [
        ("bert_tiny", 2, 128, 2, 512),
        ("bert_mini", 4, 256, 4, 1024),
        ("bert_small", 4, 512, 8, 2048),
        ("bert_medium", 8, 512, 8, 2048),
        ("bert_base", 12, 768, 12, 3072),
        ("bert_large", 24, 1024, 16, 4096),
    ],
)
def test_presets_are_the_published_sizes(name, layers, width, heads, inner):
    config = EncoderConfig.from_preset(name)
    assert (config.num_hidden_layers, config.hidden_size) == (layers, width)
    assert (config.num_attention_heads, config.intermediate_size) == (heads, inner)
    assert name in PRESETS


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"hidden_size": 100, "num_attention_heads": 12},
            "num_attention_heads=12, hidden_size=100",
        ),
        ({"hidden_act": "gelu_nwe"}, "did you mean 'gelu_new'"),
        ({"hidden_dropout_prob": 1.0}, r"\[0, 1\).*Received: 1.0"),
        ({"attention_probs_dropout_prob": -0.1}, r"\[0, 1\)"),
        ({"vocab_size": 0}, "vocab_size.*at least 1"),
        ({"type_vocab_size": -1}, "type_vocab_size.*negative"),
        ({"layer_norm_eps": 0.0}, "layer_norm_eps.*positive"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps.*finite"),
        ({"num_hidden_groups": 5}, "num_hidden_groups=5, num_hidden_layers=12"),
        ({"pad_token_id": 30522}, "pad_token_id=30522, vocab_size=30522"),
        ({"position_offset": 512}, "position_offset=512, max_position_embeddings=512"),
        ({"hidden_size": "768"}, "hidden_size.*must be int. Received: '768'"),
        ({"hidden_size": 768.0}, "hidden_size.*must be int"),
        ({"use_pooler": 1}, "use_pooler.*must be bool"),
        ({"embedding_size": 0}, "embedding_size.*at least 1"),
    ],
)
def test_inconsistent_values_are_refused_at_birth(values, words):
    with pytest.raises(ValueError, match=words):
        EncoderConfig(**values)


def test_unknown_names_get_the_nearest_known_one():
    with pytest.raises(ValueError, match="'hiden_size' .did you mean 'hidden_size'"):
        EncoderConfig.from_dict({"hiden_size": 4})
    with pytest.raises(ValueError, match="'bert_tny' .did you mean 'bert_tiny'"):
        EncoderConfig.from_preset("bert_tny")


def test_file_round_trip(tmp_path):
    config = EncoderConfig.from_preset("bert_mini", embedding_size=64, num_hidden_groups=1)
    config.save(tmp_path / "config.json")
    assert EncoderConfig.from_file(tmp_path / "config.json") == config
    assert json.loads((tmp_path / "config.json").read_text())["embedding_size"] == 64


def test_config_and_layers_know_the_same_activations():
    assert set(HIDDEN_ACTS) == set(ACTIVATIONS)
