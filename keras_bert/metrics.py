"""Metrics that sum over a whole data set and divide once, by the sum of the weights."""

import keras


def sparse_metrics():
    """Cross-entropy in nats and accuracy of integer labels under logits.

    Fresh objects with each call, for `weighted_metrics`: Keras gives those the sample weights, so that
    padded predictions count nowhere. (Its own `loss` entry is a mean of batch means.)
    """
    return [
        keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="cross_entropy"),
        keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
    ]
