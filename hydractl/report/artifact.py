"""The report of an evaluation in its JSON form, `hydractl-report`: written, read with care, and joined."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, model_validator

from hydractl.artifacts import found_references, open_artifact
from hydractl.errors import ArtifactError
from hydractl.evaluation.about import Count, KnownLeak, Network
from hydractl.report.columns import telling_means
from hydractl.report.verdict import with_verdicts
from hydractl.schema import Items, Schema

FORMAT = "hydractl-report"
VERSION = 1
DEFINING = ("ood_score", "style")  # options that define the numbers of a report

T = TypeVar("T")
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Severity = Annotated[str, Field(pattern="^[0-9]{1,4}$")]
#: A field that may be missing, but not null.
absent: Any = Field(default=None)


class _Form(Schema):
    """A part of a report: what tables, pictures and pages read of it; it may hold more."""

    model_config = ConfigDict(extra="ignore")

    def _require_equal_lengths(self, *names: str) -> None:
        if len({len(getattr(self, name)) for name in names}) > 1:
            raise ValueError(f"{' and '.join(names)} differ in length")


class _Labelled(_Form):
    accuracy: Share
    ece: Share = absent


class _Ood(_Form):
    auroc: Share
    ood_share: Share
    group: Literal["near", "far"] | None = None


class _Cost(_Form):
    parameters: Positive
    multiply_adds: Positive
    members: Positive


class _Difference(_Form):
    value: float
    interval: tuple[float, float]


class _Resampled(Schema, Generic[T]):
    """A value for each number that is resampled."""

    id: dict[str, T] = absent
    ood: dict[str, dict[str, T]] = absent
    ood_means: dict[str, dict[str, T]] = absent


class _Temperature(_Form):
    value: Positive
    nll_before: float = absent
    nll_after: float = absent
    argmax_changed: Share = absent

    @model_validator(mode="after")
    def _is_a_whole_fit(self) -> Self:
        if len(self.model_fields_set & {"nll_before", "nll_after", "argmax_changed"}) not in (0, 3):
            raise ValueError("a fitted one has nll_before, nll_after and argmax_changed")
        return self


class _Model(_Form):
    reference: str
    sha256: str = absent


class _Reliability(_Form):
    edges: Items[float]
    counts: Items[Count]
    confidence: Items[float | None]
    accuracy: Items[float | None]

    @model_validator(mode="after")
    def _is_drawable(self) -> Self:
        self._require_equal_lengths("counts", "confidence", "accuracy")
        bins = list(zip(self.confidence, self.accuracy, strict=True))
        if len(self.edges) != len(bins) + 1:
            raise ValueError("edges and counts are not of the same bins")
        if not any(self.counts) or all(x is None for x, _ in bins) or any((x is None) != (y is None) for x, y in bins):
            raise ValueError("has no bin with samples, or half of a point")
        return self


class _Risk(_Form):
    coverage: Items[float]
    risk: Items[float]

    @model_validator(mode="after")
    def _is_drawable(self) -> Self:
        self._require_equal_lengths("coverage", "risk")
        return self


class _Roc(_Form):
    false_positive_rate: Items[float]
    true_positive_rate: Items[float]

    @model_validator(mode="after")
    def _is_drawable(self) -> Self:
        self._require_equal_lengths("false_positive_rate", "true_positive_rate")
        return self


class _Scores(_Form):
    edges: Items[float]
    id: Items[float]
    ood: dict[str, Items[float]]

    @model_validator(mode="after")
    def _is_drawable(self) -> Self:
        if any(len(shares) != len(self.edges) - 1 for shares in (self.id, *self.ood.values())):
            raise ValueError("edges and shares are not of the same bins")
        return self


class _Sample(_Form):
    confidence: float
    said: str
    right: str
    text: str = absent
    #: The image itself: a page that fetched one would tell others who reads it.
    image: Annotated[str, Field(pattern=r"^data:image/(png|jpeg);base64,[A-Za-z0-9+/]+={0,2}$")] = absent


class _Doubts(_Form):
    doubted: Items[_Sample]
    wrong: Items[_Sample]


class _Curves(_Form):
    reliability: _Reliability = absent
    risk_coverage: _Risk
    roc: dict[str, _Roc]
    scores: _Scores
    doubts: _Doubts = absent


class _ShiftMeans(_Form):
    by_severity: dict[Severity, _Labelled]
    by_kind: dict[str, _Labelled]
    all: _Labelled


class _System(_Form):
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
    intervals: _Resampled[tuple[float, float]] = absent
    difference: _Resampled[_Difference] = absent
    curves: _Curves = absent

    @model_validator(mode="after")
    def _has_means(self) -> Self:
        groups = {name: {"group": entry.group} for name, entry in self.ood.items()}
        if missing := set(telling_means(groups)) - (self.ood_means or {}).keys():
            raise ValueError(f"ood_means lacks that of {min(missing)}")
        return self


class _Set(_Form):
    name: str
    samples: Count = absent


class _Data(_Form):
    id: _Set = absent
    ood: dict[str, _Set] = absent


class _Options(_Form):
    ood_score: str = absent
    style: str = absent


class _ReportFile(_Form):
    models: Annotated[dict[str, _System], Field(min_length=1)]
    data: _Data = absent
    options: _Options = absent
    complete: bool = True
    hydractl: str = absent
    command: str = absent


def report_json(
    models: Mapping[str, Mapping[str, Any]], data: Mapping[str, Any], options: Mapping[str, Any], complete: bool = True
) -> dict[str, Any]:
    """Returns the report as plain JSON: every number of every system, and the data that they were measured on.

    Args:
        models: the systems' entries by their names in the report.
        data: names and sizes of the sets.
        options: those that determine the numbers; those that are None are left out.
        complete: False if the evaluation was interrupted.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "complete": complete,
        "models": with_verdicts(models),
        "data": dict(data),
        "options": {name: value for name, value in options.items() if value is not None},
        "hydractl": version("hydractl"),
    }


