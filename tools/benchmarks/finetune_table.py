"""The figures of fine-tuning as lines of text: what is quoted, and what stands beside it."""

import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Entrant:
    """A library with a setting of its own, which the contestant knows; "" is its default."""

    library: str
    dtype: str
    setting: str = ""

    @property
    def name(self):
        return ", ".join(filter(None, (self.library, self.dtype, self.setting)))


def epoch_seconds(results):
    """Median seconds of the epochs after the first, which traces and warms up, of all seeds."""
    return statistics.median(each for result in results for each in result["seconds"][1:])


def heat_line(entrant, result):
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return (
        f"{entrant.name:32} {epoch_seconds([result]):7.2f} s an epoch after the first of "
        f"{result['seconds'][0]:.2f}; a product at {result['product_gflops']:,.0f} GFLOP/s; {versions}"
    )


def best_of_libraries(results):
    """{library: its entrant with the fastest epochs after the first}

    Args:
        results: {Entrant: [result of each seed]}
    """
    best = {}
    for entrant in sorted(results, key=lambda each: epoch_seconds(results[each])):
        best.setdefault(entrant.library, entrant)
    return best


def table(results, scores, metric, ours="keras_bert"):
    """Lines of the best entrant of each library, and of its ratio to ours.

    Args:
        results: {Entrant: [result of each seed]}; a result has `seconds` of each epoch, `before_gib`
            and `peak_gib`.
        scores: {Entrant: [score of each seed]}
        metric: Name of the score.
    """
    best = best_of_libraries(results)
    lines = [
        f"{'':32} {metric + ', mean of seeds':>24}  s an epoch   (least - most)   first  "
        "GiB before training, at most"
    ]
    for entrant in best.values():
        of_seeds = results[entrant]
        later = [each for result in of_seeds for each in result["seconds"][1:]]
        first = statistics.median(result["seconds"][0] for result in of_seeds)
        mean, *spread = _mean_and_deviation(scores[entrant])
        score = f"{mean:.4f}" + (f" ± {spread[0]:.4f}" if spread else "")
        before, peak = (max(result[name] for result in of_seeds) for name in ("before_gib", "peak_gib"))
        lines.append(
            f"{entrant.name:32} {score:>24}  {epoch_seconds(of_seeds):10.2f}  "
            f"({min(later):6.2f} - {max(later):6.2f})  {first:6.2f}  {before:5.2f}  {peak:5.2f}"
        )
    if ours in best:
        own = results[best[ours]]
        own_peak = max(result["peak_gib"] for result in own)
        for library in best.keys() - {ours}:
            of_seeds = results[best[library]]
            peak = max(result["peak_gib"] for result in of_seeds)
            lines.append(
                f"{library} / {ours}: {epoch_seconds(of_seeds) / epoch_seconds(own):.2f} x the seconds "
                f"of an epoch, {peak / own_peak:.2f} x the memory"
            )
    return lines


def _mean_and_deviation(values):
    deviation = [statistics.stdev(values)] if len(values) > 1 else []
    return [statistics.mean(values), *deviation]
