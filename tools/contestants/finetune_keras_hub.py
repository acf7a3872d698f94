"""Fine-tuning with keras-hub's text classifier under `fit`; texts are tokenized once, before the clock.

By itself it pads all rows to one length. Here that is the longest of the training data; and with the
setting "grouped" tf.data makes batches of rows of similar length, as transformers' Trainer does.
"""

import keras
import keras_hub
import numpy as np
import tensorflow as tf
from keras_parts import Clock, product  # noqa: F401  the contestant runs the product

PACKAGES = ("keras-hub", "tensorflow", "keras")
SORTED_BATCHES = 50  # together, as in transformers


def train(job, meter):
    """(number, prediction) of each row, of the last epoch's model."""
    if job["kind"] not in ("classification", "regression"):
        raise ValueError(f"keras-hub must have a model for this kind of task. Received: {job['kind']}.")
    keras.utils.set_random_seed(job["seed"])
    if job["dtype"] == "bfloat16":
        keras.config.set_dtype_policy("mixed_bfloat16")
    recipe, names = job["recipe"], job["label_names"]
    tokenizer = keras_hub.models.BertTokenizer.from_preset(job["init"])
    backbone = keras_hub.models.BertBackbone.from_preset(job["init"])
    pack = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, recipe["max_length"])
    x, dev = (read(pack, job["rows"][split]["texts"]) for split in ("train", "dev"))
    labels = np.array(job["rows"]["train"]["labels"])[:, None]
    batch_size, epochs = recipe["batch_size"], recipe["epochs"]
    steps = -(-len(labels) // batch_size)
    schedule = WarmupDecay(
        recipe["learning_rate"], round(recipe["warmup_rate"] * steps * epochs), steps * epochs
    )
    model = keras_hub.models.BertTextClassifier(
        backbone, len(names) if names else 1, preprocessor=None, dropout=backbone.dropout
    )
    optimizer = keras.optimizers.AdamW(
        schedule,
        recipe["weight_decay"],
        epsilon=1e-6,  # BERT's
        global_clipnorm=recipe["global_clipnorm"] or None,
    )
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True) if names else "mse"
    model.compile(optimizer, loss, metrics=[], jit_compile=job["setting"] == "compiled")
    options = {"epochs": epochs, "callbacks": [Clock(meter)], "verbose": 0}
    if job["setting"] == "grouped":
        model.fit(grouped(x, labels, batch_size), **options)
    else:
        model.fit(x, labels, batch_size, **options)
    logits = model.predict(dev, batch_size=batch_size, verbose=0)
    if names:
        return [(number, {"label": names[row.argmax()]}) for number, row in enumerate(logits)]
    return [(number, {"score": float(row[0])}) for number, row in enumerate(logits)]


def read(pack, texts):
    """Arrays of texts or pairs, as long as the longest of them."""
    texts = tuple(map(np.array, texts))
    # with labels, or it takes a pair for texts and labels, and drops the second text
    x, _ = pack(texts if len(texts) > 1 else texts[0], y=np.zeros(len(texts[0])))
    longest = int(np.sum(x["padding_mask"], axis=-1).max())
    return {name: np.asarray(array)[:, :longest] for name, array in x.items()}


def grouped(x, labels, batch_size):
    """A dataset of batches of rows of similar length, cut to the longest of each."""
    lengths = tf.constant(x["padding_mask"].sum(-1))
    count = len(labels)

    def by_length(numbers):
        return tf.gather(numbers, tf.argsort(tf.gather(lengths, numbers)))

    def batch(numbers):
        longest = tf.reduce_max(tf.gather(lengths, numbers))
        rows = {name: tf.gather(array, numbers)[:, :longest] for name, array in x.items()}
        return rows, tf.gather(labels, numbers)

    dataset = tf.data.Dataset.range(count).shuffle(count)
    dataset = dataset.batch(SORTED_BATCHES * batch_size).map(by_length).unbatch().batch(batch_size)
    steps = -(-count // batch_size)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(steps))
    return dataset.shuffle(SORTED_BATCHES).map(batch).prefetch(2)


class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """The linear schedule of all contestants."""

    def __init__(self, peak, warmup, steps):
        self.peak, self.warmup, self.steps = peak, warmup, steps

    def __call__(self, step):
        step = keras.ops.cast(step, "float32")
        rise = (step + 1) / max(self.warmup, 1)
        fall = (self.steps - step) / max(self.steps - self.warmup, 1)
        return self.peak * keras.ops.minimum(rise, fall)
