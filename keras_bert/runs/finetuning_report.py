"""The page that a finished fine-tuning run leaves: scores, curves, mistakes."""

import posixpath

from keras_bert.files import write_atomically
from keras_bert.runs.drawings import draw_learning


def write_task_report(recipe, metric, metrics, results, mistakes, drawing=None, shown=10):
    """Writes report.md and learning.png: scores, curves and the worst mistakes of a fine-tuning run.

    Args:
        recipe: A FinetuneRecipe.
        metric: The score that chose the best epoch.
        metrics: As metrics.json holds them.
        results: Of each seed: its history.
        mistakes: Of the best model on the development data, the worst first.
        drawing: File in the folder that shows what it got right there; None without.
        shown: How many of them to show.
    """
    folder = recipe.workdir
    draw_learning(
        [result["history"] for result in results], metric, posixpath.join(folder, "learning.png")
    )
    names = [split for split in metrics if isinstance(metrics[split], dict)]
    lines = [
        f"# {recipe.task}",
        "",
        f"{len(results)} run(s) from {recipe.init}, {recipe.epochs} epochs of batches of "
        f"{recipe.batch_size}, peak rate {recipe.learning_rate:g}; training took "
        f"{metrics['seconds_per_epoch']:.1f} s an epoch.",
        f"The best epoch is that with the highest {metric} on dev.",
        "",
        "| score | " + " | ".join(names) + " |",
        "| --- |" + " --- |" * len(names),
    ]
    for score in metrics[names[0]]:
        cells = [_cell(metrics[split].get(score)) for split in names]
        lines.append(f"| {score} | " + " | ".join(cells) + " |")
    lines += ["", "![learning](learning.png)", ""]
    if drawing:
        lines += ["## The best model on dev", "", f"![dev]({drawing})", ""]
    lines += ["## Worst mistakes on dev", ""]
    lines += ["| text | truth | prediction |", "| --- | --- | --- |"]
    for each in mistakes[:shown]:
        cells = (each[name].replace("|", "\\|").replace("\n", " ") for name in each)
        lines.append("| " + " | ".join(cell[:300] for cell in cells) + " |")
    write_atomically(posixpath.join(folder, "report.md"), "\n".join(lines) + "\n")


def _cell(spread):
    if spread is None:
        return ""
    if len(spread["values"]) == 1:
        return f"{spread['mean']:.4g}"
    return f"{spread['mean']:.4g} ± {spread['deviation']:.2g}"
