"""What a person would rather look at than read, as PNG files."""

import functools
import io
import textwrap

import numpy as np

from keras_bert.files import write_atomically
from keras_bert.tasks.pictures import Confusion, Scatter, Thresholds


def draw_history(history, unigram_entropy, filled, path, shown=3):
    """Draws masked LM loss and accuracy over steps, in training and held out, and some filled masks.

    Args:
        history: Logs of the epochs.
        unigram_entropy: In nats, of the held-out targets.
        filled: List of {"text", "true_word", "words", "scores"}.
        shown: How many of them to show.
    """
    from matplotlib.figure import Figure

    filled = filled[:shown]
    figure = Figure(figsize=(11 if filled else 7, 5.6), layout="constrained")
    curves = figure
    if filled:
        curves, masks = figure.subfigures(1, 2)
        for each, axes in zip(filled, masks.subplots(len(filled), squeeze=False)[:, 0], strict=True):
            _draw_filled(each, axes)
    loss, accuracy = curves.subplots(2, sharex=True)
    steps = [row["step"] for row in history]
    for axes, name in ((loss, "masked_lm_loss"), (accuracy, "masked_lm_accuracy")):
        axes.plot(steps, [row[name] for row in history], label="training")
        axes.plot(steps, [row[f"val_{name}"] for row in history], ".-", label="held out")
        axes.grid(alpha=0.3)
    loss.axhline(unigram_entropy, color="grey", ls="--", label="unigram entropy of held-out targets")
    loss.set(ylabel="masked LM loss (nats)")
    accuracy.set(xlabel="step", ylabel="masked LM accuracy")
    loss.legend()
    save_drawing(figure, path)


def _draw_filled(filled, axes):
    """The likeliest words for a mask as bars, the true one in another colour."""
    words, scores = filled["words"][::-1], filled["scores"][::-1]
    colors = ["C1" if word == filled["true_word"].lower() else "C0" for word in words]
    axes.barh(range(len(words)), scores, color=colors)
    axes.set_yticks(range(len(words)), words)
    title = "\n".join([*textwrap.wrap(filled["text"], 60), f"(was: {filled['true_word']})"])
    axes.set_title(title, fontsize=9, loc="left", parse_math=False)
    axes.set(xlim=(0, max(0.5, *scores)))


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


@functools.singledispatch
def draw(picture, path):
    """Draws what a kind of task shows of its predictions (tasks/pictures.py) as a PNG."""
    raise TypeError(f"There must be a drawing for the picture. Received: a {type(picture).__name__}.")


@draw.register
def _(picture: Confusion, path):
    """The share of each row, and the counts where they fit."""
    from matplotlib.figure import Figure
    from sklearn.metrics import confusion_matrix

    names = list(picture.names)
    counts = confusion_matrix(picture.truths, picture.predictions, labels=names)
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


@draw.register
def _(picture: Thresholds, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, values in picture.curves.items():
        axes.plot(picture.thresholds, values, label=name)
    axes.axvline(picture.chosen, color="grey", ls="--", label=f"in force: {picture.chosen:.3g}")
    axes.set(xlabel=picture.label, ylabel="score on dev")
    axes.grid(alpha=0.3)
    axes.legend()
    save_drawing(figure, path)


@draw.register
def _(picture: Scatter, path):
    from matplotlib.figure import Figure

    truths, predictions = picture.truths, picture.predictions
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
