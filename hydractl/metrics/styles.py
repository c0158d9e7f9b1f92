"""What other tools compute under the same names, so that their published numbers can be compared with.

All agree with the tool to its own rounding: both compute in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hydractl.errors import DataError, OptionError
from hydractl.metrics.ood_scores import OodScore, Scorer

if TYPE_CHECKING:
    from hydractl.metrics.calibration import ClassificationMetrics
    from hydractl.metrics.checks import BoolArray, FloatArray
    from hydractl.metrics.ood_detection import OodMetrics
    from hydractl.metrics.table import PredictionTable


def _our_ood_metrics(id_scores: FloatArray, ood_scores: FloatArray) -> OodMetrics:
    from hydractl.metrics.ood_detection import ood_metrics

    return ood_metrics(id_scores, ood_scores)


def _our_classification_metrics(table: PredictionTable, bins: int = 15) -> ClassificationMetrics:
    from hydractl.metrics.calibration import classification_metrics

    return classification_metrics(table, bins)


def _our_aurc(confidence: FloatArray, correct: BoolArray) -> float:
    from hydractl.metrics.selective import risk_coverage

    return float(risk_coverage(confidence, correct).risk.mean())


@dataclass(frozen=True)
class Style:
    """Whose definitions the numbers follow; what a tool does not define stays ours.

    Attributes:
        name: what options and reports call it.
        help: what differs from ours, to stand after its name.
        ood_metrics: of ID and OOD scores, `[N]` and `[N']`, higher = more OOD.
        classification_metrics: of labelled predictions, with so many bins of confidence.
        aurc: the area under the risk-coverage curve of confidences `[N]`, by whether the predictions are right, `[N]`.
        scores: the OOD scores it defines in its own way, by name.
        lacks: the OOD scores it does not have, by name.
        packages: those it takes that come with an extra.
    """

    name: str
    help: str
    ood_metrics: Callable[[FloatArray, FloatArray], OodMetrics] = _our_ood_metrics
    classification_metrics: Callable[[PredictionTable, int], ClassificationMetrics] = _our_classification_metrics
    aurc: Callable[[FloatArray, BoolArray], float] = _our_aurc
    scores: Mapping[str, Scorer] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    def of(self, score: OodScore) -> OodScore:
        """An OOD score as this tool defines it.

        Raises:
            DataError: it has no such score.
        """
        if score.name in self.lacks:
            raise DataError(
                f"`style` {self.name} has no score {score.name} of an ensemble: choose msp, max-logit or energy"
            )
        return replace(score, of_answers=self.scores.get(score.name, score.of_answers))


def _openood_metrics(id_scores: FloatArray, ood_scores: FloatArray) -> OodMetrics:
    from hydractl.metrics.openood import trapezoidal_ood_metrics

    return trapezoidal_ood_metrics(id_scores, ood_scores)


def _openood_classification_metrics(table: PredictionTable, bins: int = 15) -> ClassificationMetrics:
    from hydractl.metrics.openood import mean_logits_classification_metrics

    return mean_logits_classification_metrics(table, bins)


def _torch_uncertainty_classification_metrics(table: PredictionTable, bins: int = 15) -> ClassificationMetrics:
    from hydractl.metrics.torch_uncertainty import left_closed_classification_metrics

    return left_closed_classification_metrics(table, bins)


def _torch_uncertainty_aurc(confidence: FloatArray, correct: BoolArray) -> float:
    from hydractl.metrics.torch_uncertainty import trapezoidal_aurc

    return trapezoidal_aurc(confidence, correct)


def _nearest_recall_ood_metrics(id_scores: FloatArray, ood_scores: FloatArray) -> OodMetrics:
    from hydractl.metrics.torch_uncertainty import nearest_recall_ood_metrics

    return nearest_recall_ood_metrics(id_scores, ood_scores)


OURS = Style("hydractl", "the definitions of this project")
TORCH_UNCERTAINTY = Style(
    "torch-uncertainty",
    "as torch-uncertainty 0.13: entropy is the members' mean, calibration bins are closed on the left, equal-mass bins "
    "split ties, AURC is a trapezoid",
    classification_metrics=_torch_uncertainty_classification_metrics,
    aurc=_torch_uncertainty_aurc,
    scores={"entropy": lambda answers: answers.table.expected_entropy},
)
STYLES = (
    OURS,
    Style(
        "openood",
        "as OpenOOD 1.5: ensembles average logits, AUPR is a trapezoid, FPR95 is read off a thinned ROC curve",
        ood_metrics=_openood_metrics,
        classification_metrics=_openood_classification_metrics,
        scores={"msp": lambda answers: -answers.table.mean_logits_msp},
        lacks=("entropy", "mutual-information"),
        packages=("sklearn",),
    ),
    TORCH_UNCERTAINTY,
    replace(
        TORCH_UNCERTAINTY,
        name="torch-uncertainty-legacy",
        help="as older torch-uncertainty: FPR95 at the recall nearest to 95 %",
        ood_metrics=_nearest_recall_ood_metrics,
    ),
)


def find_style(name: str) -> Style:
    """The style of that name.

    Raises:
        OptionError: there is none.
    """
    for style in STYLES:
        if style.name == name:
            return style
    raise OptionError(f"`style` {name}: expected {', '.join(style.name for style in STYLES)}")
