"""What tests of TensorFlow's checkpoints share: outputs against a fixture's, and other tensors."""

import numpy as np
import tensorflow as tf

import keras_bert


def inputs_of(model, answers):
    """A fixture's inputs, with a prediction at every token where the model makes any."""
    x = {name: answers[name] for name in ("token_ids", "padding_mask", "segment_ids")}
    if isinstance(model, keras_bert.BertPretrainer):
        x["mask_positions"] = np.tile(np.arange(7, dtype="int32"), (3, 1))
    return x


def differences(model, answers):
    """{output: the largest difference between ours and the library's, over real tokens}"""
    x = inputs_of(model, answers)
    found = model(x)
    found = found if isinstance(found, dict) else {"logits": found}
    for name in ("masked_lm", "sentence"):
        if name in found:
            found[f"{name}_log_probs"] = tf.nn.log_softmax(found[name])
    is_token, largest = x["padding_mask"].astype(bool), {}
    for name in sorted(set(answers) & set(found) - set(x)):
        difference = np.abs(np.asarray(found[name], "float64") - answers[name])
        largest[name] = (
            difference[is_token].max() if difference.shape[:2] == (3, 7) else difference.max()
        )
    return largest


def rewrite(path, change):
    """Writes a directory's checkpoint again, with what `change` makes of {name: array}."""
    (index,) = path.glob("*.index")
    prefix = str(index.with_suffix(""))
    reader = tf.train.load_checkpoint(prefix)
    arrays = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    change(arrays)
    names = sorted(arrays)
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[arrays[name] for name in names],
    )
