"""One optimizer step over all replicas of a strategy: what is summed where, and divided by what."""

import keras
import tensorflow as tf

from keras_bert.hashing import fold
from keras_bert.training.distribution import is_alone
from keras_bert.training.private_keras import expect_summed_gradients

_SUM = tf.distribute.ReduceOp.SUM


class TrainStep:
    """Forward, backward, all-reduce and update, of one global batch.

    Each output's loss is its sum of weighted elements over all replicas and micro-batches, divided by
    their sum of weights. So the loss and its gradient are those of the whole global batch at once, on
    any number of replicas, in any number of micro-batches, whatever each of them holds: rows of
    weight 0, fewer rows than the others, none.

    Gradients are made dense and all-reduced before the optimizer gets them: what it clips, decays,
    counts and corrects is the one update of the step.

    Shapes (F figures):
        returns  a dict of
            means    (F,)  float32, figures of the global batch; `figure_names` tells their
                           (output, figure)
            weights  (F,)  float32, their weights in it
            tokens   ()    float32, real tokens in it, where `padding_mask` tells; else 0
            stop     ()    float32, how many replicas asked to stop
            finite   ()    bool, whether the gradients are; with `skip_nonfinite` no update is made else

    Args:
        model: A compiled BertModel.
        accumulate: Micro-batches that each replica's batch is worked through in, one after the other.
        jit_compile: Whether XLA compiles forward and backward pass of each replica.
        seed: Integer that dropout is drawn from, with the step, the replica and the micro-batch.
        skip_nonfinite: Whether an update with a NaN or an infinite gradient is left out.
    """

    def __init__(self, model, accumulate, jit_compile, seed, skip_nonfinite):
        self.model = model
        self.strategy = model.distribute_strategy
        self.accumulate = accumulate
        self.jit_compile = jit_compile
        self.seed = seed
        self.figure_names = None  # known when the step is traced
        self.scaling = None
        self.optimizer = model.optimizer
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            self.scaling, self.optimizer = self.optimizer, self.optimizer.inner_optimizer
        if self.optimizer.gradient_accumulation_steps:
            raise ValueError(
                "The optimizer must not accumulate gradients of its own: set `accumulate` instead. "
                f"Received: gradient_accumulation_steps={self.optimizer.gradient_accumulation_steps}."
            )
        self.skip_nonfinite = skip_nonfinite or self.scaling is not None
        # Of a table of which a batch looks up some rows, the gradient is those rows. That is kept where
        # nothing has to add to it: all-reducing IndexedSlices gathers them.
        self.keeps_rows = (
            getattr(self.optimizer, "takes_rows", False)
            and self.scaling is None
            and not jit_compile
            and accumulate == 1
            and is_alone(self.strategy)
        )
        # Keras would sum the gradients once more, and after clipping them.
        expect_summed_gradients(self.optimizer)

    def __call__(self, batch, step, stop):
        """Runs in the cross-replica context of a graph.

        Args:
            batch: (x, y) or (x, y, sample_weight), per replica.
            step: () int64, number of the step.
            stop: () float32, 1 where this host wants to stop.
        """
        run = self.strategy.run
        if not self.skip_nonfinite:

            def whole(*arguments):
                gradients, report = self.gradients(*arguments)
                self.apply(gradients)
                return report

            return self._first(run(whole, (batch, step, stop)))
        gradients, report = run(self.gradients, (batch, step, stop))
        report = self._first(report)
        # In here, not in the replicas, where an update may not stand in a branch.
        tf.cond(report["finite"], lambda: run(self.apply, (gradients,)), lambda: None)
        if self.scaling is not None:
            self._adjust_scale(report["finite"])
        return report

    def evaluate(self, batch):
        """`means` and `weights` of a global batch, without training; in the cross-replica context."""
        return self._first(self.strategy.run(self._figures, (batch,)))

    def _figures(self, batch):
        x, y, shares, totals = self._shares(batch)

        def forward(x, y, shares):
            figures = self.model.weighted_figures(y, self.model(x, training=False), shares)
            return self._stack(figures)

        if self.jit_compile:
            forward = tf.function(forward, jit_compile=True, autograph=False)
        means = tf.distribute.get_replica_context().all_reduce(_SUM, forward(x, y, shares))
        return {"means": means, "weights": self._weights(totals)}

    def _shares(self, batch):
        """(x, y), what share of its output's mean each element makes up, and the sums of weights."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        weights = self.model.label_weights(y, sample_weight)
        outputs = sorted(weights)
        sums = tf.stack([tf.reduce_sum(weights[name]) for name in outputs])
        sums = tf.distribute.get_replica_context().all_reduce(_SUM, sums)
        totals = dict(zip(outputs, tf.unstack(sums), strict=True))
        shares = {name: tf.math.divide_no_nan(weights[name], totals[name]) for name in outputs}
        return x, y, shares, totals

    def _stack(self, figures):
        self.figure_names = [(name, key) for name in sorted(figures) for key in figures[name]]
        return tf.stack([figures[name][key] for name, key in self.figure_names])

    def _weights(self, totals):
        return tf.stack([totals[output] for output, _ in self.figure_names])

    def gradients(self, batch, step, stop):
        """All-reduced gradients of the trainable variables, and the report of the step."""
        context = tf.distribute.get_replica_context()
        x, y, shares, totals = self._shares(batch)
        seed = fold(self.seed, step, tf.cast(context.replica_id_in_sync_group, tf.int32))
        scale = None if self.scaling is None else tf.identity(self.scaling.dynamic_scale)

        forward_backward = self._forward_backward
        if self.jit_compile:
            forward_backward = tf.function(forward_backward, jit_compile=True, autograph=False)
        means, gradients = forward_backward(x, y, shares, seed, scale)
        tokens = tf.reduce_sum(tf.cast(x["padding_mask"], tf.float32)) if "padding_mask" in x else 0.0
        counts = tf.stack([tokens, stop])
        means, counts = context.all_reduce(_SUM, [means, counts])
        if not self.keeps_rows:
            gradients = context.all_reduce(_SUM, gradients)
        if scale is not None:
            gradients = [gradient / scale for gradient in gradients]
        # the sums that clipping takes: TensorFlow computes equal ones once
        parts = [getattr(gradient, "values", gradient) for gradient in gradients]
        halves = [tf.cast(tf.nn.l2_loss(part), tf.float32) for part in parts]
        report = {
            "means": means,
            "weights": self._weights(totals),
            "tokens": counts[0],
            "stop": counts[1],
            "finite": tf.math.is_finite(tf.add_n(halves)),
        }
        return gradients, report

    def apply(self, gradients):
        """Updates the variables; runs in replica context, after the all-reduce."""
        apply = self.optimizer.apply_rows if self.keeps_rows else self.optimizer.apply
        apply(gradients, self.connected)

    def _forward_backward(self, x, y, shares, seed, scale):
        """Figures and gradients of a replica's batch: sums over its micro-batches."""
        if self.accumulate == 1:
            means, gradients = self._micro_batch(x, y, shares, fold(seed, 0), scale)
            return means, self._of_connected(gradients)
        variables = self.model.trainable_variables
        parts = tf.nest.map_structure(self._split, (x, y, shares))

        def body(index, means, gradients):
            x, y, shares = tf.nest.map_structure(lambda part: part[index], parts)
            new, grads = self._micro_batch(x, y, shares, fold(seed, index), scale)
            summed = [
                total if grad is None else total + grad
                for total, grad in zip(gradients, grads, strict=True)
            ]
            return index + 1, means.write(index, new), summed

        _, means, gradients = tf.while_loop(
            lambda index, *_: index < self.accumulate,
            body,
            (
                tf.constant(0),
                tf.TensorArray(tf.float32, self.accumulate),
                [tf.zeros(variable.shape, variable.dtype) for variable in variables],
            ),
            parallel_iterations=1,
        )
        return tf.reduce_sum(means.stack(), axis=0), self._of_connected(gradients)

    def _micro_batch(self, x, y, shares, seed, scale):
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            figures = self.model.weighted_figures(y, self.model(x, training=True, seed=seed), shares)
            loss = tf.add_n([values["loss"] for values in figures.values()])
            if scale is not None:
                loss *= scale
        gradients = tape.gradient(loss, variables)
        means = self._stack(figures)
        self._is_connected = [gradient is not None for gradient in gradients]
        if not self.keeps_rows:
            gradients = [None if grad is None else tf.convert_to_tensor(grad) for grad in gradients]
        return means, gradients

    def _of_connected(self, gradients):
        """Leaves out what the loss does not depend on: it is not trained, and not decayed either."""
        pairs = zip(gradients, self._is_connected, strict=True)
        return [gradient for gradient, connected in pairs if connected]

    @property
    def connected(self):
        """The trainable variables that the loss depends on."""
        pairs = zip(self.model.trainable_variables, self._is_connected, strict=True)
        return [variable for variable, connected in pairs if connected]

    def _split(self, tensor):
        """(rows, ...) -> (micro-batches, rows of each, ...); rows of zeros, of weight 0, fill up."""
        count, rows = self.accumulate, tensor.shape[0]
        if rows is None:
            rows = tf.shape(tensor)[0]
            each = tf.maximum((rows + count - 1) // count, 1)
        else:
            each = max(-(-rows // count), 1)
        padding = [[0, each * count - rows]] + [[0, 0]] * (tensor.shape.rank - 1)
        return tf.reshape(tf.pad(tensor, padding), [count, each, *tensor.shape[1:]])

    def _adjust_scale(self, finite):
        """Keras's rule: double after so many finite steps, halve at the first that is not."""
        optimizer = self.scaling
        counter = tf.convert_to_tensor(optimizer.step_counter)
        count = (counter + 1) * tf.cast(finite, counter.dtype)
        is_full = count >= optimizer.dynamic_growth_steps
        factor = tf.where(finite, tf.where(is_full, 2.0, 1.0), 0.5)
        optimizer.dynamic_scale.assign(optimizer.dynamic_scale * factor)
        optimizer.step_counter.assign(count * tf.cast(~is_full, counter.dtype))

    def _first(self, report):
        """Of values that are the same on all replicas, those of this host's first."""
        return tf.nest.map_structure(
            lambda value: self.strategy.experimental_local_results(value)[0], report
        )
