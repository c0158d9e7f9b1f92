"""From the predictions of a system to its numbers, with intervals and paired differences."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.special import bdtr

from hydractl.evaluation.results import (
    GROUPS,
    UNSEEN,
    Difference,
    Interval,
    LabelledMetrics,
    Ood,
    Resampled,
    Selective,
    ShiftMeans,
    SystemResult,
    SystemTemperature,
    Typicality,
    combined,
    mean,
)
from hydractl.evaluation.run import SystemPredictions
from hydractl.metrics.arrays import FloatArray
from hydractl.metrics.bootstrap import accuracy_replicates, percentile_interval, sets_replicates, share_interval
from hydractl.metrics.classification import PredictionTable
from hydractl.metrics.detection import accuracy_at_coverage, aurc, error_metrics, ood_metrics
from hydractl.systems.system import Cost, SetKey
from hydractl.tasks.task import Task

OWN = "own confidence"  # the name in a report of the score of a system that brings one
#: The kinds of corruption that published means leave out.
EXTRA = frozenset({"speckle_noise", "gaussian_blur", "spatter", "saturate"})
#: The default number of resamples, and the most samples that are resampled by default: more would take minutes.
RESAMPLES, MOST_RESAMPLED = 1000, 100_000
FEWEST = 3  # samples of a set that is resampled: intervals of two are too narrow, whatever their form
#: Shares of samples, or of pairs of them.
SHARES = frozenset({"accuracy", "coverage", "auroc", "fpr95", "msp_auroc", "msp_fpr95"})
#: The accuracy is below chance if guesses would be right so rarely with less than this probability.
BELOW_CHANCE = 0.05

T = TypeVar("T")
#: Arrays `[draws]` of resampled values.
Replicates = Resampled[FloatArray]


def numbers_of(predictions: SystemPredictions, cost: Cost | None) -> SystemResult:
    """Returns every number of one system."""
    id_set = id_key(predictions)
    ood = {key.name: _ood(key, predictions) for key in predictions.scores if key.role == "ood"}
    shift: dict[str, dict[str, LabelledMetrics]] = {}
    for key in predictions.scores:
        if key.role == "shift":
            shift.setdefault(key.name, {})[str(key.severity)] = _labelled(key, predictions)
    has_outcomes = id_set in predictions.with_msp or id_set in predictions.correct
    return SystemResult(
        id=_labelled(id_set, predictions),
        selective=_selective(predictions) if has_outcomes else None,
        score=OWN if predictions.own_confidence else None if predictions.own_fit is None else predictions.own_fit.score,
        typicality=_typicality(predictions),
        sure=predictions.sure,
        recall=predictions.recall,
        ood=ood,
        ood_means=group_means(ood),
        shift=shift or None,
        shift_means=shift_means(shift),
        conformal=predictions.sets,
        by_class=predictions.by_class,
        temperature=_temperature(predictions) if has_outcomes else None,
        cost=cost,
    )


def id_key(predictions: SystemPredictions) -> SetKey:
    """Returns the in-distribution set."""
    return next(key for key in predictions.scores if key.role == "id")


def alarms_of(predictions: SystemPredictions, classes: Sequence[str] | None) -> Iterator[str]:
    """Yields what makes all numbers doubtful: a temperature at its bound, an accuracy below chance."""
    fitted, id_set = predictions.fitted, id_key(predictions)
    if fitted is not None and fitted.at_bound:
        cause = (
            "all are predicted correctly: give more"
            if fitted.temperature == 1
            else "almost all answers are wrong: check them"
        )
        yield f"the temperature fitted to `calib_data`, {fitted.temperature:g}, is at its bound, since {cause}"
    if classes is None:
        return
    right = predictions.right(id_set)
    if bdtr(right.sum(), len(right), 1 / len(classes)) < BELOW_CHANCE:
        yield (
            f"the accuracy on {id_set.name}, {right.mean():.1%}, is below chance, {1 / len(classes):.1%}: "
            "check that its labels are those of the model's classes"
        )


def group_means(ood: Mapping[str, Ood], exposed: Collection[str] = ()) -> dict[str, Ood]:
    """Returns flat means over the near, the far and all sets, leaving out groups without sets.

    Args:
        exposed: the sets of the kind that some system's training saw; the others have a mean of their own then.
    """
    members = _groups({name: numbers.group for name, numbers in ood.items()}, exposed)
    return {group: mean([ood[name] for name in names]) for group, names in members.items() if names}


def _groups(group_of: Mapping[str, str | None], exposed: Collection[str]) -> dict[str, list[str]]:
    """Returns the OOD sets that are averaged, by group."""
    members = {group: [name for name, its_group in group_of.items() if group in (its_group, "all")] for group in GROUPS}
    return members | ({UNSEEN: [name for name in group_of if name not in exposed]} if exposed else {})


def shift_means(shift: Mapping[str, Mapping[str, LabelledMetrics]]) -> ShiftMeans | None:
    """Returns the means of published tables; None if there are fewer than two sets to average.

    Args:
        shift: by kind and severity. Kinds besides the benchmarks' fifteen count in no mean but their own.
    """
    counting = [by for kind, by in shift.items() if kind not in EXTRA]
    sets = [metrics for by in counting for metrics in by.values()]
    if len(sets) < 2:
        return None
    severities = sorted({severity for by in counting for severity in by}, key=int)
    return ShiftMeans(
        {severity: mean([by[severity] for by in counting if severity in by]) for severity in severities},
        {kind: mean(list(by.values())) for kind, by in shift.items()},
        mean(sets),
    )


def _labelled(key: SetKey, predictions: SystemPredictions) -> LabelledMetrics:
    table = predictions.tables.get(key)
    if table is None:
        correct = predictions.right(key)
        return LabelledMetrics(len(correct), accuracy=float(correct.mean()))
    metrics = predictions.task.metrics(table)
    return LabelledMetrics(len(predictions.scores[key]), **metrics, **_diversity(table))


def _ood(key: SetKey, predictions: SystemPredictions) -> Ood:
    id_scores, ood_scores = predictions.scores[id_key(predictions)], predictions.scores[key]
    metrics, diversity = ood_metrics(id_scores, ood_scores), _diversity(predictions.tables.get(key))
    beside = {}
    if predictions.own_fit is not None and key in predictions.with_msp:
        msp = ood_metrics(*(predictions.with_msp[set_key].doubt for set_key in (id_key(predictions), key)))
        beside = _as_msp(asdict(msp))
    return Ood(group=key.group, samples=len(ood_scores), **asdict(metrics), **beside, **diversity)


def _typicality(predictions: SystemPredictions) -> Typicality | None:
    if predictions.own_fit is None or predictions.flagged is None:
        return None
    return Typicality(predictions.own_fit.accept, 1 - predictions.flagged)


def _diversity(table: object) -> dict[str, float]:
    """Returns how much members differ, [HE] B.5; both numbers are 0 for a single network. Numbers have none."""
    if not isinstance(table, PredictionTable):
        return {}
    measures = {"mutual_information": table.mutual_information, "disagreement": table.disagreement}
    return {name: float(values.mean()) for name, values in measures.items()}


def _selective(predictions: SystemPredictions) -> Selective:
    id_set = id_key(predictions)
    confidence, correct = predictions.confidence(id_set), predictions.right(id_set)
    scores = predictions.scores[id_set]
    # What a file brings was chosen to tell OOD samples, not errors.
    doubt = scores if predictions.own_fit is None else -confidence
    errors = error_metrics(doubt, correct)
    at_coverage = {f"{share:g}": value for share, value in accuracy_at_coverage(confidence, correct).items()}
    selective = Selective(aurc(confidence, correct), at_coverage, **(asdict(errors) if errors else {}))
    if predictions.own_fit is None:
        return selective
    odd = error_metrics(scores, correct)
    return replace(
        selective,
        ood_score_aurc=aurc(-scores, correct),
        ood_score_misclassification_auroc=None if odd is None else odd.misclassification_auroc,
    )


def _temperature(predictions: SystemPredictions) -> SystemTemperature:
    value, fitted = predictions.calibration.divisor, predictions.fitted
    if fitted is None:
        return SystemTemperature(value)
    return SystemTemperature(value, fitted.nll_before, fitted.nll_after, argmax_changed=fitted.argmax_changed)


@dataclass(frozen=True)
class SystemNumbers:
    """A system by its name: its numbers, and resampled values of them."""

    name: str
    system: SystemResult
    replicates: Replicates | None = None

    @property
    def draws(self) -> int:
        """The number of resamples."""
        return 0 if self.replicates is None else len(next(iter(self.replicates.id.values())))


def resamples(requested: int | None, predictions: SystemPredictions, on_note: Callable[[str], None]) -> int:
    """Returns how often to resample: as wanted, or RESAMPLES times if that takes seconds; 0 if a set is too small."""
    sizes = [len(scores) for key, scores in predictions.scores.items() if key.role in ("id", "ood")]
    if min(sizes) < FEWEST:
        on_note(f"no intervals: they need {FEWEST} samples of each set, and one has {min(sizes)}")
        return 0
    if requested is not None:
        return requested
    if sum(sizes) > MOST_RESAMPLED:
        on_note(f"no intervals for {sum(sizes)} samples: `bootstrap` {RESAMPLES} computes them, which takes a while")
        return 0
    return RESAMPLES


def estimated(task: Task, table: Any, draws: int, seed: int, *, samples: int) -> dict[str, tuple[float, Interval]]:
    """Returns every number of a table of labelled samples with its interval, if each draw has the number."""
    numbers = {name: value for name, value in task.metrics(table).items() if value is not None}
    drawn = task.replicates(table, draws, seed) if numbers else {}
    estimates = {
        name: _Estimate(drawn[name], value, samples, name in SHARES) for name, value in numbers.items() if name in drawn
    }
    return {name: (estimate.number, _interval(estimate)) for name, estimate in estimates.items()}


def resample(
    predictions: SystemPredictions, replicates: int, seed: int, *, exposed: Collection[str] = ()
) -> Replicates:
    """Returns resampled values of a system's numbers; equal data and seed give equal draws, so systems are paired.

    Args:
        exposed: see `group_means`.
    """
    id_set = id_key(predictions)
    if id_set in predictions.tables:
        id_values = predictions.task.replicates(predictions.tables[id_set], replicates, seed)
    else:
        id_values = accuracy_replicates(predictions.right(id_set), replicates, seed)
    keys = [key for key in predictions.scores if key.role == "ood"]
    if not keys:
        return Resampled(id_values)
    scores = {key.name: predictions.scores[key] for key in keys}
    sets = sets_replicates(predictions.scores[id_set], scores, replicates, seed)
    if predictions.own_fit is not None and keys[0] in predictions.with_msp:
        msp = {key.name: predictions.with_msp[key].doubt for key in keys}
        by_msp = sets_replicates(predictions.with_msp[id_set].doubt, msp, replicates, seed)
        sets = {name: {**numbers, **_as_msp(by_msp[name])} for name, numbers in sets.items()}
    members = _groups({key.name: key.group for key in keys}, exposed)
    means = {group: combined(_mean_array, *(sets[name] for name in names)) for group, names in members.items() if names}
    return Resampled(id_values, sets, means)


def assemble(measured: Iterable[SystemNumbers], compare: str | None = None) -> dict[str, SystemResult]:
    """Returns systems by name, with intervals and differences to the first system.

    Args:
        compare: the system that also gets its differences to each of the others.
    """
    parts = list(measured)
    if any(part.system.typicality is not None for part in parts):
        parts = list(map(_with_msp, parts))
    exposed = {name for part in parts for name in part.system.exposed or ()}
    systems: dict[str, SystemResult] = {}
    drawn_of: dict[str, Resampled[_Estimate]] = {}
    for part in parts:
        system = part.system
        if part.replicates is not None:
            kinds = (system.resampled, _sizes(system, exposed), _shares(system))
            estimates = combined(_Estimate, part.replicates, *kinds)
            first = next(iter(drawn_of.values()), None)
            difference = None if first is None else combined(_difference, first, estimates)
            system = replace(
                system,
                intervals=combined(_interval, estimates),
                difference=difference,
                own_less_msp=None if system.typicality is None else _own_less_msp(estimates.ood or {}) or None,
            )
            drawn_of[part.name] = estimates
        systems[part.name] = system
    if compare in drawn_of:
        others = [name for name in drawn_of if name not in (compare, next(iter(systems)))]
        rivals = {name: combined(_difference, drawn_of[name], drawn_of[compare]) for name in others}
        systems[compare] = replace(systems[compare], rivals=rivals)
    return systems


def _sizes(system: SystemResult, exposed: Collection[str]) -> Resampled[int]:
    """Returns the samples of the smallest set that each number is of; see `group_means`."""
    inside = system.id.samples or MOST_RESAMPLED
    sizes = {name: min(inside, ood.samples or inside) for name, ood in system.ood.items()}
    groups = _groups({name: ood.group for name, ood in system.ood.items()}, exposed)
    fewest = {group: min((sizes[name] for name in names), default=inside) for group, names in groups.items()}
    return Resampled(
        dict.fromkeys(vars(system.id), inside),
        {name: dict.fromkeys(vars(ood), sizes[name]) for name, ood in system.ood.items()},
        {group: dict.fromkeys(vars(means), fewest.get(group, inside)) for group, means in system.ood_means.items()},
    )


def _shares(system: SystemResult) -> Resampled[bool]:
    """Returns which numbers are shares."""

    def of(numbers: Mapping[str, Any]) -> dict[str, bool]:
        return {name: name in SHARES for name in numbers}

    numbers = system.resampled
    ood, means = ({name: of(each) for name, each in (sets or {}).items()} for sets in (numbers.ood, numbers.ood_means))
    return Resampled(of(numbers.id), ood, means)


def _with_msp(part: SystemNumbers) -> SystemNumbers:
    """Returns the system with its numbers by the MSP once more, if that is its score."""
    system, drawn = part.system, part.replicates
    if system.score is not None:
        return part

    def twice(sets: Mapping[str, Ood]) -> dict[str, Ood]:
        return {name: replace(numbers, **_as_msp(vars(numbers))) for name, numbers in sets.items()}

    system = replace(system, ood=twice(system.ood), ood_means=twice(system.ood_means))
    if drawn is not None:
        ood, means = (
            {name: {**numbers, **_as_msp(numbers)} for name, numbers in (sets or {}).items()}
            for sets in (drawn.ood, drawn.ood_means)
        )
        drawn = replace(drawn, ood=ood, ood_means=means)
    return replace(part, system=system, replicates=drawn)


def _as_msp(numbers: Mapping[str, T]) -> dict[str, T]:
    """Returns those of the numbers by the MSP that stand beside a system's own score, under their names there."""
    return {"msp_auroc": numbers["auroc"], "msp_fpr95": numbers["fpr95"]}


