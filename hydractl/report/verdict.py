"""Gains and losses against the first system of a report, told apart from chance by paired intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hydractl.evaluation.results import Difference, System
from hydractl.report.columns import Column, at

Outcome = Literal["better", "worse", "within chance"]
Marks = Mapping[Outcome, str]
#: How an outcome is marked beside a number: the arrow says better or worse, whichever way the number went.
MARKS: Marks = {"better": "▲", "worse": "▼", "within chance": ""}
ASCII_MARKS: Marks = {"better": "^", "worse": "v", "within chance": ""}


@dataclass(frozen=True)
class Judged:
    """A metric that a verdict speaks of: what JSON calls it, where a report has it, the unit of its differences."""

    key: str
    column: Column
    unit: str = ""


JUDGED = (
    Judged("accuracy", Column("accuracy", ("id", "accuracy"), "percent", "higher"), "points"),
    Judged("nll", Column("NLL", ("id", "nll"), "plain", "lower")),
    Judged("ece", Column("ECE", ("id", "ece"), "percent", "lower"), "points"),
    Judged("mean_auroc", Column("mean AUROC", ("ood_means", "all", "auroc"), "percent", "higher"), "points"),
)


@dataclass(frozen=True)
class Judgement:
    """One metric of a system against the first: the difference, its paired 95 % interval, and what follows."""

    key: str
    metric: str
    difference: Difference
    outcome: Outcome
    said: str  # the difference as people read it

    def to_json(self) -> dict[str, Any]:
        return {"outcome": self.outcome, "difference": self.difference.value, "interval": [*self.difference.interval]}


@dataclass(frozen=True)
class Verdict:
    """The gains and losses of a system against the first, and its cost.

    Attributes:
        multiply_adds, parameters: as multiples of the first system's; None where a report does not know them.
    """

    system: str
    first: str
    judgements: tuple[Judgement, ...]
    multiply_adds: float | None
    parameters: float | None

    def of(self, outcome: Outcome) -> list[Judgement]:
        """Returns the metrics with this outcome."""
        return [judgement for judgement in self.judgements if judgement.outcome == outcome]

    @property
    def gains(self) -> bool:
        """True if any metric is better beyond chance."""
        return bool(self.of("better"))

    def sentence(self) -> str:
        """Returns the verdict in one sentence."""
        parts = []
        for outcome in ("better", "worse"):
            if found := self.of(outcome):
                parts.append(f"{outcome} in {_listed([f'{one.metric} ({one.said})' for one in found])}")
        if not self.gains:
            parts.insert(0, "nothing is better beyond chance")
        if even := self.of("within chance"):
            parts.append(f"{_listed([one.metric for one in even])} within chance")
        return f"{self.system} against {self.first}: {'; '.join(parts)}{self._cost()}."

    def to_json(self) -> dict[str, Any]:
        """Returns its part of a report."""
        return {
            "against": self.first,
            **{judgement.key: judgement.to_json() for judgement in self.judgements},
            "cost_ratio": {"multiply_adds": self.multiply_adds, "parameters": self.parameters},
            "sentence": self.sentence(),
        }

    def _cost(self) -> str:
        known = {"the multiply-adds": self.multiply_adds, "the parameters": self.parameters}
        said = [f"{ratio:.2f} times {name}" for name, ratio in known.items() if ratio is not None]
        return f"; at {_listed(said)}" if said else ""


def verdicts(models: Mapping[str, System]) -> dict[str, Verdict]:
    """Returns by name what each system gains and loses against the first, if it has paired differences to it.

    Args:
        models: of a report, with the `difference` that resampling gives.
    """
    first = next(iter(models), "")
    found = {}
    for name, entry in models.items():
        judgements = tuple(filter(None, (_judgement(judged, entry) for judged in JUDGED)))
        if name != first and judgements:
            multiply_adds, parameters = (_ratio(entry, models[first], key) for key in ("multiply_adds", "parameters"))
            found[name] = Verdict(name, first, judgements, multiply_adds=multiply_adds, parameters=parameters)
    return found


def outcome(column: Column, entry: System) -> Outcome | None:
    """Returns how a number compares with the first system's; None if that is unknown or no direction is better."""
    found = column.paired(entry)
    if found is None or column.better is None:
        return None
    low, high = found.interval
    if low <= 0 <= high:
        return "within chance"
    return "better" if (low > 0) == (column.better == "higher") else "worse"


def legend(models: Mapping[str, System], marks: Marks = MARKS) -> str:
    """Returns the line that explains the marks of a table; empty if nothing was compared."""
    first = next(iter(models), "")
    compared = any(entry.difference for entry in models.values())
    said = f"{marks['better']} better, {marks['worse']} worse than {first} beyond chance (paired 95 % interval)."
    return said if compared else ""


def _judgement(judged: Judged, entry: System) -> Judgement | None:
    column, unit = judged.column, judged.unit and f" {judged.unit}"
    result, found = outcome(column, entry), column.paired(entry)
    if result is None or found is None:
        return None
    value, (low, high) = found.value, found.interval
    said = f"{_signed(column, value)}{unit}, 95 % {_signed(column, low)} to {_signed(column, high)}"
    return Judgement(judged.key, column.name, found, result, said=said)


def _signed(column: Column, value: float) -> str:
    shown = column.show(value)
    return shown if shown.startswith("-") else f"+{shown}"


def _ratio(entry: System, first: System, key: str) -> float | None:
    ours, theirs = (at(one.cost, (key,)) for one in (entry, first))
    return ours / theirs if ours and theirs else None


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
