"""The results of an evaluation on each task of a suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hydractl.steps.report import Reported
from hydractl.steps.result import Result

if TYPE_CHECKING:
    from hydractl.evaluation.results import System
    from hydractl.reports.columns import Column

SuiteLike = Any  #: a name, a path, or a `Suite`
FORMAT, VERSION = "hydractl-suite", 1
#: Parts of a system's results that are averaged over tasks.
AVERAGED = (("id",), ("ood_means", "all"), ("shift_means", "all"))


def columns() -> list[Column]:
    """Returns the columns of the table."""
    from hydractl.reports.columns import Column

    id_, ood, shift = AVERAGED
    return [
        Column("acc %", (*id_, "accuracy"), "percent"),
        Column("Brier", (*id_, "brier"), "plain"),
        Column("NLL", (*id_, "nll"), "plain"),
        Column("ECE %", (*id_, "ece"), "percent"),
        Column("AUROC %", (*ood, "auroc"), "percent"),
        Column("FPR95 %", (*ood, "fpr95"), "percent"),
        Column("shift acc %", (*shift, "accuracy"), "percent"),
        Column("shift ECE %", (*shift, "ece"), "percent"),
    ]


@dataclass(frozen=True, eq=False, repr=False)
class SuiteReported(Result):
    """The report of every system on every task.

    Attributes:
        suite: the name of the suite.
        reports: by task.
    """

    suite: str
    reports: Mapping[str, Reported]

    @property
    def means(self) -> dict[str, dict[str, Any]]:
        """The flat means over tasks of each system, of the numbers that every task has."""
        by_task = [report.report.models for report in self.reports.values()]
        systems = by_task[0] if by_task else {}
        return {system: _mean([models[system] for models in by_task]) for system in systems}

    def to_json(self) -> dict[str, Any]:
        tasks = {task: report.to_json() for task, report in self.reports.items()}
        return {"format": FORMAT, "version": VERSION, "suite": self.suite, "tasks": tasks, "means": self.means}

    def lines(self) -> Iterator[str]:
        from hydractl.reports.columns import at
        from hydractl.text import aligned

        rows: list[tuple[str, str, Any]] = [
            (task, name, system) for task, one in self.reports.items() for name, system in one.report.models.items()
        ]
        if len(self.reports) > 1:
            rows += [(f"mean of {len(self.reports)}", name, means) for name, means in self.means.items()]
        shown = [column for column in columns() if any(at(entry, column.path) is not None for *_, entry in rows)]
        cells = [["task", "system", *(column.name for column in shown)]]
        cells += [[task, name, *(_cell(column, entry) for column in shown)] for task, name, entry in rows]
        return aligned(cells, left=2)


def _mean(systems: Sequence[System]) -> dict[str, Any]:
    from hydractl.evaluation.results import mean, plain
    from hydractl.reports.columns import at

    found: dict[str, Any] = {}
    for *above, part in AVERAGED:
        parts = [at(system, (*above, part)) for system in systems]
        if all(parts):
            place = found.setdefault(above[0], {}) if above else found
            place[part] = plain(replace(mean(parts), samples=None))
    return found


def _cell(column: Column, entry: Any) -> str:
    value = column.value(entry)
    return "-" if value is None else column.show(value)
