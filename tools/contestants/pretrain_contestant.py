"""A contestant of `benchmark.py pretrain`: a process that trains one model of one library.

    python pretrain_contestant.py '{"library": "torch", "dtype": "bfloat16", "compiled": false, ...}'

`benchmarks/pretrain_speed.py` starts it, with the interpreter of an environment in which the library is
installed, and writes a number of steps on each line; the answer is a line of JSON: seconds of wall and
CPU time (of all threads), and the last loss. Nothing runs in between. Imports stand where they are
used: each environment has its own.
"""

import json
import os
import sys
import time

import numpy as np


def pretraining_batch(vocabulary, rows, length, predictions, fill):
    """Random tokens; a share `fill` of the slots is real, rows differ in length around it."""
    rng = np.random.default_rng(0)
    spread = min(fill, 1 - fill)
    lengths = (length * rng.uniform(fill - spread, fill + spread, rows)).round().clip(predictions + 2)
    mask = np.arange(length) < lengths[:, None]
    positions = [np.sort(rng.permutation(int(n) - 2)[:predictions]) + 1 for n in lengths]
    return {
        "token_ids": np.where(mask, rng.integers(1000, vocabulary, (rows, length)), 0).astype("int32"),
        "padding_mask": mask.astype("int32"),
        "segment_ids": np.zeros((rows, length), "int32"),
        "mask_positions": np.array(positions, "int32"),
        "mask_ids": rng.integers(1000, vocabulary, (rows, predictions)).astype("int32"),
        "sentence": rng.integers(0, 2, rows).astype("int32"),
    }


