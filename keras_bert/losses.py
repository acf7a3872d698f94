"""Losses, one number per element: the weights of a batch decide what counts, never its shape."""

from keras import ops


def sparse_cross_entropy(labels, logits, smoothing=0.0, focal_gamma=0.0):
    """Cross-entropy in nats of integer labels under logits.

    Shapes (C classes):
        labels   (...)     int
        logits   (..., C)  float
        returns  (...)     float32

    Args:
        smoothing: Share of the truth that is spread evenly over all classes (Szegedy et al. 2015,
            section 7).
        focal_gamma: Power of (1 - probability of the label) that the loss is multiplied by, so that
            what is easy counts less (Lin et al. 2017, section 3).
    """
    logits = ops.cast(logits, "float32")
    loss = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    if focal_gamma:
        loss *= (1 - ops.exp(-loss)) ** focal_gamma
    if smoothing:
        spread = ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)
        loss = (1 - smoothing) * loss + smoothing * spread
    return loss


def soft_cross_entropy(labels, logits, smoothing=0.0, focal_gamma=0.0, class_weights=None):
    """Cross-entropy in nats of shares of classes under logits; of one-hot rows that of their labels.

    Shapes (C classes):
        labels         (..., C)  float, shares that sum to 1
        logits         (..., C)  float
        class_weights  (C,)      float, factors of the classes' parts; None for 1
        returns        (...)     float32

    Args:
        smoothing, focal_gamma: As in `sparse_cross_entropy`.
    """
    labels = ops.cast(labels, "float32")
    scores = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    losses = -scores
    if focal_gamma:
        losses *= (1 - ops.exp(scores)) ** focal_gamma
    if smoothing:
        losses = (1 - smoothing) * losses - smoothing * ops.mean(scores, axis=-1, keepdims=True)
    if class_weights is not None:
        losses *= ops.convert_to_tensor(class_weights, "float32")
    return ops.sum(labels * losses, axis=-1)


def binary_cross_entropy(labels, logits):
    """Cross-entropy in nats of 0 and 1 under the logits of 1.

    Shapes:
        labels   (...)  int or float
        logits   (...)  float
        returns  (...)  float32
    """
    logits = ops.cast(logits, "float32")
    # of the likelier sign: exp never overflows
    return ops.softplus(-ops.abs(logits)) + ops.relu(logits) - logits * ops.cast(labels, "float32")


def squared_error(labels, outputs):
    """Square of the difference.

    Shapes:
        labels   (...)  int or float
        outputs  (...)  float
        returns  (...)  float32
    """
    return ops.square(ops.cast(outputs, "float32") - ops.cast(labels, "float32"))


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
