"""Losses, one number per element: the weights of a batch decide what counts, never its shape."""

from keras import ops


def sparse_cross_entropy(labels, logits):
    """Cross-entropy in nats of integer labels under logits.

    Shapes (C classes):
        labels   (...)     int
        logits   (..., C)  float
        returns  (...)     float32
    """
    return ops.sparse_categorical_crossentropy(labels, ops.cast(logits, "float32"), from_logits=True)


def weighted_mean(values, weights=None):
    """sum(values * weights) / sum(weights); 0, with finite gradients, where all weights are 0.

    Keras's default reduction divides by the number of elements instead, so that a masked LM's loss and
    gradients shrink with every padded prediction.

    Shapes:
        values   (...)  float
        weights  (...)  float, or None: all 1
        returns  ()     float
    """
    if weights is None:
        return ops.mean(values)
    weights = ops.cast(weights, values.dtype)
    return ops.divide_no_nan(ops.sum(values * weights), ops.sum(weights))
