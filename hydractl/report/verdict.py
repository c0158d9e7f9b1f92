"""What is gained and lost against the first system of a report, told apart from chance by paired intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hydractl.report.columns import Column, Entry

Outcome = Literal["better", "worse", "within chance"]
#: How an outcome is marked beside a number.
MARKS: Mapping[Outcome, str] = {"better": "▲", "worse": "▼", "within chance": ""}

#: What a verdict speaks of.
JUDGED = (
    (Column("accuracy", ("id", "accuracy"), "percent", "higher"), "points"),
    (Column("NLL", ("id", "nll"), "plain", "lower"), ""),
    (Column("ECE", ("id", "ece"), "percent", "lower"), "points"),
    (Column("mean AUROC", ("ood_means", "all", "auroc"), "percent", "higher"), "points"),
)


@dataclass(frozen=True)
class Judgement:
    """One metric of a system against the first: the difference, its paired 95 % interval, and what follows."""

    metric: str
    value: float
    low: float
    high: float
    outcome: Outcome
    said: str  # the difference as people read it

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "interval": [self.low, self.high], "outcome": self.outcome}


@dataclass(frozen=True)
class Verdict:
    """What a system gains and loses against the first, and what it costs.

    Attributes:
        multiply_adds, parameters: as multiples of the first system's; None where a report does not know them.
    """

    system: str
    first: str
    judgements: tuple[Judgement, ...]
    multiply_adds: float | None
    parameters: float | None

    def of(self, outcome: Outcome) -> list[Judgement]:
        """The metrics with this outcome."""
        return [judgement for judgement in self.judgements if judgement.outcome == outcome]

    @property
    def gains(self) -> bool:
        """Whether something is better beyond chance."""
        return bool(self.of("better"))

    def sentence(self) -> str:
        """The verdict in one sentence."""
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
        """Its part of a report."""
        return {
            "against": self.first,
            "metrics": {judgement.metric: judgement.to_json() for judgement in self.judgements},
            "multiply_adds": self.multiply_adds,
            "parameters": self.parameters,
            "sentence": self.sentence(),
        }

    def _cost(self) -> str:
        known = {"the multiply-adds": self.multiply_adds, "the parameters": self.parameters}
        said = [f"{ratio:.2f} times {name}" for name, ratio in known.items() if ratio is not None]
        return f"; at {_listed(said)}" if said else ""


def verdicts(models: Mapping[str, Entry]) -> dict[str, Verdict]:
    """By name what each system gains and loses against the first; none for systems without paired differences.

    Args:
        models: the entries of a report, with the `difference` that resampling gives.
    """
    first = next(iter(models), "")
    found = {}
    for name, entry in models.items():
        judgements = tuple(filter(None, (_judged(column, unit, entry) for column, unit in JUDGED)))
        if name != first and judgements:
            ratios = (_ratio(entry, models[first], key) for key in ("multiply_adds", "parameters"))
            found[name] = Verdict(name, first, judgements, *ratios)
    return found


def outcome(column: Column, entry: Entry) -> Outcome | None:
    """How a number compares with the first system's; None where that is not known or nothing is better or worse."""
    judged = _judged(column, "", entry)
    return None if judged is None else judged.outcome


def _judged(column: Column, unit: str, entry: Entry) -> Judgement | None:
    found: Any = entry.get("difference")
    for key in column.path:
        found = found.get(key) if isinstance(found, Mapping) else None
    if found is None or column.better is None:
        return None
    value, (low, high) = found["value"], found["interval"]
    sign = 1 if column.better == "higher" else -1
    ends = sorted((sign * low, sign * high))
    result: Outcome = "better" if ends[0] > 0 else "worse" if ends[1] < 0 else "within chance"
    said = (
        f"{_signed(column, value)}{f' {unit}' if unit else ''}, 95 % {_signed(column, low)} to {_signed(column, high)}"
    )
    return Judgement(column.name, value, low, high, result, said)


def _signed(column: Column, value: float) -> str:
    shown = column.show(value)
    return shown if shown.startswith("-") else f"+{shown}"


def _ratio(entry: Entry, first: Entry, key: str) -> float | None:
    ours, theirs = ((one.get("cost") or {}).get(key) for one in (entry, first))
    return ours / theirs if ours and theirs else None


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
