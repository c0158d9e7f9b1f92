"""The result of evaluating one system, and its form in a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from hydractl.errors import DataError
from hydractl.evaluation.cost import Cost
from hydractl.evaluation.run import Predictions
from hydractl.evaluation.sets import SetKey
from hydractl.evaluation.settings import Settings
from hydractl.uncertainty.calibration import ClassificationMetrics
from hydractl.uncertainty.conformal import ConformalMetrics, conformal_metrics
from hydractl.uncertainty.diversity import DiversityMetrics, diversity_metrics
from hydractl.uncertainty.ood_detection import OodMetrics
from hydractl.uncertainty.selective import SelectiveMetrics, selective_metrics
from hydractl.uncertainty.table import PredictionTable

#: The set names that stand for means; `all` is the mean over every set, grouped or not.
GROUPS = ("near", "far", "all")
BINS = 15  # of confidence, for both calibration errors
#: What a report says of a temperature that was fitted.
FITTED = ("nll_before", "nll_after", "argmax_changed")


@dataclass(frozen=True)
class OodResult:
    """How well one OOD set is told from the ID set; a mean over sets has the samples of all of them."""

    samples: int
    detection: OodMetrics
    diversity: DiversityMetrics
    group: str | None = None

    def to_json(self) -> dict[str, Any]:
        group = {} if self.group is None else {"group": self.group}
        return {**group, "samples": self.samples, **asdict(self.detection), **asdict(self.diversity)}


@dataclass(frozen=True)
class LabelledResult:
    """How well labelled samples are classified, and how much the members differ on them."""

    samples: int
    classification: ClassificationMetrics
    diversity: DiversityMetrics

    def to_json(self) -> dict[str, Any]:
        return {"samples": self.samples, **asdict(self.classification), **asdict(self.diversity)}


@dataclass(frozen=True)
class SystemResult:
    """What METHOD-defined metrics say of one system; `means` are flat means over the sets of a group."""

    id: LabelledResult
    selective: SelectiveMetrics
    ood: Mapping[str, OodResult]
    means: Mapping[str, OodResult]
    cost: Cost | None
    temperature: Mapping[str, Any]
    shift: Mapping[str, Mapping[int, LabelledResult]] = field(default_factory=dict)
    conformal: ConformalMetrics | None = None

    def to_json(self) -> dict[str, Any]:
        """The system's entry in a report."""
        shift = {name: {str(n): r.to_json() for n, r in by.items()} for name, by in self.shift.items()}
        return {
            "id": self.id.to_json(),
            "selective": {
                "aurc": self.selective.aurc,
                "accuracy_at_coverage": {f"{share:g}": value for share, value in self.selective.accuracy_at_coverage},
                "misclassification_auroc": self.selective.misclassification_auroc,
            },
            "ood": {name: result.to_json() for name, result in self.ood.items()},
            "ood_means": {name: result.to_json() for name, result in self.means.items()},
            **({"shift": shift} if shift else {}),
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
    id_table = predictions.tables[id_key(predictions)]
    ood = {key.name: _ood_result(key, predictions, settings) for key in predictions.tables if key.role == "ood"}
    shift: dict[str, dict[int, LabelledResult]] = {}
    for key, table in predictions.tables.items():
        if key.role == "shift" and key.severity is not None:
            shift.setdefault(key.name, {})[key.severity] = _labelled(table, settings)
    selective = selective_metrics(id_table)
    return SystemResult(
        id=_labelled(id_table, settings),
        selective=SelectiveMetrics(
            settings.definitions.aurc(id_table), selective.accuracy_at_coverage, selective.misclassification_auroc
        ),
        ood=ood,
        means=group_means(ood),
        cost=cost,
        temperature=_temperature_json(predictions),
        shift=shift,
        conformal=None if predictions.sets is None else conformal_metrics(predictions.sets),
    )


def id_key(predictions: Predictions) -> SetKey:
    """The in-distribution set.

    Raises:
        DataError: there is none.
    """
    for key in predictions.tables:
        if key.role == "id":
            return key
    raise DataError("an evaluation needs in-distribution data")


def group_means(ood: Mapping[str, OodResult]) -> dict[str, OodResult]:
    """Flat means over the near, the far and all sets; a group without sets is left out."""
    members = {group: [r for r in ood.values() if group in (r.group, "all")] for group in GROUPS}
    return {group: _mean(results) for group, results in members.items() if results}


def _labelled(table: PredictionTable, settings: Settings) -> LabelledResult:
    return LabelledResult(
        len(table.msp), settings.definitions.classification_metrics(table, BINS), diversity_metrics(table)
    )


def _ood_result(key: SetKey, predictions: Predictions, settings: Settings) -> OodResult:
    inside, outside = predictions.scores[id_key(predictions)], predictions.scores[key]
    return OodResult(
        samples=len(outside),
        detection=settings.definitions.ood_metrics(inside, outside),
        diversity=diversity_metrics(predictions.tables[key]),
        group=key.group,
    )


def _temperature_json(predictions: Predictions) -> dict[str, Any]:
    fitted = predictions.calibration.fitted
    return {
        "value": predictions.calibration.temperature,
        **({} if fitted is None else {name: getattr(fitted, name) for name in FITTED}),
    }


def _mean(results: list[OodResult]) -> OodResult:
    return OodResult(
        samples=sum(result.samples for result in results),
        detection=OodMetrics(**_field_means(asdict(result.detection) for result in results)),
        diversity=DiversityMetrics(**_field_means(asdict(result.diversity) for result in results)),
    )


def _field_means(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    table = list(rows)
    return {name: fmean(row[name] for row in table) for name in table[0]}