def read_report(source: str) -> dict[str, Any]:
    """Returns the report in a file, or on standard input for `-`.

    Raises:
        ArtifactError: the file is no report, or lacks the numbers of a system.
    """
    document = open_artifact(source, FORMAT, VERSION)
    document.read(_ReportFile)
    content = {"data": {}, "options": {}, "complete": True, "hydractl": "unknown", **document.fields}
    return found_references({**content, "data": {"ood": {}, **content["data"]}}, source)


def join_reports(reports: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Returns one report with the systems of all, and notes on how the reports differ.

    Keeps those differences that are to the first system of the joined report.

    Args:
        reports: at least one, by the name that messages use.

    Raises:
        ArtifactError: two reports define their numbers differently.
    """
    (first_name, first), *others = reports.items()
    models: dict[str, Any] = {}
    notes: list[str] = []
    for name, report in reports.items():
        own, left = _compared_with(next(iter(first["models"].values())), report["models"])
        if left:
            notes.append(f"{name}: its differences are to {left}, which is not the first system here: left out")
        for system, entry in own.items():
            taken = system in models and models[system] != entry
            models[f"{system} ({_stem(name)})" if taken else system] = entry
    for name, report in others:
        for key in DEFINING:
            ours, theirs = (one.get("options", {}).get(key) for one in (first, report))
            if ours != theirs:
                raise ArtifactError(f"{name}: {key} is {theirs}, in {first_name} {ours}: evaluate again by one of them")
        if report.get("data") != first.get("data"):
            notes.append(f"{name} and {first_name} are not of the same data: compare with care")
    complete = all(report.get("complete", True) for report in reports.values())
    joined = {**first, "models": with_verdicts(models), "complete": complete}
    joined.pop("command", None)
    return joined, notes


def _compared_with(first: Mapping[str, Any], models: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Returns a report's entries, and the name of its first system if their differences to it had to go."""
    name, own = next(iter(models.items()))
    if all(own.get(key) == first.get(key) for key in ("id", "ood")):
        return models, ""
    found = {system: {k: part for k, part in entry.items() if k != "difference"} for system, entry in models.items()}
    return found, name if found != models else ""


def _stem(name: str) -> str:
    path = Path(name)
    return path.parent.name if path.name == "report.json" and path.parent.name else path.stem
