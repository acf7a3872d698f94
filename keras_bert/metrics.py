"""Metrics, one number per element; their sums over a data set are divided once, by the weights."""

from keras import ops


def sparse_accuracy(labels, logits):
    """1.0 where the label's logit is the highest, else 0.0; a tie of n classes counts 1 / n.

    Comparing with the maximum is cheaper than Keras's argmax, and has no favourite among equals.

    Shapes (C classes):
        labels   (...)     int
        logits   (..., C)  float
        returns  (...)     float32
    """
    label_logits = ops.take_along_axis(logits, ops.cast(labels, "int32")[..., None], axis=-1)[..., 0]
    best = ops.max(logits, axis=-1)
    ties = ops.sum(ops.cast(logits == best[..., None], "float32"), axis=-1)
    return ops.where(label_logits == best, 1 / ops.maximum(ties, 1.0), 0.0)


def binary_accuracy(labels, logits):
    """1.0 where the sign of the logit tells 1 from 0, else 0.0; a logit of 0 counts 1/2.

    Shapes:
        labels   (...)  int or float, 0 or 1
        logits   (...)  float
        returns  (...)  float32
    """
    sign = ops.sign(ops.cast(logits, "float32"))
    return 0.5 + sign * (ops.cast(labels, "float32") - 0.5)
