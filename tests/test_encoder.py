"""keras_bert.models.encoder and the layers below, against the numpy reference."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import LENGTH, VOCAB, scramble
from reference import encode_row, weights_of

from keras_bert.config import EncoderConfig
from keras_bert.models.encoder import BertEncoder

LAYOUTS = ["dense", "unpadded"]
VARIANTS = {
    "bert": {},
    "tanh form of gelu": {"hidden_act": "gelu_new"},
    "relu, large epsilon": {"hidden_act": "relu", "layer_norm_eps": 1e-3},
    "silu, three segments": {"hidden_act": "silu", "type_vocab_size": 3},
    "no segments, no pooler": {"type_vocab_size": 0, "use_pooler": False},
    "factorised, one shared block": {"embedding_size": 5, "num_hidden_groups": 1},
    "four layers in two groups": {"num_hidden_layers": 4, "num_hidden_groups": 2},
    "positions from the third row": {"position_offset": 2, "hidden_act": "tanh"},
}


def encoder_input(batch):
    return {name: batch[0][name] for name in ("token_ids", "padding_mask", "segment_ids")}


def check_against_reference(model, x):
    out = {name: value.numpy() for name, value in model(x).items()}
    weights = weights_of(model)
    for row, mask in enumerate(x["padding_mask"]):
        real = np.flatnonzero(mask)
        states, pooled = encode_row(
            weights, model.config, x["token_ids"][row, real], x["segment_ids"][row, real]
        )
        np.testing.assert_allclose(out["sequence_output"][row, real], states, atol=1e-5)
        np.testing.assert_allclose(out["pooled_output"][row], pooled, atol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_states_match_the_reference(toy_config, toy_batch, variant, layout):
    config = dataclasses.replace(toy_config, **VARIANTS[variant])
    check_against_reference(scramble(BertEncoder(config, layout)), encoder_input(toy_batch))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_real_size_matches_the_reference(layout):
    config = EncoderConfig.from_preset("bert_tiny", vocab_size=300, initializer_range=0.1)
    rng = np.random.default_rng(1)
    x = {
        "token_ids": rng.integers(0, 300, (4, 96)),
        "padding_mask": np.arange(96) < np.array([[96], [1], [33], [80]]),
        "segment_ids": np.arange(96) // 20 % 2 * np.ones((4, 1), "int32"),
    }
    check_against_reference(scramble(BertEncoder(config, layout), scale=0.05), x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_padding_and_neighbours_change_nothing(toy_config, toy_batch, layout):
    model = scramble(BertEncoder(toy_config, layout))
    x = encoder_input(toy_batch)
    together = model(x)["sequence_output"].numpy()
    for row, length in enumerate([7, 4, 5]):
        for padding in (0, 1, 10 - length):  # up to the end of the position table
            alone = {
                name: np.pad(value[row : row + 1, :length], [(0, 0), (0, padding)])
                for name, value in x.items()
            }
            alone["token_ids"][:, length:] = 9  # what lies in padding must not matter
            states = model(alone)["sequence_output"].numpy()[0, :length]
            np.testing.assert_allclose(states, together[row, :length], atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"], indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_all_padding_row_stays_finite(toy_config, toy_batch, layout, policy):
    model = scramble(BertEncoder(toy_config, layout))
    x = encoder_input(toy_batch)
    full = model(x)["sequence_output"].numpy().astype("float32")
    empty = {**x, "padding_mask": x["padding_mask"] * [[1], [0], [1]]}
    with tf.GradientTape() as tape:
        out = model(empty, training=True, seed=1)
        loss = sum(tf.reduce_sum(tf.cast(value, "float32")) for value in out.values())
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    for value in [*out.values(), *map(tf.convert_to_tensor, gradients)]:
        assert np.isfinite(value.numpy().astype("float32")).all()
    states = model(empty)["sequence_output"].numpy().astype("float32")
    np.testing.assert_allclose(states[0], full[0], atol=1e-5 if policy == "float32" else 0.1)


def test_nothing_but_padding_is_still_an_answer(toy_config):
    x = {"token_ids": np.zeros((2, 3), "int32"), "padding_mask": np.zeros((2, 3), "int32")}
    for layout in LAYOUTS:
        out = BertEncoder(toy_config, layout)(x, training=True)
        assert np.isfinite(out["sequence_output"].numpy()).all()


def test_absent_segments_are_zeros_and_masks_may_be_bool(toy_config, toy_batch):
    model = scramble(BertEncoder(toy_config))
    x = encoder_input(toy_batch)
    zeros = model({**x, "segment_ids": np.zeros_like(x["segment_ids"])})["pooled_output"]
    bare = {"token_ids": x["token_ids"], "padding_mask": x["padding_mask"].astype(bool)}
    np.testing.assert_array_equal(model(bare)["pooled_output"], zeros)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_symbolic_use_and_any_length(toy_config, toy_batch, layout):
    model = scramble(BertEncoder(toy_config, layout))
    x = encoder_input(toy_batch)
    for length in (None, LENGTH):
        inputs = {name: keras.Input((length,), dtype="int32", name=name) for name in x}
        outer = keras.Model(inputs, model(inputs)["pooled_output"])
        np.testing.assert_allclose(outer(x), model(x)["pooled_output"], atol=1e-6)
    compiled = tf.function(model, jit_compile=layout == "dense")
    np.testing.assert_allclose(compiled(x)["pooled_output"], model(x)["pooled_output"], atol=1e-5)


def test_layouts_share_dropout_and_seeds_decide_it(toy_config, toy_batch):
    dense, x = scramble(BertEncoder(toy_config)), encoder_input(toy_batch)
    real = x["padding_mask"].astype(bool)

    def states(layout, **options):
        dense.layout = layout
        return dense(x, **options)["sequence_output"].numpy()[real]

    first = states("dense", training=True, seed=1)
    np.testing.assert_allclose(states("unpadded", training=True, seed=1), first, atol=1e-5)
    assert np.abs(states("dense", training=True, seed=2) - first).max() > 0.1
    assert np.abs(states("dense") - first).max() > 0.1
    np.testing.assert_array_equal(states("dense", seed=1), states("dense"))  # not training


@pytest.mark.parametrize("variant", ["bert", "no segments, no pooler", "factorised, one shared block"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_selected_states_are_those_of_all(toy_config, toy_batch, layout, variant):
    """The masks of dropout too; positions repeated, out of order, or in padding."""
    config = dataclasses.replace(toy_config, **VARIANTS[variant])
    model, x = scramble(BertEncoder(config, layout)), encoder_input(toy_batch)
    positions = np.array([[3, 0, 3, 6], [1, 2, 0, 0], [4, 1, 0, 0]], "int32")
    for options in ({}, {"training": True, "seed": 1}):
        full = model(x, **options)
        some = model(x, positions=positions, **options)
        expected = np.take_along_axis(full["sequence_output"].numpy(), positions[..., None], 1)
        np.testing.assert_allclose(some["sequence_output"], expected, atol=1e-5)
        np.testing.assert_allclose(some["pooled_output"], full["pooled_output"], atol=1e-5)
    padding = model(x, positions=np.full((3, 1), LENGTH - 1, "int32"))["sequence_output"]
    assert np.isfinite(padding.numpy()).all()


def test_the_last_block_computes_selected_states_alone(toy_config, toy_batch):
    """Rows of its feed-forward products: one for each selected token and one for the first."""
    config = dataclasses.replace(toy_config, num_hidden_layers=1)
    model, x = BertEncoder(config), encoder_input(toy_batch)
    positions = np.ones((len(x["token_ids"]), 2), "int32")
    for options, tokens in (({}, LENGTH), ({"positions": positions}, 3)):
        graph = tf.function(functools.partial(model, **options)).get_concrete_function(x).graph
        shapes = [tuple(op.outputs[0].shape) for op in graph.get_operations() if op.type == "MatMul"]
        assert (len(positions) * tokens, config.intermediate_size) in shapes


def test_layers_of_one_block_drop_different_units(toy_config, toy_batch):
    """Shared weights must not share masks: layer 2 of an ALBERT draws anew."""
    one = dataclasses.replace(toy_config, num_hidden_groups=1)
    model = scramble(BertEncoder(one))
    seeds = []
    block = model.blocks[0]
    call = block.call

    def spy(states, seed, **options):
        seeds.append(int(seed))
        return call(states, seed=seed, **options)

    block.call = spy
    model(encoder_input(toy_batch), training=True, seed=4)
    assert len(set(seeds)) == 2


def test_calls_in_training_are_counted_and_saved(toy_config, toy_batch, tmp_path):
    model, x = scramble(BertEncoder(toy_config)), encoder_input(toy_batch)
    start = int(model.dropout_seed)
    first = model(x, training=True)["pooled_output"].numpy()
    model(x)  # inference does not count
    assert int(model.dropout_seed) == start + 1
    model.save(tmp_path / "encoder.keras")
    due = model(x, training=True)["pooled_output"].numpy()
    loaded = keras.models.load_model(tmp_path / "encoder.keras")
    np.testing.assert_array_equal(loaded(x, training=True)["pooled_output"], due)
    assert np.abs(due - first).max() > 0.01


def test_models_draw_masks_of_their_own_from_the_global_seed(toy_config):
    seeds = []
    for global_seed in (1, 1, 2):
        keras.utils.set_random_seed(global_seed)
        seeds += [int(BertEncoder(toy_config).resolve_seed(True, None)) for _ in range(2)]
    assert seeds[:2] == seeds[2:4]
    assert len(set(seeds)) == 4


def test_refusals(toy_config, toy_batch):
    x = encoder_input(toy_batch)
    with pytest.raises(ValueError, match="must hold `padding_mask`. Received: .'token_ids'"):
        BertEncoder(toy_config)({"token_ids": x["token_ids"]})
    with pytest.raises(ValueError, match="dense, unpadded. Received: 'padded'"):
        BertEncoder(toy_config, layout="padded")
    long = {name: np.ones((1, 11), "int32") for name in x}
    with pytest.raises(ValueError, match="10 tokens. Received: 11 tokens"):
        BertEncoder(toy_config)(long)


def test_keras_nlp_takes_our_inputs(toy_batch):
    """The batch vocabulary is keras-hub's: the same dict runs through its BertBackbone."""
    import keras_nlp  # takes seconds

    backbone = keras_nlp.models.BertBackbone(
        VOCAB, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8, max_sequence_length=8
    )
    out = backbone(encoder_input(toy_batch))
    assert out.keys() == {"sequence_output", "pooled_output"}
    assert out["sequence_output"].shape == (3, LENGTH, 8)


