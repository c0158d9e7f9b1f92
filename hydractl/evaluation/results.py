"""The result of evaluating one system, and its form in a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

from hydractl.data.corruptions import CORRUPTIONS
from hydractl.errors import DataError
from hydractl.evaluation.cost import Cost
from hydractl.evaluation.run import Predictions
from hydractl.evaluation.sets import SetKey
from hydractl.evaluation.settings import Settings
from hydractl.metrics.calibration import ClassificationMetrics
from hydractl.metrics.conformal import ConformalMetrics, conformal_metrics
from hydractl.metrics.diversity import DiversityMetrics, diversity_metrics
from hydractl.metrics.ood_detection import OodMetrics
from hydractl.metrics.selective import ErrorMetrics, SelectiveMetrics, error_metrics, selective_metrics

#: The set names that stand for means; `all` is the mean over every set, grouped or not.
GROUPS = ("near", "far", "all")
BINS = 15  # of confidence, for both calibration errors
OWN = "own confidence"  # what a report calls the score of a system that brings one
#: The kinds of corruption that published means leave out.
EXTRA = frozenset(kind.name for kind in CORRUPTIONS if kind.extra)
#: What a report says of a temperature that was fitted.
FITTED = ("nll_before", "nll_after", "argmax_changed")


@dataclass(frozen=True)
class OodResult:
    """How well one OOD set is told from the ID set; a mean over sets has the samples of all of them."""

    samples: int
    detection: OodMetrics
    diversity: DiversityMetrics | None
    group: str | None = None

    def to_json(self) -> dict[str, Any]:
        group = {} if self.group is None else {"group": self.group}
        return {**group, "samples": self.samples, **asdict(self.detection), **_fields(self.diversity)}


@dataclass(frozen=True)
class AccuracyAlone:
    """How well samples are classified of which confidences are all that is known."""

    accuracy: float


@dataclass(frozen=True)
class LabelledResult:
    """How well labelled samples are classified, and how much the members differ on them."""

    samples: int
    classification: ClassificationMetrics | AccuracyAlone
    diversity: DiversityMetrics | None

    def to_json(self) -> dict[str, Any]:
        return {"samples": self.samples, **asdict(self.classification), **_fields(self.diversity)}


@dataclass(frozen=True)
class ShiftMeans:
    """Flat means over shifted sets: at each severity over kinds, of each kind over severities, and over all sets."""

    by_severity: Mapping[int, LabelledResult]
    by_kind: Mapping[str, LabelledResult]
    all: LabelledResult

    def to_json(self) -> dict[str, Any]:
        return {
            "by_severity": {str(severity): result.to_json() for severity, result in self.by_severity.items()},
            "by_kind": {kind: result.to_json() for kind, result in self.by_kind.items()},
            "all": self.all.to_json(),
        }


@dataclass(frozen=True)
class SystemResult:
    """What METHOD-defined metrics say of one system; `means` are flat means over the sets of a group.

    Attributes:
        errors: how well its score tells wrong ID predictions from right ones; None where there are not both.
        confident: whether it is scored by a confidence of its own.
    """

    id: LabelledResult
    selective: SelectiveMetrics
    errors: ErrorMetrics | None
    ood: Mapping[str, OodResult]
    means: Mapping[str, OodResult]
    cost: Cost | None
    temperature: Mapping[str, Any]
    shift: Mapping[str, Mapping[int, LabelledResult]] = field(default_factory=dict)
    conformal: ConformalMetrics | None = None
    confident: bool = False

    def to_json(self) -> dict[str, Any]:
        """The system's entry in a report."""
        shift = {name: {str(n): r.to_json() for n, r in by.items()} for name, by in self.shift.items()}
        return {
            "id": self.id.to_json(),
            "selective": {
                "aurc": self.selective.aurc,
                "accuracy_at_coverage": {f"{share:g}": value for share, value in self.selective.accuracy_at_coverage},
                **_fields(self.errors),
            },
            **({"score": OWN} if self.confident else {}),
            "ood": {name: result.to_json() for name, result in self.ood.items()},
            "ood_means": {name: result.to_json() for name, result in self.means.items()},
            **({"shift": shift} if shift else {}),
            **({} if (means := shift_means(self.shift)) is None else {"shift_means": means.to_json()}),
            **({"conformal": asdict(self.conformal)} if self.conformal else {}),
            "temperature": dict(self.temperature),
            "cost": None if self.cost is None else asdict(self.cost),
        }


