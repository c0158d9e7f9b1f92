"""The form of a report: everything that tables, pictures and pages take from one, checked before they do."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, model_validator

from hydractl.evaluation.about import Count, KnownLeak, Network
from hydractl.report.columns import telling_means
from hydractl.schema import Items, Schema

T = TypeVar("T")
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Interval = tuple[float, float]
#: What a report may leave out, but not leave empty.
absent: Any = Field(default=None)


Severity = Annotated[str, Field(pattern="^[0-9]{1,4}$")]


class _Part(Schema):
    """A part of a report, which may hold more than is named here."""

    model_config = ConfigDict(extra="ignore")


class _Labelled(_Part):
    accuracy: Share
    ece: Share = absent


class _Ood(_Part):
    auroc: Share
    ood_share: Share
    group: Literal["near", "far"] | None = None


class _Cost(_Part):
    parameters: Positive
    multiply_adds: Positive
    members: Positive


class _Difference(_Part):
    value: float
    interval: Interval


class _Resampled(Schema, Generic[T]):
    """A value for each number that is resampled."""

    id: dict[str, T] = absent
    ood: dict[str, dict[str, T]] = absent
    ood_means: dict[str, dict[str, T]] = absent


class _Temperature(_Part):
    value: Positive
    nll_before: float = absent
    nll_after: float = absent
    argmax_changed: Share = absent

    @model_validator(mode="after")
    def _tells_all_of_a_fit(self) -> Self:
        if len(self.model_fields_set & {"nll_before", "nll_after", "argmax_changed"}) not in (0, 3):
            raise ValueError("a fitted one has nll_before, nll_after and argmax_changed")
        return self


class _Model(_Part):
    reference: str
    sha256: str = absent


class _Reliability(_Part):
    edges: Items[float]
    counts: Items[Count]
    confidence: Items[float | None]
    accuracy: Items[float | None]

    @model_validator(mode="after")
    def _is_drawable(self) -> Self:
        bins = list(zip(self.confidence, self.accuracy, strict=False))
        if len({len(self.edges) - 1, len(self.counts), len(self.confidence), len(self.accuracy)}) > 1:
            raise ValueError("edges, counts, confidence and accuracy are not of the same bins")
        if not any(self.counts) or all(x is None for x, _ in bins) or any((x is None) != (y is None) for x, y in bins):
            raise ValueError("has no bin with samples, or half of a point")
        return self


class _Risk(_Part):
    coverage: Items[float]
    risk: Items[float]

    @model_validator(mode="after")
    def _is_drawable(self) -> Self:
        if len(self.coverage) != len(self.risk):
            raise ValueError("coverage and risk differ in length")
        return self


class _Roc(_Part):
    false_positive_rate: Items[float]
    true_positive_rate: Items[float]

    @model_validator(mode="after")
    def _is_drawable(self) -> Self:
        if len(self.false_positive_rate) != len(self.true_positive_rate):
            raise ValueError("false_positive_rate and true_positive_rate differ in length")
        return self


class _Scores(_Part):
    edges: Items[float]
    id: Items[float]
    ood: dict[str, Items[float]]

    @model_validator(mode="after")
    def _is_drawable(self) -> Self:
        if any(len(shares) != len(self.edges) - 1 for shares in (self.id, *self.ood.values())):
            raise ValueError("edges and shares are not of the same bins")
        return self


class _Sample(_Part):
    confidence: float
    said: str
    right: str
    text: str = absent
    #: Itself and nothing else: a page that fetches something tells others who reads it.
    image: Annotated[str, Field(pattern=r"^data:image/(png|jpeg);base64,[A-Za-z0-9+/]+={0,2}$")] = absent


class _Doubts(_Part):
    doubted: Items[_Sample]
    wrong: Items[_Sample]


class _Curves(_Part):
    reliability: _Reliability = absent
    risk_coverage: _Risk
    roc: dict[str, _Roc]
    scores: _Scores
    doubts: _Doubts = absent


class _ShiftMeans(_Part):
    by_severity: dict[Severity, _Labelled]
    by_kind: dict[str, _Labelled]
    all: _Labelled


class _System(_Part):
    id: _Labelled
    ood: dict[str, _Ood]
    ood_means: dict[str, _Ood] = absent
    shift: dict[str, dict[Severity, _Labelled]] = absent
    shift_means: _ShiftMeans = absent
    temperature: _Temperature = absent
    score: str = absent
    cost: _Cost | None = None
    model: _Model = absent
    networks: Items[Network] = absent
    leaks: Items[KnownLeak] = absent
    intervals: _Resampled[Interval] = absent
    difference: _Resampled[_Difference] = absent
    curves: _Curves = absent

    @model_validator(mode="after")
    def _has_means(self) -> Self:
        groups = {name: {"group": entry.group} for name, entry in self.ood.items()}
        if missing := set(telling_means(groups)) - (self.ood_means or {}).keys():
            raise ValueError(f"ood_means lacks that of {min(missing)}")
        return self


class _Set(_Part):
    name: str
    samples: Count = absent


class _Data(_Part):
    id: _Set = absent
    ood: dict[str, _Set] = absent


class _Options(_Part):
    ood_score: str = absent
    style: str = absent


class ReportFile(_Part):
    """A report, as far as anything is read of it."""

    models: Annotated[dict[str, _System], Field(min_length=1)]
    data: _Data = absent
    options: _Options = absent
    complete: bool = True
    hydractl: str = absent
    command: str = absent
