"""What is worth a look in predictions, as values: a run draws them (runs/drawings.py)."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Confusion:
    """How often each label was taken for each.

    Args:
        truths, predictions: Names of labels, of one length.
        names: All labels, in the order of the axes.
    """

    truths: list
    predictions: list
    names: list


@dataclasses.dataclass(frozen=True)
class Scatter:
    """Predicted numbers over true ones.

    Args:
        truths, predictions: Numbers, of one length.
    """

    truths: list
    predictions: list


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """Scores over a threshold, and the threshold in force.

    Args:
        thresholds: Increasing numbers.
        curves: {name of a score: its value at each}.
        chosen: The threshold in force.
        label: What the threshold is of.
    """

    thresholds: list
    curves: dict
    chosen: float
    label: str
