"""Preparing batches on other machines, by the tf.data service: for throughput, not for exact runs."""

import tensorflow as tf


def through_service(dataset, address, job_name=None):
    """Hands the work on a dataset to the workers of a tf.data service.

    Use it where hosts with accelerators have too few CPUs to feed them. What is lost: which batches
    come, and in which order, depends on how fast the workers are. No example comes twice in an epoch,
    but epochs overlap, two runs differ, and a run that continues repeats some examples and leaves out
    others. Without the service, batches are a pure function of (seed, step).

    Args:
        dataset: The `training_batches` of a RecordData for one replica: with its share of the global
            batch as the batch size, and no context. Each worker takes the next block of shards.
        address: Of the dispatcher, "grpc://host:port".
        job_name: Consumers that give the same name share the batches; None for all of them to each.

    Returns:
        Dataset of the same elements, in another order.
    """
    return dataset.apply(
        tf.data.experimental.service.distribute(
            tf.data.experimental.service.ShardingPolicy.DYNAMIC, address, job_name=job_name
        )
    )