# --- several examples in a row


def packed_batch():
    """(rows that hold 2, 1 and 3 examples of 7 tokens at most, the examples they hold)"""
    rng = np.random.default_rng(3)
    members = [[4, 3], [7], [2, 1, 3]]
    x = {name: np.zeros((3, 8), "int32") for name in ("token_ids", "segment_ids", "example_ids")}
    x |= {"position_ids": np.zeros((3, 8), "int32"), "first_slots": np.zeros((3, 3), "int32")}
    for row, lengths in enumerate(members):
        start = 0
        for number, length in enumerate(lengths):
            slots = slice(start, start + length)
            x["token_ids"][row, slots] = rng.integers(1, VOCAB, length)
            x["segment_ids"][row, slots] = np.arange(length) > length // 2
            x["example_ids"][row, slots] = number + 1
            x["position_ids"][row, slots] = np.arange(length)
            x["first_slots"][row, number] = start
            start += length
    x["padding_mask"] = (x["example_ids"] > 0).astype("int32")
    return x, members


@pytest.mark.parametrize("jit_compile", [False, True])
def test_examples_of_a_packed_row_do_not_see_each_other(toy_config, jit_compile):
    """Each has the states and the pooled vector that it has alone."""
    config = dataclasses.replace(toy_config, position_offset=1)
    model, (x, members) = scramble(BertEncoder(config)), packed_batch()
    weights = weights_of(model)
    for positions in (None, np.zeros((3, 0), "int32"), np.array([[5, 0], [6, 6], [2, 4]], "int32")):
        call = tf.function(functools.partial(model, positions=positions), jit_compile=jit_compile)
        out = {name: value.numpy() for name, value in call(x).items()}
        assert out["pooled_output"].shape == (3, 3, config.hidden_size)
        for row, lengths in enumerate(members):
            states = []
            for number in range(len(lengths)):
                slots = x["example_ids"][row] == number + 1
                ids = (x[name][row, slots] for name in ("token_ids", "segment_ids"))
                alone, pooled = encode_row(weights, config, *ids)
                np.testing.assert_allclose(out["pooled_output"][row, number], pooled, atol=1e-5)
                states.extend(alone)
            wanted = np.arange(len(states)) if positions is None else positions[row]
            got = out["sequence_output"][row, : len(wanted)]
            np.testing.assert_allclose(got, np.array(states)[wanted].reshape(got.shape), atol=1e-5)


def test_packed_rows_need_all_of_their_fields_and_the_dense_layout(toy_config):
    x, _ = packed_batch()
    with pytest.raises(ValueError, match="the dense layout. Received: .*layout='unpadded'"):
        BertEncoder(toy_config, "unpadded")(x)
    del x["position_ids"]
    with pytest.raises(ValueError, match="must have example_ids, position_ids and first_slots"):
        BertEncoder(toy_config)(x)
