"""Whether a contestant of fine-tuning may stand in a table: it answers the rows, and not by luck.

Rows that come back in another order, labels that are numbered otherwise, a model that is not the
trained one: all look like a bad score. So each contestant first learns a few rows by heart and must
repeat them, through the same process, code and scores as in the measured runs.
"""

import collections
import dataclasses
import math

import numpy as np

KNOWN_ROWS = 24
KNOWN_SETTINGS = {"epochs": 60, "batch_size": 8, "learning_rate": 2e-4, "weight_decay": 0.0}
MOST_WORDS, MOST_CHARACTERS = 30, 40  # of a sentence, and of an answer, that is learned by heart


@dataclasses.dataclass(frozen=True)
class Measure:
    """A score of a kind of task.

    Args:
        score: Its name.
        perfect: Its value where all is right.
        known: The least for known answers; below `perfect` where exactness is no matter of labels.
    """

    score: str
    perfect: float
    known: float


MEASURES = {
    "classification": Measure("accuracy", 1.0, 1.0),
    "regression": Measure("correlation", 1.0, 0.99),
    "tagging": Measure("f1", 1.0, 1.0),
    "answers": Measure("f1", 100.0, 100.0),
}


def in_order(name, answers, count):
    """Predictions in the order of the rows.

    Args:
        name: The contestant's, for errors.
        answers: (number of the row, prediction) of each row, in any order.
        count: How many rows there are.

    Raises:
        ValueError: When not every row has exactly one prediction.
    """
    given = collections.Counter(number for number, _ in answers)
    missing = sorted(set(range(count)) - given.keys())
    unknown = sorted(given.keys() - set(range(count)))
    repeated = sorted(number for number, times in given.items() if times > 1)
    if missing or unknown or repeated:
        raise ValueError(
            f"{name}: each of the {count:,} rows must have exactly one prediction. Received: "
            f"{len(answers):,}, none for {_few(missing)}, several for {_few(repeated)}, for rows that "
            f"there are not {_few(unknown)}."
        )
    return [prediction for _, prediction in sorted(answers, key=lambda each: each[0])]


def known_rows(kind, kind_name, rows):
    """Rows to learn by heart: all different, their answers within reach of every contestant.

    Args:
        kind: A Kind, with the labels' names.
        kind_name: A key of `MEASURES`.
        rows: Those of the training data.
    """
    if kind_name == "tagging":
        good = [row for row in rows if len(row["words"]) <= MOST_WORDS and set(row["tags"]) != {"O"}]
        return _spread(good)
    if kind_name == "answers":
        seen = {row["question"]: row for row in rows if _is_within_reach(row)}
        return sorted(seen.values(), key=lambda row: len(row["context"]))[:KNOWN_ROWS]
    texts = zip(*kind.texts(rows), strict=True)
    different = dict(zip(texts, rows, strict=True))
    short = [
        row
        for each, row in different.items()
        if sum(len(text.split()) for text in each) <= 2 * MOST_WORDS
    ]
    if kind_name == "regression":
        values = kind.labels(short)
        return _spread([short[number] for number in np.argsort(values, kind="stable")])
    of_label = {}
    for row, label in zip(short, kind.names(short), strict=True):
        of_label.setdefault(label, []).append(row)
    taken = [row for turn in range(KNOWN_ROWS) for rows in of_label.values() for row in rows[turn:][:1]]
    return taken[:KNOWN_ROWS]


def check_known(name, kind, kind_name, rows, answers):
    """The score of known answers; refuses a contestant that does not repeat them."""
    measure = MEASURES[kind_name]
    score = kind.score(rows, in_order(name, answers, len(rows)))[measure.score]
    if not score >= measure.known:
        raise ValueError(
            f"{name}: trained on {len(rows)} rows alone for {KNOWN_SETTINGS['epochs']} epochs, it "
            f"must answer them again with {measure.score} of at least {measure.known}. "
            f"Received: {score:.4f}. Something lies between its training and its predictions."
        )
    return score


def check_chance(name, kind, kind_name, rows, predictions):
    """Refuses a score that an answer without the texts may have as well.

    That is the most frequent label, one tag for all words, no answer or that to another question, a
    correlation of 0; and around it two standard deviations of a share of so many rows.
    """
    measure = MEASURES[kind_name]
    score = kind.score(rows, predictions)[measure.score] / measure.perfect
    count = len(rows)
    if kind_name == "regression":
        chance, noise = 0.0, 2 / math.sqrt(count)
    else:
        if kind_name == "tagging":
            count = max(sum(tag.startswith("B") for row in rows for tag in row["tags"]), 1)
        blind = _blind(kind, kind_name, rows, predictions)
        chance = max(kind.score(rows, each)[measure.score] for each in blind) / measure.perfect
        noise = 2 * math.sqrt(chance * (1 - chance) / count) + 1 / count
    if not score > chance + noise:
        raise ValueError(
            f"{name}: its {measure.score} must be better than chance, {chance:.4f} with noise of "
            f"{noise:.4f} on {len(rows):,} rows. Received: {score:.4f}. Train longer, or look for what "
            "is wrong with it."
        )


def _blind(kind, kind_name, rows, predictions):
    """Predictions of all rows that were made without looking at them."""
    if kind_name == "tagging":
        return [[[tag] * len(row["words"]) for row in rows] for tag in kind.label_names]
    if kind_name == "answers":
        nothing = {"answer": "", "answers": [], "no_answer_margin": np.inf}
        others = np.random.default_rng(0).permutation(len(rows))
        return [[nothing] * len(rows), [predictions[number] for number in others]]
    return [[{"label": label}] * len(rows) for label in kind.label_names]


def _is_within_reach(row):
    """Whether the first true answer is short, and ends and begins where words do."""
    if not row["starts"]:
        return False
    context, start = row["context"], row["starts"][0]
    end = start + len(row["answers"][0])
    around = context[max(start - 1, 0) : start] + context[end : end + 1]
    return end - start <= MOST_CHARACTERS and not any(char.isalnum() for char in around)


def _spread(rows):
    """Some of the rows, evenly spaced."""
    places = np.linspace(0, len(rows) - 1, min(KNOWN_ROWS, len(rows))).round().astype(int)
    return [rows[place] for place in places]


def _few(numbers):
    shown = ", ".join(map(str, numbers[:5]))
    return f"{shown}, ..." if len(numbers) > 5 else shown or "no row"
