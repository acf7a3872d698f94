"""keras_bert.models.pretrainer: values and gradients against numpy, training, saving."""

import dataclasses
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import scramble
from reference import dense, encode_row, masked_lm, weights_of

from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.text.wordpiece import WordPieceTokenizer
from keras_bert.training.optimizers import AdamW
from keras_bert.training.schedules import WarmupDecay

LAYOUTS = ["dense", "unpadded"]
DUMMY_HEAD = {"sentence/kernel": np.zeros((8, 2)), "sentence/bias": np.zeros(2)}


def reference_outputs(weights, config, x):
    """Logits of the two heads in float64, row by row without padding."""
    table = weights["embeddings/word_table"]
    words, sentences = [], []
    for row, mask in enumerate(x["padding_mask"].astype(bool)):
        states, pooled = encode_row(
            weights, config, x["token_ids"][row, mask], x["segment_ids"][row, mask]
        )
        words.append(masked_lm(states, x["mask_positions"][row], weights, config, table))
        sentences.append(dense(pooled, weights, "sentence"))
    return np.array(words), np.array(sentences)


def cross_entropy(logits, labels, weights):
    logits = logits - logits.max(-1, keepdims=True)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -np.take_along_axis(log_probs, labels[..., None], -1)[..., 0]
    return (losses * weights).sum() / weights.sum()


def reference_loss(weights, config, batch):
    x, y, w = batch
    words, sentences = reference_outputs(weights, config, x)
    return cross_entropy(words, y["masked_lm"], w["masked_lm"]) + cross_entropy(
        sentences, y["sentence"], w["sentence"]
    )


def keras_loss(model, batch, **options):
    x, y, w = batch
    return model.compute_loss(x, y, model(x, **options), w)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_and_loss_match_the_reference(toy_config, toy_batch, layout):
    for config in (toy_config, dataclasses.replace(toy_config, embedding_size=5)):
        model = scramble(BertPretrainer(config, layout))
        words, sentences = reference_outputs(weights_of(model), config, toy_batch[0])
        out = model(toy_batch[0])
        real = toy_batch[2]["masked_lm"] > 0
        np.testing.assert_allclose(out["masked_lm"].numpy()[real], words[real], atol=1e-5)
        np.testing.assert_allclose(out["sentence"], sentences, atol=1e-5)
        loss = reference_loss(weights_of(model), config, toy_batch)
        assert float(keras_loss(model, toy_batch)) == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_match_finite_differences(toy_config, toy_batch, layout):
    """Central differences of the float64 reference, at random entries of every weight."""
    model = scramble(BertPretrainer(toy_config, layout))
    variables = {v.path.removeprefix("encoder/"): v.value for v in model.trainable_variables}
    with tf.GradientTape() as tape:
        loss = keras_loss(model, toy_batch)
    gradients = tape.gradient(loss, variables)
    rng, weights, step, checked = np.random.default_rng(2), weights_of(model), 1e-5, 0
    for path, gradient in gradients.items():
        gradient = tf.convert_to_tensor(gradient).numpy()
        entries = {tuple(rng.integers(0, gradient.shape)) for _ in range(4)}
        entries.add(np.unravel_index(np.abs(gradient).argmax(), gradient.shape))
        for entry in entries:
            value, losses = weights[path][entry], []
            for change in (step, -step):
                weights[path][entry] = value + change
                losses.append(reference_loss(weights, toy_config, toy_batch))
            weights[path][entry] = value
            slope = (losses[0] - losses[1]) / (2 * step)
            assert gradient[entry] == pytest.approx(slope, abs=1e-5), (path, entry)
            checked += abs(slope) > 1e-4
    assert checked > len(gradients)  # not a comparison of zeros


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"], indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_half_precision_trains_and_stays_close(toy_config, toy_batch, layout, policy):
    model = scramble(BertPretrainer(toy_config, layout))
    assert {v.dtype for v in model.trainable_variables} == {"float32"}
    assert {str(value.dtype.name) for value in model(toy_batch[0]).values()} == {"float32"}
    expected = reference_loss(weights_of(model), toy_config, toy_batch)
    assert float(keras_loss(model, toy_batch)) == pytest.approx(expected, rel=0.05)
    model.compile(AdamW(1e-3))
    dataset = tf.data.Dataset.from_tensors(toy_batch).repeat(8)
    history = model.fit(dataset, epochs=2, verbose=0).history["masked_lm_loss"]
    assert np.isfinite(history).all()
    assert history[1] < history[0]
    assert all(np.isfinite(v.numpy()).all() for v in model.trainable_variables)