class _Estimate(NamedTuple):
    """Resampled values of a number, `[draws]`, the number itself, the samples of its smallest set, and its kind."""

    draws: FloatArray
    number: float
    samples: int
    share: bool = False

    @property
    def centred(self) -> FloatArray:
        """The draws moved so that their mean is the number.

        Resampled data looks worse calibrated than the data it is drawn from: ECE's draws may all lie above its ECE.
        """
        return self.draws - self.draws.mean() + self.number


def _difference(theirs: _Estimate, ours: _Estimate) -> Difference:
    samples = min(ours.samples, theirs.samples)
    change = _Estimate(ours.draws - theirs.draws, ours.number - theirs.number, samples)
    return Difference(change.number, percentile_interval(change.centred, samples))


def _own_less_msp(sets: Mapping[str, Mapping[str, _Estimate]]) -> dict[str, dict[str, Difference]]:
    """Returns by OOD set the differences of a system's own score to the MSP."""
    return {
        name: {key: _difference(estimates[f"msp_{key}"], estimates[key]) for key in ("auroc", "fpr95")}
        for name, estimates in sets.items()
        if "msp_auroc" in estimates
    }


def _interval(estimate: _Estimate) -> Interval:
    # Centring and few samples can push bounds below 0 or beyond every draw; clip them.
    least, most = min(0, estimate.draws.min()), max(estimate.draws.max(), estimate.number)
    low, high = percentile_interval(estimate.centred, estimate.samples)
    low, high = max(low, least), min(high, most)
    if not estimate.share:
        return low, high
    # Draws of a share near 0 or 1 vary too little, at 0 and 1 not at all.
    lowest, highest = share_interval(estimate.number, estimate.samples, float(estimate.draws.var()))
    return min(low, lowest), max(high, highest)


def _mean_array(*arrays: FloatArray) -> FloatArray:
    return np.asarray(np.mean(arrays, axis=0))