def endless(batch):
    """The same batch again and again, without tf.data's autotuning, which would wait for its thread."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.Dataset.from_tensors(batch).repeat().with_options(options)


def keras_bert(size, batch, dtype, compiled, layout="dense"):
    """Our Trainer."""
    from keras_bert import AdamW, BertPretrainer, EncoderConfig
    from keras_bert.training.trainer import Trainer

    policy = "mixed_bfloat16" if dtype == "bfloat16" else dtype
    model = BertPretrainer(EncoderConfig(**size), layout=layout, dtype=policy)
    model.compile(AdamW(1e-4))
    trainer = Trainer(model, jit_compile=compiled)
    x = {name: value for name, value in batch.items() if name not in ("mask_ids", "sentence")}
    y = {"masked_lm": batch["mask_ids"], "sentence": batch["sentence"]}
    weights = {name: np.ones_like(labels, "float32") for name, labels in y.items()}
    dataset = endless((x, y, weights))

    def run(steps):
        trainer.fit(lambda start, context: dataset, trainer.steps_done + steps)
        return float(trainer.step_losses[-1])

    return run


def keras_hub(size, batch, dtype, compiled):
    """BertMaskedLM under `fit`, as its guides do; it has no sentence objective and less to compute."""
    import keras
    import keras_hub

    backbone = keras_hub.models.BertBackbone(
        size["vocab_size"],
        size["num_hidden_layers"],
        size["num_attention_heads"],
        size["hidden_size"],
        size["intermediate_size"],
        max_sequence_length=512,
        dtype="mixed_bfloat16" if dtype == "bfloat16" else dtype,
    )
    model = keras_hub.models.BertMaskedLM(backbone, preprocessor=None)
    model.compile(
        optimizer=keras.optimizers.AdamW(1e-4, global_clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()],
        jit_compile=compiled,
    )
    x = {name: value for name, value in batch.items() if name not in ("mask_ids", "sentence")}
    dataset = endless((x, batch["mask_ids"], np.ones_like(batch["mask_ids"], "float32")))

    def run(steps):
        history = model.fit(dataset, steps_per_epoch=steps, shuffle=False, verbose=0)
        return history.history["loss"][-1]

    return run


def model_garden(size, batch, dtype, compiled):
    """BertPretrainerV2, its task's losses and train step, its AdamW, which clips at norm 1."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf
    import tf_keras
    from official.modeling.optimization.legacy_adamw import AdamWeightDecay
    from official.nlp.modeling import layers, models, networks

    if dtype == "bfloat16":
        tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    encoder = networks.BertEncoderV2(
        vocab_size=size["vocab_size"],
        hidden_size=size["hidden_size"],
        num_layers=size["num_hidden_layers"],
        num_attention_heads=size["num_attention_heads"],
        inner_dim=size["intermediate_size"],
        type_vocab_size=2,
    )
    head = layers.ClassificationHead(size["hidden_size"], 2, dropout_rate=0.1, name="next_sentence")
    model = models.BertPretrainerV2(encoder, mlm_activation="gelu", classification_heads=[head])
    optimizer = AdamWeightDecay(
        1e-4, weight_decay_rate=0.01, exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"]
    )
    x = {
        "input_word_ids": batch["token_ids"],
        "input_mask": batch["padding_mask"],
        "input_type_ids": batch["segment_ids"],
        "masked_lm_positions": batch["mask_positions"],
    }
    accuracy = tf_keras.metrics.SparseCategoricalAccuracy()
    cross_entropy = tf_keras.losses.sparse_categorical_crossentropy

    @tf.function(jit_compile=compiled)
    def step(x, words, sentences):
        with tf.GradientTape() as tape:
            out = model(x, training=True)
            logits = tf.cast(out["mlm_logits"], tf.float32)
            loss = tf.reduce_mean(cross_entropy(words, logits, from_logits=True))
            logits = tf.cast(out["next_sentence"], tf.float32)
            loss += tf.reduce_mean(cross_entropy(sentences, logits, from_logits=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        accuracy.update_state(words, out["mlm_logits"])
        return loss

    batches = iter(endless((x, batch["mask_ids"], batch["sentence"])))

    def run(steps):
        for _ in range(steps):
            loss = step(*next(batches)).numpy()
        return float(loss)

    return run


def torch(size, batch, dtype, compiled):
    """Hugging Face's BertForPreTraining with SDPA and the fused AdamW; it scores every position."""
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    config = transformers.BertConfig(**size, attn_implementation="sdpa")
    model = transformers.BertForPreTraining(config).train()
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    labels = np.full(batch["token_ids"].shape, -100)
    np.put_along_axis(labels, batch["mask_positions"], batch["mask_ids"], axis=1)
    x = {
        "input_ids": batch["token_ids"],
        "attention_mask": batch["padding_mask"],
        "token_type_ids": batch["segment_ids"],
        "labels": labels,
        "next_sentence_label": batch["sentence"],
    }
    x = {name: torch.tensor(value.astype("int64")) for name, value in x.items()}

    def run(steps):
        for _ in range(steps):
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                loss = forward(**x).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    return run


def matrix_product(size, batch, dtype, compiled):
    """The machine's peak: a product of two square matrices of 4,096 rows through TensorFlow."""
    import tensorflow as tf

    a, b = (tf.cast(tf.random.normal((4096, 4096)), dtype) for _ in range(2))
    product = tf.function(tf.matmul)

    def run(steps):
        for _ in range(steps):
            corner = product(a, b)[0, 0]
        return float(corner)

    return run


LIBRARIES = {
    "keras_bert": keras_bert,
    "keras-hub": keras_hub,
    "garden": model_garden,
    "torch": torch,
    "peak": matrix_product,
}


def main():
    options = json.loads(sys.argv[1])
    # the answers' own stream: libraries may print what they like
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    batch = pretraining_batch(options["size"]["vocab_size"], **options["shape"])
    run = LIBRARIES[options["library"]](
        options["size"], batch, options["dtype"], options["compiled"], **options["extra"]
    )
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        loss = run(int(line))
        turn = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "loss": loss}
        print(json.dumps(turn), file=answers, flush=True)


if __name__ == "__main__":
    main()
