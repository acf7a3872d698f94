"""Element-wise work between matrix products, each piece in one pass over memory.

TensorFlow runs an op at a time: a norm or a gelu is ten passes over its tensors, and on CPUs bfloat16
is widened and narrowed in each. XLA makes one pass of them, but on CPUs its bfloat16 matrix products
are slow. So XLA gets the pieces, and the products stay TensorFlow's.
"""

import keras


def one_pass(function):
    """`function` of tensors, compiled by XLA, forward and backward, where that is possible.

    That is where TensorFlow traces a graph and all shapes are static. Elsewhere (eagerly, where the
    number of tokens changes, where an argument is None, on other backends) it is just called. The
    backward pass starts from the arguments: nothing else is kept, and what was drawn from a seed is
    drawn again.

    Args:
        function: function(*tensors, **options) -> a tensor; options are hashable Python values.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    forward = tf.function(function, jit_compile=True, autograph=False)

    @tf.function(jit_compile=True, autograph=False)
    def backward(upstream, *tensors, **options):
        floats = [tensor for tensor in tensors if tensor.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            out = function(*tensors, **options)
        gradients = iter(tape.gradient(out, floats, upstream))
        return [next(gradients) if tensor.dtype.is_floating else None for tensor in tensors]

    def call(*tensors, **options):
        is_static = not tf.executing_eagerly() and all(
            tf.is_tensor(tensor) and tensor.shape.is_fully_defined() for tensor in tensors
        )
        if not is_static:
            return function(*tensors, **options)

        @tf.custom_gradient
        def compiled(*tensors):
            return forward(*tensors, **options), lambda out: backward(out, *tensors, **options)

        return compiled(*tensors)

    return call
