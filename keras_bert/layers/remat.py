"""Rematerialisation: the backward pass computes what it needs anew, instead of having it kept."""

import functools

import keras


def remat(function):
    """`function`, whose backward pass starts from the argument: nothing else is kept for it.

    XLA sees that the second forward pass repeats the first, merges the two, and keeps everything after
    all (TensorFlow's own `recompute_grad` was compiled for a TPU to the same program as no remat). So
    where shapes are static, the second pass gets its input through an optimization barrier: a value
    that XLA must not look through, and that is not there before the gradient of the output is.

    Args:
        function: function(states, **tensors) -> states; a pure function of these and of variables.
    """
    if keras.backend.backend() != "tensorflow":
        return lambda states, **tensors: keras.remat(functools.partial(function, **tensors))(states)
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.python.xla import optimization_barrier  # not in tf.raw_ops

    @tf.function(jit_compile=True, autograph=False)
    def barrier(*tensors):
        # Inside of a program that XLA compiles this is a part of it; elsewhere, a copy.
        return optimization_barrier(*tensors)

    def call(states, **tensors):
        if tf.executing_eagerly() or not states.shape.is_fully_defined():
            return keras.remat(functools.partial(function, **tensors))(states)
        names = list(tensors)

        @tf.custom_gradient
        def recomputed(states):
            def gradient(upstream, variables=()):
                again, upstream, *values = barrier(states, upstream, *tensors.values())
                with tf.GradientTape() as tape:
                    tape.watch([again, *variables])
                    out = function(again, **dict(zip(names, values, strict=True)))
                to_states, *to_variables = tape.gradient(
                    out, [again, *variables], upstream, tf.UnconnectedGradients.ZERO
                )
                return (to_states, to_variables) if variables else to_states

            return function(states, **tensors), gradient

        return recomputed(states)

    return call
