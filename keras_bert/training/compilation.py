"""What XLA makes of a training step: one program for each replica, or a reason why a TPU would refuse.

TensorFlow gives XLA's program (its HLO) of a function without running it, on any machine. XLA for CPUs
compiles things that a TPU cannot do, so it is the program that has to be looked at.
"""

import copy
import re

import tensorflow as tf

from keras_bert.training.distribution import is_alone

# What leaves the program, or comes from outside while it runs.
_HOST_OPS = ("custom-call", "infeed", "outfeed", "send", "recv", "send-done", "recv-done")
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?(\S+) = .*? ([a-z][a-z0-9-]*)\(", re.MULTILINE)
_DYNAMIC = re.compile(r"^\s*(?:ROOT )?(\S+) = [^=]*\[[^\]]*<=\d", re.MULTILINE)


def compile_step(step, batch_spec):
    """The program of a whole step of one replica, from its batch to the updated variables.

    It is traced and lowered, not run; variables keep their values. The sums over replicas are left out:
    they are the one thing that a strategy adds.

    Args:
        step: The TrainStep of a model that was made outside of any strategy: `trainer.step`.
        batch_spec: TensorSpecs of what a replica gets, (x, y) or (x, y, sample_weight): `element_spec`
            of a dataset, of static shapes.

    Returns:
        program(stage): "hlo" for its text, "hlo_serialized" for the bytes that a compiler reads.

    Raises:
        ValueError: When the model belongs to a strategy.
        tf.errors.OpError, on calling `program`: When XLA has no program for the step, because it works
            with strings or tables, say.
    """
    if not is_alone(step.strategy):
        raise ValueError(
            "`step` must be that of a model made outside of any strategy: one replica is compiled. "
            f"Received: a model of {type(step.strategy).__name__}."
        )

    step = copy.copy(step)
    step.keeps_rows = False  # how many rows a batch looks up is known at run time only

    @tf.function(jit_compile=True, autograph=False)
    def whole(number, stop, *tensors):
        return step(tf.nest.pack_sequence_as(batch_spec, tensors), number, stop)

    scalars = tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.float32)
    return whole.experimental_get_compiler_ir(*scalars, *tf.nest.flatten(batch_spec))


def check_hlo(text):
    """Refuses a program that a TPU cannot run as it stands.

    Args:
        text: HLO, as `compile_step` gives it.

    Raises:
        ValueError: When a dimension is known at run time only (`s32[<=24]`), or an instruction calls
            what is not part of the program.
    """
    instructions = _INSTRUCTION.findall(text)
    if not instructions:
        raise ValueError(f"`text` must be the text of an HLO module. Received: {text[:80]!r}.")
    dynamic = _DYNAMIC.findall(text)
    if dynamic:
        raise ValueError(
            "All shapes of a TPU's program must be static. "
            f"Received: {len(dynamic)} of dynamic size, {', '.join(dynamic[:3])} among them."
        )
    outside = [f"{name} ({op})" for name, op in instructions if op in _HOST_OPS]
    if outside:
        raise ValueError(
            "A TPU's program must need nothing but the TPU. "
            f"Received: {len(outside)} calls to the outside, {', '.join(outside[:3])} among them."
        )


def count_instructions(text, op):
    """How many instructions of a kind ("dot", say) the text of a program has."""
    return sum(name == op for _, name in _INSTRUCTION.findall(text))
