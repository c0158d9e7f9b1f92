"""The numbers of an evaluation as values. Their fields have the names and the order that a report's JSON has.

A number that was not measured is None, and JSON leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from statistics import fmean
from typing import Annotated, Any, Generic, Literal, TypeVar

from hydractl.calibration.promises import Recalled, Sure
from hydractl.metrics.classification import ByClass
from hydractl.metrics.scaling import ConformalMetrics
from hydractl.schema import Checked, Items
from hydractl.systems.system import NULL, Cost, Count, Dropout, KnownLeak, Model, Network, Positive, Share

T = TypeVar("T")
Severity = Annotated[str, Checked(pattern="^[0-9]{1,4}$")]
Interval = tuple[float, float]
GROUPS = ("near", "far", "all")  # of OOD sets that are averaged; `all` is every set, grouped or not
UNSEEN = "unseen"  # the group of OOD sets of whose kind no system's training saw any


@dataclass(frozen=True)
class LabelledMetrics:
    """Quality of classification, or of numbers, on labelled samples, and the members' diversity on them.

    Accuracy is all there is for a system that saved only confidences; numbers have none.
    """

    samples: Count | None = None
    accuracy: Share | None = None
    brier: Positive | None = None
    nll: float | None = None
    ece: Share | None = None
    adaptive_ece: Share | None = None
    micro_f1: Share | None = None  # of several labels: decisions on all of them together,
    macro_f1: Share | None = None  # the mean over labels,
    mean_ap: Share | None = None  # and their ranking, also by label
    label_auroc: Share | None = None
    mse: Positive | None = None  # of numbers
    mae: Positive | None = None
    spearman: float | None = None
    coverage: Share | None = None
    width: Positive | None = None
    spread: Positive | None = None
    neighbours: Share | None = None  # of embeddings: those by the first system that are kept among the ten nearest
    precision: Share | None = None  # of several labels, and of spans of labelled words,
    recall: Share | None = None
    span_f1: Share | None = None
    span_ece: Share | None = None  # by the least confidence of their words
    mutual_information: Positive | None = None
    disagreement: Share | None = None


@dataclass(frozen=True, kw_only=True)
class Ood:
    """Quality of detection on one OOD set; a mean over sets counts the samples of all of them.

    The MSP has numbers of its own in a report with a system that is scored by its file's OOD score.
    """

    group: Literal["near", "far"] | None = None
    samples: Count | None = None
    auroc: Share
    aupr_out: Share | None = None
    aupr_in: Share | None = None
    fpr95: Share | None = None
    msp_auroc: Share | None = None
    msp_fpr95: Share | None = None
    ood_share: Share
    mutual_information: Positive | None = None
    disagreement: Share | None = None


@dataclass(frozen=True)
class Typicality:
    """The share of ID samples that the system's own OOD score does not flag, and the share that it promises."""

    accept: Share
    coverage: Share


@dataclass(frozen=True)
class Selective:
    """The risk-coverage curve of the confidence in numbers, and how well it tells errors; None if all or none are.

    The OOD score that a system's file brings has numbers of its own: it tells what is odd, not what is wrong.
    """

    aurc: Share
    accuracy_at_coverage: Mapping[str, Share]
    misclassification_auroc: Share | None = None
    misclassification_aupr: Share | None = None
    misclassification_fpr95: Share | None = None
    ood_score_aurc: Share | None = None
    ood_score_misclassification_auroc: Share | None = None


@dataclass(frozen=True)
class ShiftMeans:
    """Flat means over shifted sets: at each severity over kinds, of each kind over severities, and over all sets."""

    by_severity: Mapping[Severity, LabelledMetrics]
    by_kind: Mapping[str, LabelledMetrics]
    all: LabelledMetrics


@dataclass(frozen=True)
class SystemTemperature:
    """The temperature that divides all logits, and what a fit of it changed."""

    value: Positive
    nll_before: float | None = None
    nll_after: float | None = None
    argmax_changed: Share | None = None

    def __post_init__(self) -> None:
        if len({value is None for value in (self.nll_before, self.nll_after, self.argmax_changed)}) > 1:
            raise ValueError("a fitted one has nll_before, nll_after and argmax_changed")


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram: the edges of its bins, and what each holds; None in an empty bin."""

    edges: Items[float]
    counts: Items[Count]
    confidence: Items[float | None]
    accuracy: Items[float | None]

    def __post_init__(self) -> None:
        bins = list(zip(self.confidence, self.accuracy, strict=False))
        if len({len(self.edges) - 1, len(self.counts), len(self.confidence), len(self.accuracy)}) > 1:
            raise ValueError("edges, counts, confidence and accuracy are not of the same bins")
        if not any(self.counts) or all(x is None for x, _ in bins) or any((x is None) != (y is None) for x, y in bins):
            raise ValueError("has no bin with samples, or half of a point")


def _require_one_length(curve: Any) -> None:
    columns = vars(curve)
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError(f"{' and '.join(columns)} differ in length")


@dataclass(frozen=True)
class RiskCurve:
    """The error rate of the most confident samples at each coverage."""

    coverage: Items[float]
    risk: Items[float]

    def __post_init__(self) -> None:
        _require_one_length(self)


@dataclass(frozen=True)
class Roc:
    """The shares of ID and OOD samples that each threshold flags."""

    false_positive_rate: Items[float]
    true_positive_rate: Items[float]

    def __post_init__(self) -> None:
        _require_one_length(self)


@dataclass(frozen=True)
class ScoreHistograms:
    """Histograms of the OOD score, over the same bins for each set."""

    edges: Items[float]
    id: Items[float]
    ood: Mapping[str, Items[float]]

    def __post_init__(self) -> None:
        if any(len(shares) != len(self.edges) - 1 for shares in (self.id, *self.ood.values())):
            raise ValueError("edges and shares are not of the same bins")


@dataclass(frozen=True)
class Sample:
    """A sample to look at, as a text or as a picture.

    The pattern admits the picture itself and nothing else: a page that fetches something tells others who reads it.
    """

    confidence: float
    said: str
    right: str | None = None  # None for samples without labels
    text: str | None = None
    image: Annotated[str, Checked(pattern=r"^data:image/(png|jpeg);base64,[A-Za-z0-9+/]+={0,2}$")] | None = None
    typicality: Share | None = None
    profile: Items[Share] | None = None  # typicality by each layer, the first one first


@dataclass(frozen=True)
class Doubts:
    """The ID samples of least confidence, and the wrong ones of most."""

    doubted: Items[Sample]
    wrong: Items[Sample]


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Data for the pictures of a report on one system."""

    reliability: Reliability | None = None
    risk_coverage: RiskCurve
    roc: Mapping[str, Roc]
    scores: ScoreHistograms
    doubts: Doubts | None = None
    oddest: Mapping[str, Items[Sample]] | None = None  # of each set, by the OOD score of the system's file


