"""Rows of like length computed together: less padding, bounded memory, whatever the batch."""

import tensorflow as tf

# Most tokens, padding among them, that are computed at once. The work between matrix products stays in
# a processor's cache up to about here.
GROUP_TOKENS = 1024
_OF_TOKENS = ("token_ids", "padding_mask", "segment_ids")


def in_groups(function, inputs, empty, most_tokens=None):
    """`function(inputs)`, computed for some rows after the others, longest first.

    A batch of short texts and a long one would else be padded to the long one; and the windows of a
    book would all be computed at once.

    Shapes (B rows, T tokens; R... of each result):
        inputs   a dict of (B, T), or (B, C, T), int32: token_ids, padding_mask, segment_ids; others
                 may be any (B, ...)
        empty    a dict of (0, R...), results of no rows
        returns  a dict of (B, R...); what `function` returns shorter is filled up with zeros

    Args:
        function: From inputs of some rows, with no more tokens than those need, to a dict of results.
        most_tokens: Tokens of a group; a single row may have more. None for `GROUP_TOKENS`.
    """
    mask = inputs["padding_mask"]
    lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=-1)  # (B,) or (B, C)
    texts = 1  # of a row
    if mask.shape.rank == 3:
        texts, lengths = tf.shape(mask)[1], tf.reduce_max(lengths, axis=1)
    rows, most_tokens = tf.size(lengths), most_tokens or GROUP_TOKENS
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    lengths = tf.concat([tf.gather(lengths, order), [0]], axis=0)  # one more, where there are no rows

    def step(begin, results):
        longest = tf.maximum(lengths[tf.minimum(begin, rows)], 1)
        end = begin + tf.maximum(most_tokens // tf.maximum(longest * texts, 1), 1)
        group = {name: tf.gather(value, order[begin:end]) for name, value in inputs.items()}
        group |= {name: group[name][..., :longest] for name in _OF_TOKENS if name in group}
        found = function(group)
        return end, {
            name: tf.concat([before, _filled_up(found[name], before)], axis=0)
            for name, before in results.items()
        }

    _, results = tf.while_loop(
        lambda begin, results: (begin < rows) | (begin == 0),
        step,
        (tf.constant(0), empty),
        shape_invariants=(
            tf.TensorShape([]),
            {name: tf.TensorShape([None, *value.shape[1:]]) for name, value in empty.items()},
        ),
        parallel_iterations=1,
    )
    places = tf.math.invert_permutation(order)
    return {name: tf.gather(value, places) for name, value in results.items()}


def _filled_up(value, like):
    """A result with zeros behind, so that its axes but the first are as long as those of another."""
    missing = tf.shape(like)[1:] - tf.shape(value)[1:]
    value = tf.pad(value, tf.pad(missing[:, None], [[1, 0], [1, 0]]))
    return tf.ensure_shape(value, [None, *like.shape[1:]])
