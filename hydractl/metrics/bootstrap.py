"""Certainty about the numbers: seeded percentile bootstrap over samples, paired across systems; the choice of a score.

Resampling leaves the order of the scores as it is, so samples are sorted once: each resample only counts how often each
score was drawn. The OOD score of a network is the first of a list that is within chance of the best.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from math import sqrt
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hydractl.metrics.arrays import FloatArray, IntArray
from hydractl.metrics.classification import ClassificationMetrics, PredictionTable, metrics_of_places
from hydractl.metrics.detection import OodMetrics, metrics_of_counts, ood_metrics, rank_scores
from hydractl.ood.ood_scores import BASELINE
from hydractl.text import aligned

LEVEL = 0.95  # share of the resampled values inside an interval
POWER = 0.8  # the probability that the samples show a true gain of the size found
Outcome = Literal["better", "worse", "within chance"]


def draw_places(sizes: Sequence[int], replicates: int = 1000, seed: int = 0) -> Iterator[list[IntArray]]:
    """Yields for each resample the places of the samples drawn with replacement, `[N]` of each data set of N samples.

    Equal sizes and seed draw equal samples, so replicates of two systems on the same data are paired.
    """
    generator = np.random.default_rng(seed)
    for _ in range(replicates):
        yield [generator.integers(size, size=size) for size in sizes]


def percentile_interval(values: FloatArray, samples: int) -> tuple[float, float]:
    """Returns the bounds of the middle 95 % of resampled values [draws], widened about their mean for few samples.

    Draws from N samples vary less than samples do, by a factor of (1 - 1 / N)^.5, and the deviation that they show is
    uncertain, for which Student's t stands.

    Args:
        samples: N, of several sets that of the smallest; 1 counts as 2.

    Source: Hesterberg 2015, 3.2.
    """
    from scipy.special import stdtrit

    tail, middle, samples = (1 - LEVEL) / 2, values.mean(), max(samples, 2)
    wider = stdtrit(samples - 1, 1 - tail) / NormalDist().inv_cdf(1 - tail) * sqrt(samples / (samples - 1))
    low, high = middle + wider * (np.quantile(values, [tail, 1 - tail]) - middle)
    return float(low), float(high)


def share_interval(share: float, samples: int, variance: float = 0.0) -> tuple[float, float]:
    """Returns the 95 % bounds of a share, which have a width at 0 and 1 too.

    Args:
        share: 0..1.
        samples: of several sets those of the smallest. A smaller variance of the share counts as more.
        variance: of its resampled values.

    Source: Wilson 1927.

    >>> [round(bound, 3) for bound in share_interval(1.0, 100)]
    [0.963, 1.0]
    """
    normal, spread = NormalDist().inv_cdf((1 + LEVEL) / 2), share * (1 - share)
    if variance > 0:
        samples = max(samples, round(spread / variance))
    shift = normal**2 / samples
    middle, half = (share + shift / 2) / (1 + shift), sqrt(shift * (spread + shift / 4)) / (1 + shift)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def outcome(value: float, interval: tuple[float, float], higher_is_better: bool, compared: int) -> Outcome:
    """Classifies a difference, Bonferroni-corrected for how many numbers are compared.

    The correction widens the interval as that of a normal distribution. A gain must also be so large that the samples
    show one of its size with the probability POWER, since what barely shows is overestimated.

    >>> [outcome(value, (value - 1, value + 1), True, 1) for value in (1.5, 1.3, -1.1)]
    ['better', 'within chance', 'worse']
    """
    normal, (low, high) = NormalDist(), interval
    sign = 1 if higher_is_better else -1
    to_loss, to_gain = (value - low, high - value) if higher_is_better else (high - value, value - low)
    alone, corrected = (normal.inv_cdf(1 - (1 - LEVEL) / 2 / numbers) for numbers in (1, compared))
    if sign * value > to_loss * (corrected + normal.inv_cdf(POWER)) / alone:
        return "better"
    return "worse" if -sign * value > to_gain * corrected / alone else "within chance"


def classification_replicates(table: PredictionTable, replicates: int = 1000, seed: int = 0) -> dict[str, FloatArray]:
    """Returns resampled values [draws] of every field of ClassificationMetrics."""
    of, drawn = metrics_of_places(table), draw_places([table.msp.size], replicates, seed)
    return by_field(ClassificationMetrics, [of(places) for [places] in drawn])


def accuracy_replicates(correct: NDArray[np.bool_], replicates: int = 1000, seed: int = 0) -> dict[str, FloatArray]:
    """Returns resampled values [draws] of the accuracy alone, drawn as `classification_replicates` draws.

    Args:
        correct: [N] booleans.
    """
    return {
        "accuracy": np.array([correct[places].mean() for [places] in draw_places([correct.size], replicates, seed)])
    }


def sets_replicates(
    id_scores: NDArray[np.floating],
    ood_scores: Mapping[str, NDArray[np.floating]],
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, dict[str, FloatArray]]:
    """Returns resampled values [draws] of every field of OodMetrics for each OOD set.

    ID and OOD samples are resampled apart; one draw of the ID samples serves all sets, so means over sets are right.
    The order of the sets changes nothing: saved predictions have them in another.

    Args:
        id_scores: [N] higher = more OOD.
        ood_scores: [N'] of each set likewise, at least one set.
    """
    ranked = {name: rank_scores(id_scores, ood_scores[name]) for name in sorted(ood_scores)}
    drawn: dict[str, list[OodMetrics]] = {name: [] for name in ood_scores}
    sizes = [len(id_scores), *(len(ood_scores[name]) for name in ranked)]
    for id_places, *ood_places in draw_places(sizes, replicates, seed):
        for (name, (levels, id_ranks, ood_ranks)), places in zip(ranked.items(), ood_places, strict=True):
            id_counts = np.bincount(id_ranks[id_places], minlength=levels)
            drawn[name].append(metrics_of_counts(id_counts, np.bincount(ood_ranks[places], minlength=levels)))
    return {name: by_field(OodMetrics, values) for name, values in drawn.items()}


def by_field(metrics: type[Any], values: Sequence[Any]) -> dict[str, FloatArray]:
    """Returns the values [draws] of each field of a class of metrics."""
    columns = np.array([astuple(value) for value in values]).T
    return dict(zip((field.name for field in fields(metrics)), columns, strict=True))


@dataclass(frozen=True)
class RatedScore:
    """Detection of the given OOD sets by one score."""

    score: str
    auroc: Mapping[str, float]  # of each set, 0..1
    fpr95: Mapping[str, float]  # of each set, 0..1
    below_best: tuple[float, float]  # the 95 % interval of how far its mean AUROC is below the best one, paired

    @property
    def mean_auroc(self) -> float:
        """The mean over the sets."""
        return float(np.mean(list(self.auroc.values())))


@dataclass(frozen=True)
class LeftOut:
    """Leave-one-set-out check: the score chosen without this set, and its AUROC on it."""

    score: str
    auroc: float  # of that score, 0..1
    baseline: float  # the AUROC of the MSP


@dataclass(frozen=True)
class Worse:
    """A metric of one OOD set in which the chosen score is worse than the MSP beyond chance; both 0..1."""

    set: str
    metric: str  # AUROC or FPR95
    baseline: float
    chosen: float


@dataclass(frozen=True)
class Choice:
    """The OOD score that was chosen, what each score does on the sets given, and how well the choice carries over."""

    score: str
    rated: tuple[RatedScore, ...]
    left_out: Mapping[str, LeftOut]
    worse: tuple[Worse, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yields a table, the chosen score marked, and the sets left out in turn."""
        sets = list(self.rated[0].auroc)
        yield "AUROC (FPR95) in % by OOD score, on the data given; * the score that is stored"
        rows = [["OOD score", "mean", *sets]]
        for rated in self.rated:
            mark = " *" if rated.score == self.score else ""
            fpr95 = float(np.mean(list(rated.fpr95.values())))
            numbers = [(rated.mean_auroc, fpr95), *zip(rated.auroc.values(), rated.fpr95.values(), strict=True)]
            rows.append([rated.score + mark, *(f"{100 * auroc:.1f} ({100 * fpr:.0f})" for auroc, fpr in numbers)])
        yield from aligned(rows, left=len(rows[0]))
        for name, other in self.left_out.items():
            yield (
                f"without {name} the choice is {other.score}: AUROC {100 * other.auroc:.1f} there, "
                f"{BASELINE} {100 * other.baseline:.1f}"
            )

    def warnings(self) -> Iterator[str]:
        """Yields where the score does harm: sets on which it is worse than the MSP, and those worse than a coin."""
        for worse in self.worse:
            change = f"{worse.metric} {100 * worse.baseline:.1f} to {100 * worse.chosen:.1f} %"
            yield f"OOD score {self.score} is worse than {BASELINE} on {worse.set}: {change}"
        [chosen] = (rated for rated in self.rated if rated.score == self.score)
        for of, auroc in chosen.auroc.items():
            if auroc < 0.5:
                yield f"OOD score {self.score} is worse than a coin on {of}: AUROC {100 * auroc:.1f} %"


def choose_score(
    id_scores: Mapping[str, FloatArray],
    ood_scores: Mapping[str, Mapping[str, FloatArray]],
    replicates: int = 1000,
    fixed: str | None = None,
) -> Choice:
    """Returns the first score whose mean AUROC is the best, or is below the best by no more than chance.

    Chance is a paired bootstrap: 0 lies in the 95 % interval of the difference. Each set is left out once.

    Args:
        id_scores: `[N]` of ID samples by score, the preferred score first, MSP among them; higher = more OOD.
        ood_scores: `[N']` of each OOD set by score, at least one set.
        fixed: the score to take instead.
    """
    sets = list(ood_scores[BASELINE])
    measured = {name: {of: ood_metrics(id_scores[name], ood_scores[name][of]) for of in sets} for name in id_scores}
    auroc = {name: np.array([by_set[of].auroc for of in sets]) for name, by_set in measured.items()}
    draws = {name: sets_replicates(id_scores[name], ood_scores[name], replicates) for name in id_scores}
    drawn = {name: np.stack([by_set[of]["auroc"] for of in sets]) for name, by_set in draws.items()}  # [sets,draws]
    count, every = len(id_scores[BASELINE]), range(len(sets))
    sizes = [min(count, len(scores)) for scores in ood_scores[BASELINE].values()]
    best = _best(auroc, every)
    left_out = {}
    for place, of in enumerate(sets if len(sets) > 1 and fixed is None else ()):
        name = _first_unbeaten(auroc, drawn, sizes, [other for other in every if other != place])
        left_out[of] = LeftOut(name, float(auroc[name][place]), float(auroc[BASELINE][place]))
    rated = tuple(
        RatedScore(
            name,
            {of: measured[name][of].auroc for of in sets},
            {of: measured[name][of].fpr95 for of in sets},
            percentile_interval((drawn[best] - drawn[name]).mean(0), min(sizes)),
        )
        for name in id_scores
    )
    score = fixed or _first_unbeaten(auroc, drawn, sizes, every)
    worse = []
    for of, size, field in ((*pair, field) for pair in zip(sets, sizes, strict=True) for field in ("auroc", "fpr95")):
        before, after = (getattr(measured[name][of], field) for name in (BASELINE, score))
        interval = percentile_interval(draws[score][of][field] - draws[BASELINE][of][field], size)
        if outcome(after - before, interval, field == "auroc", 2 * len(sets)) == "worse":
            worse.append(Worse(of, field.upper(), before, after))
    return Choice(score, rated, left_out, tuple(worse))


def _best(auroc: Mapping[str, FloatArray], places: Sequence[int]) -> str:
    return max(auroc, key=lambda name: auroc[name][list(places)].mean())


def _first_unbeaten(
    auroc: Mapping[str, FloatArray], drawn: Mapping[str, FloatArray], sizes: Sequence[int], places: Sequence[int]
) -> str:
    """Returns the first score that is within chance of the best on the sets at some places."""
    chosen, best, fewest = list(places), _best(auroc, places), min(sizes[place] for place in places)
    losses = {name: (drawn[best][chosen] - drawn[name][chosen]).mean(0) for name in auroc}
    return next(name for name in auroc if name == best or percentile_interval(losses[name], fewest)[0] <= 0)
