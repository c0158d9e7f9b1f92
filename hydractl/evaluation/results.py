"""The result of evaluating one model, and its form in a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from hydractl.evaluation.cost import Cost
from hydractl.uncertainty.calibration import ClassificationMetrics, classification_metrics
from hydractl.uncertainty.diversity import DiversityMetrics, diversity_metrics
from hydractl.uncertainty.ood_detection import OodMetrics, ood_metrics
from hydractl.uncertainty.ood_scores import OodScore, ood_scores
from hydractl.uncertainty.table import PredictionTable

#: The set names that stand for means; `all` is the mean over every set, grouped or not.
GROUPS = ("near", "far", "all")


@dataclass(frozen=True)
class OodResult:
    """How well one OOD set is told from the ID set; a mean over sets has the samples of all of them."""

    samples: int
    detection: OodMetrics
    diversity: DiversityMetrics
    group: str | None = None


@dataclass(frozen=True)
class ModelResult:
    """What METHOD-defined metrics say of one model; `means` are flat means over the sets of a group."""

    samples: int
    classification: ClassificationMetrics
    diversity: DiversityMetrics
    ood: Mapping[str, OodResult]
    means: Mapping[str, OodResult]
    cost: Cost

    def to_json(self) -> dict[str, Any]:
        """The model's entry in a report."""
        return {
            "id": {"samples": self.samples, **asdict(self.classification), **asdict(self.diversity)},
            "ood": {name: _ood_json(result) for name, result in self.ood.items()},
            "ood_means": {name: _ood_json(result) for name, result in self.means.items()},
            "cost": asdict(self.cost),
        }


@dataclass(frozen=True)
class OodTable:
    """The predictions on one OOD set, and the group (near, far) it counts to."""

    table: PredictionTable
    group: str | None


def measure(
    id_table: PredictionTable, ood_tables: Mapping[str, OodTable], cost: Cost, score: OodScore = "msp"
) -> ModelResult:
    """Every metric of one model.

    Args:
        id_table: predictions on labelled in-distribution samples.
        ood_tables: by set name.
        cost: of the model, passed through.
        score: what tells OOD from ID.

    Raises:
        DataError: the ID samples have no labels.
    """
    id_scores = ood_scores(id_table, score)
    ood = {
        name: OodResult(
            samples=len(entry.table.msp),
            detection=ood_metrics(id_scores, ood_scores(entry.table, score)),
            diversity=diversity_metrics(entry.table),
            group=entry.group,
        )
        for name, entry in ood_tables.items()
    }
    return ModelResult(
        samples=len(id_table.msp),
        classification=classification_metrics(id_table),
        diversity=diversity_metrics(id_table),
        ood=ood,
        means=group_means(ood),
        cost=cost,
    )


def group_means(ood: Mapping[str, OodResult]) -> dict[str, OodResult]:
    """Flat means over the near, the far and all sets; a group without sets is left out."""
    members = {group: [r for r in ood.values() if group in (r.group, "all")] for group in GROUPS}
    return {group: _mean(results) for group, results in members.items() if results}


def _mean(results: list[OodResult]) -> OodResult:
    return OodResult(
        samples=sum(result.samples for result in results),
        detection=OodMetrics(**_field_means(asdict(result.detection) for result in results)),
        diversity=DiversityMetrics(**_field_means(asdict(result.diversity) for result in results)),
    )


def _field_means(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    table = list(rows)
    return {name: fmean(row[name] for row in table) for name in table[0]}


def _ood_json(result: OodResult) -> dict[str, Any]:
    group = {} if result.group is None else {"group": result.group}
    return {**group, "samples": result.samples, **asdict(result.detection), **asdict(result.diversity)}
