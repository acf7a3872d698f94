"""Scores of a whole data set, from predictions and truths: the measures of each kind of task."""

import collections
import re
import string

import numpy as np

from keras_bert.text.entities import entities


def score_labels(truths, predictions, label_names):
    """Accuracy, F1 and Matthews correlation of one label for each row.

    Args:
        truths, predictions: Numbers of labels, of one length.
        label_names: Their names; where there are two, the second is the positive one.

    Returns:
        accuracy, f1 (binary with two labels, else macro), f1_macro, f1_micro, matthews.
    """
    from sklearn.metrics import f1_score, matthews_corrcoef

    truths, predictions = np.asarray(truths), np.asarray(predictions)
    labels = list(range(len(label_names)))

    def f1(average, labels=labels):
        return float(f1_score(truths, predictions, labels=labels, average=average, zero_division=0))

    macro = f1("macro")
    is_constant = np.ptp(truths) == 0 or np.ptp(predictions) == 0  # and so correlates with nothing
    return {
        "accuracy": float(np.mean(truths == predictions)),
        "f1": f1("binary", None) if len(labels) == 2 else macro,
        "f1_macro": macro,
        "f1_micro": f1("micro"),
        "matthews": 0.0 if is_constant else float(matthews_corrcoef(truths, predictions)),
    }


def score_numbers(truths, predictions):
    """Pearson and Spearman correlation, their mean (as GLUE's STS-B), and the root mean square error.

    A constant has no correlation with anything: 0.
    """
    from scipy import stats

    truths, predictions = (np.asarray(x, "float64") for x in (truths, predictions))
    is_constant = len(truths) < 2 or np.ptp(truths) == 0 or np.ptp(predictions) == 0
    pearson, spearman = (
        0.0 if is_constant else float(correlation(truths, predictions).statistic)
        for correlation in (stats.pearsonr, stats.spearmanr)
    )
    return {
        "pearson": pearson,
        "spearman": spearman,
        "correlation": (pearson + spearman) / 2,
        "rmse": float(np.sqrt(np.mean((truths - predictions) ** 2))),
    }


def score_label_sets(truths, predictions):
    """Scores of a yes or no for each label.

    Shapes (B rows, C labels):
        truths, predictions  (B, C)  0 or 1

    Returns:
        f1_micro, f1_macro, exact (share of rows without a mistake), accuracy (share of right answers).
    """
    from sklearn.metrics import f1_score

    truths, predictions = np.asarray(truths).astype(bool), np.asarray(predictions).astype(bool)
    return {
        "f1_micro": float(f1_score(truths, predictions, average="micro", zero_division=0)),
        "f1_macro": float(f1_score(truths, predictions, average="macro", zero_division=0)),
        "exact": float(np.mean((truths == predictions).all(-1))),
        "accuracy": float(np.mean(truths == predictions)),
    }


def score_tags(truths, predictions):
    """Precision, recall and F1 of whole entities, as seqeval counts them, and accuracy of tags.

    An entity is right when its type and its first and last word are. "f1" is seqeval's default mode
    (that of CoNLL's script), "f1_strict" its strict mode, where an entity must begin with B.

    Args:
        truths, predictions: Lists of sentences, each a list of tags in BIO form; of the same lengths.
    """
    scores = {}
    for suffix, strict in (("", False), ("_strict", True)):
        right = found = wanted = 0
        for truth, prediction in zip(truths, predictions, strict=True):
            expected, got = (set(entities(tags, strict)) for tags in (truth, prediction))
            right, found, wanted = (
                right + len(expected & got),
                found + len(got),
                wanted + len(expected),
            )
        precision = right / found if found else 0.0
        recall = right / wanted if wanted else 0.0
        scores[f"f1{suffix}"] = 2 * right / (found + wanted) if right else 0.0
        scores[f"precision{suffix}"], scores[f"recall{suffix}"] = precision, recall
    pairs = [
        pair
        for sentences in zip(truths, predictions, strict=True)
        for pair in zip(*sentences, strict=True)
    ]
    scores["accuracy"] = sum(a == b for a, b in pairs) / len(pairs) if pairs else 0.0
    return scores


def score_answers(answers, predictions):
    """Exact match and F1 of answers, in percent, as the official script of SQuAD scores them.

    Rajpurkar et al. 2016 and 2018: the best over the true answers of each question; a question without
    an answer wants "".

    Args:
        answers: {question id: list of true answers, empty where there is none}.
        predictions: {question id: answer}, "" for none.

    Returns:
        exact, f1, and where some question has no answer the same of those with (has_answer_...) and
        without (no_answer_...).
    """
    values = _answer_values(answers, predictions)
    groups = {"": list(answers)}
    has_answer = [question for question, wanted in answers.items() if wanted]
    if len(has_answer) < len(answers):
        groups["has_answer_"] = has_answer
        groups["no_answer_"] = [question for question, wanted in answers.items() if not wanted]
    scores = {}
    for prefix, questions in groups.items():
        for name, of_name in values.items():
            mean = np.mean([of_name[question] for question in questions]) if questions else 0.0
            scores[prefix + name] = 100 * float(mean)
    return scores


def best_answers(answers, predictions, no_answer_scores):
    """The scores with the best threshold above which no answer is taken, as version 2.0 searches it.

    Args:
        answers: As in `score_answers`.
        predictions: {question id: the answer that is given below the threshold}.
        no_answer_scores: {question id: how much more likely no answer is}.

    Returns:
        best_exact and best_f1, in percent, and the threshold of each; below all scores where it is best
        to answer nothing.
    """
    ordered = sorted(no_answer_scores, key=no_answer_scores.get)
    scores = {}
    for name, values in _answer_values(answers, predictions).items():
        total = best = sum(not answers[question] for question in ordered)  # none is answered
        threshold = no_answer_scores[ordered[0]] - 1.0 if ordered else 0.0
        for place, question in enumerate(ordered, 1):
            if answers[question]:
                total += values[question]
            elif predictions[question]:
                total -= 1
            margin = no_answer_scores[question]
            is_tied = place < len(ordered) and no_answer_scores[ordered[place]] == margin
            if total > best and not is_tied:  # a threshold takes all of one score or none
                best, threshold = total, margin
        scores[f"best_{name}"] = 100 * best / max(len(ordered), 1)
        scores[f"best_{name}_threshold"] = threshold
    return scores


def _answer_values(answers, predictions):
    """{"exact" and "f1": {question id: the best over its true answers, 0 to 1}}"""
    exact, f1 = {}, {}
    for question, wanted in answers.items():
        got = predictions[question]
        wanted = [answer for answer in wanted if _normal(answer)] or [""]
        exact[question] = max(float(_normal(got) == _normal(answer)) for answer in wanted)
        f1[question] = max(_overlap(got, answer) for answer in wanted)
    return {"exact": exact, "f1": f1}


def _overlap(got, wanted):
    """F1 of the words of two answers."""
    got, wanted = _normal(got).split(), _normal(wanted).split()
    if not got or not wanted:
        return float(got == wanted)
    shared = sum((collections.Counter(got) & collections.Counter(wanted)).values())
    return 2 * shared / (len(got) + len(wanted)) if shared else 0.0


def _normal(answer):
    """Lower case, without punctuation, articles and surplus spaces."""
    answer = "".join(char for char in answer.lower() if char not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", answer).split())