def test_loss_knows_neither_padding_nor_max_predictions(toy_config, toy_batch):
    model = scramble(BertPretrainer(toy_config))
    x, y, w = toy_batch
    wide = (
        {
            **{name: np.pad(value, [(0, 0), (0, 3)]) for name, value in x.items()},
            "mask_positions": np.pad(x["mask_positions"], [(0, 0), (0, 6)]),
        },
        {**y, "masked_lm": np.pad(y["masked_lm"], [(0, 0), (0, 6)])},
        {**w, "masked_lm": np.pad(w["masked_lm"], [(0, 0), (0, 6)])},
    )
    assert float(keras_loss(model, wide)) == pytest.approx(
        float(keras_loss(model, toy_batch)), abs=1e-5
    )


def test_nothing_to_predict_gives_loss_zero_and_finite_gradients(toy_config, toy_batch):
    model = scramble(BertPretrainer(toy_config))
    x, y, w = toy_batch
    nothing = {name: np.zeros_like(value) for name, value in w.items()}
    variables = [v.value for v in model.trainable_variables]
    with tf.GradientTape() as tape:
        loss = keras_loss(model, (x, y, nothing))
    assert float(loss) == 0
    for gradient in tape.gradient(loss, variables):
        np.testing.assert_array_equal(tf.convert_to_tensor(gradient), 0)


def test_figures_of_evaluate_are_sums_over_weights(toy_config, toy_batch):
    """Batches of unequal weight: a mean of batch means would differ."""
    model = scramble(BertPretrainer(toy_config))
    model.compile(AdamW(1e-3))
    x, y, w = toy_batch
    light = {**w, "masked_lm": np.array([[0, 0], [0, 0], [1, 0]], "float32")}
    batches = [toy_batch, (x, y, light), toy_batch]
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=tf.data.Dataset.from_tensors(toy_batch).element_spec
    ).apply(tf.data.experimental.assert_cardinality(3))
    figures = model.evaluate(dataset, return_dict=True, verbose=0)
    words, _ = reference_outputs(weights_of(model), toy_config, x)
    labels = y["masked_lm"]
    masks = [batch[2]["masked_lm"] for batch in batches]
    sums = [cross_entropy(words, labels, mask) * mask.sum() for mask in masks]
    right = [((words.argmax(-1) == labels) * mask).sum() for mask in masks]
    total = sum(mask.sum() for mask in masks)
    assert figures["masked_lm_loss"] == pytest.approx(sum(sums) / total, abs=1e-5)
    assert figures["masked_lm_accuracy"] == pytest.approx(sum(right) / total, abs=1e-6)


def test_a_fresh_process_trains_on_as_if_never_interrupted(toy_config, toy_batch, tmp_path):
    """`.keras` without custom_objects: weights, optimizer, exclusions, dropout masks."""
    model = BertPretrainer(toy_config)
    model.compile(AdamW(WarmupDecay(0.05, 2, 20)))
    dataset = tf.data.Dataset.from_tensors(toy_batch).repeat(3)
    model.fit(dataset, verbose=0)
    model.save(tmp_path / "model.keras")
    parts = zip("xyw", toy_batch, strict=True)
    arrays = {f"{part}_{name}": value for part, values in parts for name, value in values.items()}
    np.savez(tmp_path / "batch.npz", **arrays)
    script = tmp_path / "go_on.py"
    script.write_text(
        "import sys, numpy as np, keras, tensorflow as tf, keras_bert\n"
        "folder = sys.argv[1]\n"
        "arrays = dict(np.load(folder + '/batch.npz'))\n"
        "pick = lambda p: {k[2:]: v for k, v in arrays.items() if k.startswith(p)}\n"
        "data = tf.data.Dataset.from_tensors((pick('x_'), pick('y_'), pick('w_'))).repeat(2)\n"
        "model = keras.models.load_model(folder + '/model.keras')\n"
        "model.fit(data, verbose=0)\n"
        "names = [f'{i}' for i in range(len(model.weights))]\n"
        "np.savez(folder + '/after.npz', **dict(zip(names, [w.numpy() for w in model.weights])))\n"
    )
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)
    model.fit(dataset.take(2).apply(tf.data.experimental.assert_cardinality(2)), verbose=0)
    after = np.load(tmp_path / "after.npz")
    for index, weight in enumerate(model.weights):
        np.testing.assert_array_equal(after[str(index)], weight.numpy(), err_msg=weight.path)


