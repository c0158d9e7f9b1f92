"""Metrics that other tools compute under the same names, for comparison with their published numbers.

All agree with the tool to its own rounding: both compute in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hydractl.errors import DataError, OptionError
from hydractl.ood.score import OodScore

if TYPE_CHECKING:
    from hydractl.metrics.calibration import ClassificationMetrics
    from hydractl.metrics.checks import BoolArray, FloatArray
    from hydractl.metrics.ood_detection import OodMetrics
    from hydractl.metrics.prediction_table import PredictionTable


def _tools() -> Any:
    # Imported at the first use, as scipy takes a while.
    from hydractl.metrics import other_tools

    return other_tools


@dataclass(frozen=True)
class Style:
    """A tool's definitions of the numbers; ours stand where it defines nothing.

    Attributes:
        name: its name in options and reports.
        help: the differences from ours, to stand after its name.
        ood_metrics: of ID and OOD scores, `[N]` and `[N']`, higher = more OOD.
        classification_metrics: of labelled predictions.
        aurc: the area under the risk-coverage curve of confidences `[N]`, by whether the predictions are right, `[N]`.
        scores: the OOD scores it defines in its own way, by name: from the table of predictions to `[N]`.
        lacks: the OOD scores it does not have, by name.
        packages: those it takes that come with an extra.
    """

    name: str
    help: str
    ood_metrics: Callable[[FloatArray, FloatArray], OodMetrics] = lambda *scores: _tools().ood_metrics(*scores)
    classification_metrics: Callable[[PredictionTable], ClassificationMetrics] = lambda table: (
        _tools().classification_metrics(table)
    )
    aurc: Callable[[FloatArray, BoolArray], float] = lambda *confidence: _tools().aurc(*confidence)
    scores: Mapping[str, Callable[[PredictionTable], FloatArray]] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    def require(self, score: OodScore) -> OodScore:
        """Returns an OOD score that this tool has; raises DataError for another."""
        if score.name in self.lacks:
            raise DataError(
                f"`style` {self.name} has no score {score.name} of an ensemble: choose msp, max-logit or energy"
            )
        return score


OURS = Style("hydractl", "the definitions of this project")
STYLES = (
    OURS,
    Style(
        "openood",
        "as OpenOOD 1.5: ensembles average logits, AUPR is a trapezoid, FPR95 is read off a thinned ROC curve",
        ood_metrics=lambda *scores: _tools().trapezoidal_ood_metrics(*scores),
        classification_metrics=lambda table: _tools().mean_logits_classification_metrics(table),
        scores={"msp": lambda table: -table.mean_logits_msp},
        lacks=("entropy", "mutual-information"),
        packages=("sklearn",),
    ),
    Style(
        "torch-uncertainty",
        "as torch-uncertainty 0.13: entropy is the members' mean, calibration bins are closed on the left, equal-mass "
        "bins split ties, AURC is a trapezoid",
        classification_metrics=lambda table: _tools().left_closed_classification_metrics(table),
        aurc=lambda *confidence: _tools().trapezoidal_aurc(*confidence),
        scores={"entropy": lambda table: table.expected_entropy},
    ),
)


def find_style(name: str) -> Style:
    """Returns the style of that name; raises OptionError if there is none."""
    for style in STYLES:
        if style.name == name:
            return style
    raise OptionError(f"`style` {name}: expected {', '.join(style.name for style in STYLES)}")
