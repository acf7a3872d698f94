"""Losses, one number per element: the weights of a batch decide what counts, never its shape."""

import keras


def sparse_cross_entropy(name="sparse_cross_entropy"):
    """Cross-entropy of integer labels under logits, averaged over the elements' weights.

    Keras's default reduction divides by the number of elements, so a masked LM's loss and gradients
    would shrink with every padded prediction; this one divides by the sum of `sample_weight`. A batch
    whose weights are all 0 has loss 0 and finite gradients.

    Shapes (C classes):
        y_true         (...)     int
        y_pred         (..., C)  float, logits
        sample_weight  (...)     float
        returns        ()        float32
    """
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight", name=name
    )