def measure(predictions: Predictions, cost: Cost | None, settings: Settings) -> SystemResult:
    """Every metric of one system.

    Args:
        predictions: on the in-distribution set and any others.
        cost: of the system, passed through.

    Raises:
        DataError: the ID samples have no labels, or the style has no such score.
    """
    inside = id_key(predictions)
    ood = {key.name: _ood_result(key, predictions, settings) for key in predictions.scores if key.role == "ood"}
    shift: dict[str, dict[int, LabelledResult]] = {}
    for key in predictions.scores:
        if key.role == "shift" and key.severity is not None:
            shift.setdefault(key.name, {})[key.severity] = _labelled(key, predictions, settings)
    style, confidence, correct = settings.definitions, predictions.confidence(inside), predictions.right(inside)
    selective = selective_metrics(confidence, correct)
    return SystemResult(
        id=_labelled(inside, predictions, settings),
        selective=replace(selective, aurc=style.aurc(confidence, correct)),
        errors=error_metrics(predictions.scores[inside], correct, style.ood_metrics),
        ood=ood,
        means=group_means(ood),
        cost=cost,
        temperature=_temperature_json(predictions),
        shift=shift,
        conformal=None if predictions.sets is None else conformal_metrics(predictions.sets),
        confident=predictions.confident,
    )


def id_key(predictions: Predictions) -> SetKey:
    """The in-distribution set.

    Raises:
        DataError: there is none.
    """
    for key in predictions.scores:
        if key.role == "id":
            return key
    raise DataError("an evaluation needs in-distribution data")


def group_means(ood: Mapping[str, OodResult]) -> dict[str, OodResult]:
    """Flat means over the near, the far and all sets; a group without sets is left out."""
    members = {group: [r for r in ood.values() if group in (r.group, "all")] for group in GROUPS}
    return {group: _mean(results) for group, results in members.items() if results}


def shift_means(shift: Mapping[str, Mapping[int, LabelledResult]]) -> ShiftMeans | None:
    """The means of published tables; None where there are fewer than two sets to average.

    Args:
        shift: by kind and severity. Kinds besides the benchmarks' fifteen count in no mean but their own.
    """
    counting = {kind: by for kind, by in shift.items() if kind not in EXTRA}
    results = [result for by in counting.values() for result in by.values()]
    if len(results) < 2:
        return None
    severities = sorted({severity for by in counting.values() for severity in by})
    return ShiftMeans(
        {n: _mean_labelled([by[n] for by in counting.values() if n in by]) for n in severities},
        {kind: _mean_labelled(list(by.values())) for kind, by in shift.items()},
        _mean_labelled(results),
    )


def _mean_labelled(results: Sequence[LabelledResult]) -> LabelledResult:
    kind = type(results[0].classification)  # of one system all are alike
    diversity = [asdict(result.diversity) for result in results if result.diversity is not None]
    return LabelledResult(
        samples=sum(result.samples for result in results),
        classification=kind(**_field_means(asdict(result.classification) for result in results)),
        diversity=DiversityMetrics(**_field_means(diversity)) if diversity else None,
    )


def _labelled(key: SetKey, predictions: Predictions, settings: Settings) -> LabelledResult:
    table = predictions.tables.get(key)
    if table is None:
        correct = predictions.right(key)
        return LabelledResult(len(correct), AccuracyAlone(float(correct.mean())), None)
    return LabelledResult(
        len(table.msp), settings.definitions.classification_metrics(table, BINS), diversity_metrics(table)
    )


def _ood_result(key: SetKey, predictions: Predictions, settings: Settings) -> OodResult:
    inside, outside = predictions.scores[id_key(predictions)], predictions.scores[key]
    return OodResult(
        samples=len(outside),
        detection=settings.definitions.ood_metrics(inside, outside),
        diversity=diversity_metrics(predictions.tables[key]) if key in predictions.tables else None,
        group=key.group,
    )


def _temperature_json(predictions: Predictions) -> dict[str, Any]:
    fitted = predictions.calibration.fitted
    return {
        "value": predictions.calibration.temperature,
        **({} if fitted is None else {name: getattr(fitted, name) for name in FITTED}),
    }


def _mean(results: list[OodResult]) -> OodResult:
    diversity = [asdict(result.diversity) for result in results if result.diversity is not None]
    return OodResult(
        samples=sum(result.samples for result in results),
        detection=OodMetrics(**_field_means(asdict(result.detection) for result in results)),
        diversity=DiversityMetrics(**_field_means(diversity)) if diversity else None,
    )


def _fields(metrics: DiversityMetrics | ErrorMetrics | None) -> dict[str, Any]:
    return {} if metrics is None else asdict(metrics)


def _field_means(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    table = list(rows)
    return {name: fmean(row[name] for row in table) for name in table[0]}