@dataclass(frozen=True)
class Difference:
    """A number less that of another system, with its paired interval."""

    value: float
    interval: Interval

    @property
    def beyond_chance(self) -> bool:
        """True if the interval leaves out zero."""
        low, high = self.interval
        return not low <= 0 <= high


@dataclass(frozen=True)
class Resampled(Generic[T]):
    """A value for each number that is resampled, by metric and set."""

    id: Mapping[str, T]
    ood: Mapping[str, Mapping[str, T]] | None = None
    ood_means: Mapping[str, Mapping[str, T]] | None = None


@dataclass(frozen=True, kw_only=True)
class SystemResult:
    """Everything that an evaluation finds out about one system."""

    model: Model | None = None
    networks: Items[Network] | None = None
    dropout: Dropout | None = None
    leaks: Items[KnownLeak] | None = None
    exposed: Items[str] | None = None  # OOD sets of the kind that its training saw
    id: LabelledMetrics
    selective: Selective | None = None
    # None: the report's score; else the system's own confidence or its file's score.
    score: str | None = None
    typicality: Typicality | None = None  # of a system that is scored by its file's OOD score
    sure: Sure | None = None  # of a system whose file promises some, at its own temperature
    recall: Recalled | None = None
    ood: Mapping[str, Ood]
    ood_means: Mapping[str, Ood] = field(default_factory=dict)
    shift: Mapping[str, Mapping[Severity, LabelledMetrics]] | None = None  # by kind and severity
    shift_means: ShiftMeans | None = None
    conformal: ConformalMetrics | None = None
    by_class: ByClass | None = None  # on the ID data
    temperature: SystemTemperature | None = None
    cost: Cost | None = field(default=None, metadata=NULL)
    curves: Curves | None = None
    intervals: Resampled[Interval] | None = None
    difference: Resampled[Difference] | None = None  # to the first system of the report
    # By OOD set, AUROC and FPR95 by the system's own score less those by the MSP.
    own_less_msp: Mapping[str, Mapping[str, Difference]] | None = None
    rivals: Mapping[str, Resampled[Difference]] | None = None  # to each other system, of the one that `compare` names

    @property
    def members(self) -> int:
        """The number of members; 1 if it is unknown."""
        return 1 if self.cost is None else self.cost.members

    @property
    def resampled(self) -> Resampled[float]:
        """Its numbers where resampled values of them may be."""
        means = {name: vars(numbers) for name, numbers in self.ood_means.items()}
        return Resampled(vars(self.id), {name: vars(numbers) for name, numbers in self.ood.items()}, means)


@dataclass(frozen=True)
class SetInfo:
    """One of the data sets of a report."""

    name: str
    samples: Count | None = None
    columns: Items[str] | None = None


@dataclass(frozen=True)
class DataInfo:
    """The data sets of a report."""

    calibration: SetInfo | None = None
    id: SetInfo | None = None
    ood: Mapping[str, SetInfo] = field(default_factory=dict)
    shift: Mapping[str, SetInfo] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Results:
    """The systems of a report by name, what they were measured on, and the options that determine the numbers."""

    complete: bool = True  # False if the evaluation was interrupted
    models: Mapping[str, SystemResult]
    data: DataInfo = DataInfo()
    options: Mapping[str, Any] = field(default_factory=dict)
    hydractl: str = "unknown"
    command: str | None = None  # the command line that made it
    warnings: Items[str] = ()


S = TypeVar("S", LabelledMetrics, Ood)


def combined(combine: Callable[..., Any], *values: Any) -> Any:
    """Combines values of one form number by number, as far as all of them have one."""
    first = values[0]
    if any(value is None for value in values):
        return None
    if is_dataclass(first) and not isinstance(first, type):
        parts = {
            entry.name: combined(combine, *(getattr(value, entry.name) for value in values)) for entry in fields(first)
        }
        return type(first)(**parts)
    if isinstance(first, Mapping):
        shared = [key for key in first if all(key in value for value in values)]
        return {key: combined(combine, *(value[key] for value in values)) for key in shared}
    return combine(*values)


def mean(values: Sequence[S]) -> S:
    """Returns the flat mean of numbers of one form, and the samples of all of them together."""
    averaged: Any = combined(lambda *each: None if isinstance(each[0], str) else fmean(each), *values)
    return replace(averaged, samples=sum(value.samples or 0 for value in values))
