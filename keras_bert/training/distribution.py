"""The strategies of `tf.distribute` by name."""

import json
import os
import sys
from typing import Literal, get_args

import tensorflow as tf

Strategy = Literal["none", "mirrored", "multi_worker", "tpu"]


def make_strategy(name, tpu=None):
    """A strategy, to be made before anything else of TensorFlow is used.

    Args:
        name: "none": one device. "mirrored": all GPUs of this host. "multi_worker": all GPUs of all
            hosts that the environment variable TF_CONFIG lists (or their CPUs). "tpu": a TPU.
        tpu: Of "tpu": name or gRPC address of the TPU; "local" on a TPU VM.

    Raises:
        ValueError: When something that the strategy needs is not there.
    """
    if name not in get_args(Strategy):
        raise ValueError(
            f"`strategy` must be one of {', '.join(get_args(Strategy))}. Received: {name!r}."
        )
    if (name == "tpu") != (tpu is not None):
        raise ValueError(
            'The name of a TPU must come with strategy "tpu", and only with it. '
            f"Received: strategy {name!r}, tpu={tpu!r}."
        )
    if name == "none":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        return tf.distribute.MirroredStrategy()
    if name == "multi_worker":
        hosts = _cluster_size(os.environ.get("TF_CONFIG"))
        # It returns when all have joined: a host that is missing must not look like a slow start.
        print(f"Waiting until all {hosts} hosts of TF_CONFIG are here.", file=sys.stderr, flush=True)
        return tf.distribute.MultiWorkerMirroredStrategy()
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
    if tpu != "local":
        tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


def is_alone(strategy):
    """Whether it is that of one device, outside of any strategy's scope."""
    return type(strategy).__name__ == "_DefaultDistributionStrategy"


def _cluster_size(text):
    """Hosts in a TF_CONFIG; TensorFlow would take one that is missing for a cluster of one."""
    example = (
        '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
    )
    try:
        config = json.loads(text)
        hosts, task = config["cluster"], config["task"]
        address = hosts[task["type"]][task["index"]]
    except (TypeError, ValueError, LookupError):
        address = None
    if not isinstance(address, str):
        raise ValueError(
            'Strategy "multi_worker" needs TF_CONFIG in the environment of each host: all addresses, '
            f"and which one this host is, as in {example}. Received: {text!r}."
        )
    return sum(len(hosts.get(job, ())) for job in ("chief", "worker"))
