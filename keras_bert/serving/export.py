"""SavedModels that take strings and return answers: a wrapper around a model's own text function."""

import posixpath

import tensorflow as tf

from keras_bert.models.loading import check_vocabulary


def export_saved_model(model, tokenizer, base_dir):
    """Writes `base_dir/<version>/`, as TF Serving expects it, and returns that path.

    The signature `serving_default` is the model's `text_outputs`: `text` (B,) strings in, named results
    out. The vocabulary is inside the graph. The directory is written beside its place and renamed: on
    file systems, a server that watches `base_dir` never sees half of it (object stores rename file by
    file).

    Args:
        model: A model of this package with `text_outputs`.
        tokenizer: The tokenizer whose vocabulary the model was trained on.
        base_dir: Directory of versions; the next free number is taken.

    Raises:
        ValueError: When tokenizer and model disagree about the size of the vocabulary.
    """
    check_vocabulary(tokenizer, model.config, may_be_smaller=tokenizer is model.tokenizer)
    base_dir = str(base_dir)
    tf.io.gfile.makedirs(base_dir)
    taken = [name.rstrip("/") for name in tf.io.gfile.listdir(base_dir)]
    version = 1 + max((int(name) for name in taken if name.isdigit()), default=0)
    final = posixpath.join(base_dir, str(version))
    draft = posixpath.join(base_dir, f"{version}.draft")
    if tf.io.gfile.exists(draft):  # left by an export that was interrupted
        tf.io.gfile.rmtree(draft)
    module = _TextModule(model, tokenizer)
    tf.saved_model.save(module, draft, signatures={"serving_default": module.serve})
    tf.io.gfile.rename(draft, final)
    return final


class _TextModule(tf.Module):
    """Holds no more of a model than its variables: layers would bring functions of their own along."""

    def __init__(self, model, tokenizer):
        super().__init__()
        self.model_variables = [weight.value for weight in model.weights]
        self.tokenizer = tokenizer

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def serve(text):
            return model.text_outputs(tokenizer, text)

        self.serve = serve
