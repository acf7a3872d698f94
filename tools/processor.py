"""What this machine's processor is good at, decided before TensorFlow is imported.

TensorFlow reads its switch for oneDNN when it is imported, and leaves oneDNN off on processors without
AVX-512. So this module imports nothing of it.
"""

import dataclasses
import os
import sys

_SWITCH = "TF_ENABLE_ONEDNN_OPTS"


def flags(path="/proc/cpuinfo"):
    """Names of the processor's features, in Linux's spelling; none where it does not tell."""
    try:
        with open(path) as file:
            line = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        line = ""
    return set(line.split())


def choose_onednn(features=None, environment=os.environ):
    """Switches TensorFlow's oneDNN on where it is off and faster: with AVX2. To be called first.

    A value that the environment has already is left as it is.
    """
    features = flags() if features is None else features
    if "tensorflow" in sys.modules:
        raise RuntimeError(
            "`choose_onednn` must be called before TensorFlow is imported. Received: a call after it."
        )
    if _SWITCH in environment:
        return
    if "avx2" in features:
        environment[_SWITCH] = "1"
        print(f"oneDNN is on: the processor has AVX2 ({_SWITCH}=0 leaves it off).", file=sys.stderr)


def with_dtype(recipe):
    """A recipe whose dtype is no longer "auto"."""
    import tensorflow as tf

    kinds = ["TPU"] if recipe.strategy == "tpu" else []
    for gpu in tf.config.list_physical_devices("GPU"):
        kinds.append(tf.config.experimental.get_device_details(gpu)["compute_capability"])
    return dataclasses.replace(recipe, dtype=resolve_dtype(recipe.dtype, accelerators=kinds))


def resolve_dtype(dtype, features=None, accelerators=()):
    """`dtype`, or for "auto" mixed_bfloat16 where products in bfloat16 are fast, else float32.

    Args:
        features: As of `flags`; None for those of this machine.
        accelerators: Their kinds: "TPU", or a GPU's compute capability, (major, minor).
    """
    if dtype != "auto":
        return dtype
    features = flags() if features is None else features
    if accelerators:
        fast = all(kind == "TPU" or kind >= (8, 0) for kind in accelerators)
        reason = "every accelerator" if fast else "not every accelerator"
    else:
        found = sorted({"avx512_bf16", "amx_bf16"} & features)
        fast = bool(found)
        reason = f"the processor ({', '.join(found)})" if fast else "not the processor"
    dtype = "mixed_bfloat16" if fast else "float32"
    print(f"dtype {dtype}: {reason} has fast products in bfloat16.", file=sys.stderr)
    return dtype