def test_without_a_sentence_head_the_words_alone_are_trained(toy_config, toy_batch, tmp_path):
    model = scramble(BertPretrainer(toy_config, sentence_head=False))
    x, y, w = toy_batch
    words, _ = reference_outputs({**weights_of(model), **DUMMY_HEAD}, toy_config, x)
    out = model(x)
    assert list(out) == ["masked_lm"]
    real = w["masked_lm"] > 0
    np.testing.assert_allclose(out["masked_lm"].numpy()[real], words[real], atol=1e-5)
    batch = x, {"masked_lm": y["masked_lm"]}, {"masked_lm": w["masked_lm"]}
    expected = cross_entropy(words, y["masked_lm"], w["masked_lm"])
    assert float(keras_loss(model, batch)) == pytest.approx(expected, abs=1e-5)

    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(x)["masked_lm"], out["masked_lm"])
    assert len(BertPretrainer(toy_config).weights) == len(again.weights) + 2


@pytest.mark.filterwarnings("ignore:Gradients do not exist for variables .'encoder/pooler")
@pytest.mark.parametrize("use_pooler", [True, False])
def test_training_without_a_sentence_head(toy_config, toy_batch, use_pooler):
    """A pooler, where there is one, stays as it is: no gradient, no decay."""
    config = dataclasses.replace(toy_config, use_pooler=use_pooler)
    model = BertPretrainer(config, sentence_head=False)
    model.compile(AdamW(1e-2, weight_decay=0.5))
    x, y, w = toy_batch
    batch = x, {"masked_lm": y["masked_lm"]}, {"masked_lm": w["masked_lm"]}
    before = {v.path: v.numpy() for v in model.trainable_variables}
    model.fit(tf.data.Dataset.from_tensors(batch).repeat(3), verbose=0)
    same = {v.path for v in model.trainable_variables if (v.numpy() == before[v.path]).all()}
    pooler = {path for path in before if "pooler" in path}
    assert same == pooler
    assert bool(pooler) == use_pooler


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (1, r"one entry for each output.*labels for \['masked_lm'\], none for \['sentence'\]"),
        (2, r"a weight for every label.*none for \['sentence'\]"),
    ],
)
def test_missing_labels_and_weights_are_named(toy_config, toy_batch, part, words):
    batch = [dict(values) for values in toy_batch]
    del batch[part]["sentence"]
    model = BertPretrainer(toy_config)
    with pytest.raises(ValueError, match=words):
        keras_loss(model, batch)
    model.compile(AdamW(1e-3))
    with pytest.raises(ValueError, match=words):
        model.fit(tf.data.Dataset.from_tensors(tuple(batch)), verbose=0)


def test_missing_positions_are_named(toy_config, toy_batch):
    x = {name: value for name, value in toy_batch[0].items() if name != "mask_positions"}
    with pytest.raises(ValueError, match="must hold `mask_positions`"):
        BertPretrainer(toy_config)(x)


def test_layout_survives_saving(toy_config, tmp_path):
    BertPretrainer(toy_config, layout="unpadded").save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").encoder.layout == "unpadded"


def test_a_tokenizer_of_another_vocabulary_is_refused(toy_config):
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    with pytest.raises(ValueError, match=f"Received: 6 entries, {toy_config.vocab_size} rows"):
        BertPretrainer(toy_config, tokenizer=tokenizer)


def test_strings_are_refused_with_what_makes_rows_of_them(toy_config):
    model = BertPretrainer(toy_config)
    model.compile()
    with pytest.raises(ValueError, match="PretrainingData makes them of texts.*Received: strings"):
        model.fit(["a text", "another"])
