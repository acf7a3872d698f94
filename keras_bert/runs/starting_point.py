"""What a pretraining run starts from: a finished run, or a released checkpoint."""

import posixpath

import keras
import tensorflow as tf

from keras_bert.checkpoints.formats import local_directory, open_checkpoint
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.models.resizing import cut_vocabulary
from keras_bert.text.pretrained import load_tokenizer


def read_checkpoint(path):
    """The BertPretrainer of a finished run or of a released checkpoint, with its tokenizer."""
    path = local_directory(path)
    finished = posixpath.join(path, "model.keras")
    if tf.io.gfile.exists(finished):
        model = keras.models.load_model(finished, compile=False)
        model.tokenizer = load_tokenizer(path)
        return model
    try:
        has_sentence_head = open_checkpoint(path).head == "pretraining"
    except ValueError as error:
        raise ValueError(
            "`init_from` must be the directory of a finished run (with model.keras) or a checkpoint: "
            f"{error}"
        ) from None
    model = BertPretrainer.from_pretrained(path, sentence_head=has_sentence_head)
    if model.tokenizer is None:
        raise ValueError(f"`init_from` must hold a tokenizer. Received: {path}.")
    rows, entries = model.config.vocab_size, model.tokenizer.vocabulary_size
    if entries < rows:
        print(f"The word table has {rows:,} rows for {entries:,} entries: the others are left behind.")
        model = cut_vocabulary(model)
    return model


def check_rules(old_tokenizer, new_tokenizer):
    """Refuses records whose tokenizer reads text otherwise; a longer vocabulary is fine."""
    old, new = (
        {**tokenizer.get_config(), "vocabulary": None, "class": type(tokenizer).__name__}
        for tokenizer in (old_tokenizer, new_tokenizer)
    )
    changed = [
        f"{name} was {old[name]!r}, is {new.get(name)!r}" for name in old if old[name] != new.get(name)
    ]
    if changed:
        raise ValueError(
            "The tokenizer of `records` must cut text as that of `init_from` does. "
            f"Received: {', '.join(changed)}."
        )


def copy_weights(source, model):
    """Copies weights by path; a head that one of them lacks is named."""
    values = {weight.path: weight for weight in source.weights}
    missing = [weight.path for weight in model.weights if weight.path not in values]
    wanted = {weight.path for weight in model.weights}
    unused = [path for path in values if path not in wanted]
    heads = ("encoder/pooler", "sentence")
    if not all(path.startswith(heads) for path in missing + unused):
        raise ValueError(
            "The model of `init_from` must have the same encoder. "
            f"Received: without {missing}, with {unused} beside."
        )
    for weight in model.weights:
        if weight.path in values:
            weight.assign(values[weight.path].numpy())
    if missing:
        print(f"Newly initialised: {', '.join(missing)}")
    if unused:
        print(f"Left behind: {', '.join(unused)}")
