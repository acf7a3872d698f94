"""What a person would rather look at than read, as PNG files."""

import io

import numpy as np

from keras_bert.files import write_atomically


def draw_history(history, unigram_entropy, path):
    """Draws masked LM loss and accuracy over steps, in training and held out."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6.4), layout="constrained")
    loss, accuracy = figure.subplots(2, sharex=True)
    steps = [row["step"] for row in history]
    for axes, name in ((loss, "masked_lm_loss"), (accuracy, "masked_lm_accuracy")):
        axes.plot(steps, [row[name] for row in history], label="training")
        axes.plot(steps, [row[f"val_{name}"] for row in history], ".-", label="held out")
        axes.grid(alpha=0.3)
    loss.axhline(unigram_entropy, color="grey", ls="--", label="unigram entropy of held-out targets")
    loss.set(ylabel="masked LM loss (nats per masked token)")
    accuracy.set(xlabel="step", ylabel="masked LM accuracy")
    loss.legend()
    save_drawing(figure, path)


def draw_learning(histories, metric, path):
    """Draws the losses and the development score of several runs over steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6.4), layout="constrained")
    losses, scores = figure.subplots(2, sharex=True)
    for number, history in enumerate(histories):
        steps, color = [row["step"] for row in history], f"C{number}"
        losses.plot(steps, [row["loss"] for row in history], ".--", color=color)
        losses.plot(steps, [row["val_loss"] for row in history], ".-", color=color)
        scores.plot(steps, [row[f"val_{metric}"] for row in history], ".-", color=color)
    losses.set(ylabel="loss: training (dashed), dev")
    scores.set(xlabel="step", ylabel=f"dev {metric}")
    for axes in (losses, scores):
        axes.grid(alpha=0.3)
    save_drawing(figure, path)


def draw_confusion(truths, predictions, names, path):
    """Draws how often each label was taken for each: the share of its row, and the count where it fits.

    Args:
        truths, predictions: Names of labels, of one length.
        names: All labels, in the order of the axes.
    """
    from matplotlib.figure import Figure
    from sklearn.metrics import confusion_matrix

    counts = confusion_matrix(truths, predictions, labels=list(names))
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = min(12.0, 3 + 0.45 * len(names))
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, vmin=0, vmax=1, cmap="Blues")
    if len(names) <= 20:
        for (row, column), count in np.ndenumerate(counts):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=color, fontsize=8)
    ticks = range(len(names))
    axes.set_xticks(ticks, names, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(ticks, names)
    axes.set(xlabel="prediction", ylabel="truth")
    figure.colorbar(image, label="share of the true label", shrink=0.8)
    save_drawing(figure, path)


def draw_thresholds(thresholds, curves, chosen, label, path):
    """Draws scores over a threshold, and the threshold in force as a line.

    Args:
        thresholds: Increasing numbers.
        curves: {name of a score: its value at each}.
        chosen: The threshold in force.
        label: What the threshold is of.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, values in curves.items():
        axes.plot(thresholds, values, label=name)
    axes.axvline(chosen, color="grey", ls="--", label=f"in force: {chosen:.3g}")
    axes.set(xlabel=label, ylabel="score on dev")
    axes.grid(alpha=0.3)
    axes.legend()
    save_drawing(figure, path)


def draw_scatter(truths, predictions, path):
    """Draws predicted over true numbers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 5.5), layout="constrained")
    axes = figure.subplots()
    ends = [min(*truths, *predictions), max(*truths, *predictions)]
    axes.plot(ends, ends, color="grey", ls="--")
    axes.plot(truths, predictions, ".", alpha=0.4)
    axes.set(xlabel="truth", ylabel="prediction")
    axes.grid(alpha=0.3)
    save_drawing(figure, path)


def save_drawing(figure, path):
    """Writes a figure of matplotlib as a PNG, whole or not at all."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=120)
    write_atomically(path, drawn.getvalue())
