"""The processor under a benchmark, and how a lesser one is played on it."""

from importlib import metadata

from processor import flags

FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")

# What libraries may use of the processor, read by each when it is loaded. TensorFlow leaves oneDNN's
# kernels out by itself on processors without VNNI; so it is here, where it sees a better one.
LIMITS = {
    "avx2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    },
    "avx512_vnni": {
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI",
        "ATEN_CPU_CAPABILITY": "avx512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX512_VNNI",
        "TF_ENABLE_ONEDNN_OPTS": "1",
    },
}
NEEDED = {"avx2": "avx2", "avx512_vnni": "avx512_vnni"}  # of the processor itself
UNLIMITED = (
    "Not limited: what was compiled for one set of instructions (Eigen's kernels in TensorFlow,\n"
    "Rust's tokenizers), and what torch decides by asking the processor itself: with avx2 it still\n"
    "hands bfloat16 to oneDNN, which has no kernel for it then but one for reference. The rates of\n"
    "products tell what is left."
)


def limit(cpu, environment):
    """Limits what libraries that are loaded from now on may use.

    Args:
        cpu: A key of `LIMITS`.
        environment: Is changed. What it says of TF_ENABLE_ONEDNN_OPTS stays, other XLA_FLAGS too.

    Returns:
        What was limited, in words.
    """
    if NEEDED[cpu] not in features():
        raise ValueError(
            f"`cpu` must be what the processor has itself. Received: {cpu}, and a processor with "
            f"{' '.join(features()) or 'none of ' + ' '.join(FEATURES)}."
        )
    limits = dict(LIMITS[cpu])
    limits["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {limits['XLA_FLAGS']}".strip()
    limits["TF_ENABLE_ONEDNN_OPTS"] = environment.get(
        "TF_ENABLE_ONEDNN_OPTS", limits["TF_ENABLE_ONEDNN_OPTS"]
    )
    environment.update(limits)
    settings = " ".join(f"{name}={value}" for name, value in limits.items())
    return f"Limited to {cpu} by {settings}.\n{UNLIMITED}"


def machine():
    """Processor and versions, to stand beside the figures."""
    lines = _cpuinfo()
    names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    processor = f"{len(names)} x {names[0]}" if names else "unknown processor"
    versions = f"TensorFlow {metadata.version('tensorflow')}, Keras {metadata.version('keras')}"
    return f"{processor} ({' '.join(features()) or 'features unknown'}); {versions}"


def features():
    """Those of `FEATURES` that the processor has."""
    found = flags()
    return [name for name in FEATURES if name in found]


def _cpuinfo():
    try:
        with open("/proc/cpuinfo") as file:
            return file.read().splitlines()
    except OSError:
        return []
