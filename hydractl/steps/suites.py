"""Suites of tasks: the built-in ones, and what comes of evaluating on one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.options import Option, function
from hydractl.steps.report import Reported
from hydractl.steps.result import Result
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.evaluation.results import System
    from hydractl.evaluation.suites import Suite
    from hydractl.report.columns import Column

    SuiteLike = str | Path | Suite
else:  # what the command line derives flags from
    SuiteLike = Any

FORMAT, VERSION = "hydractl-suite", 1
#: The parts of a system that are averaged over tasks.
AVERAGED = (("id",), ("ood_means", "all"), ("shift_means", "all"))


def columns() -> list[Column]:
    """Returns the columns of the table."""
    from hydractl.report.columns import Column

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
    """Every system on every task.

    Attributes:
        suite: what the suite is called.
        reports: by task.
    """

    suite: str
    reports: Mapping[str, Reported]

    @property
    def means(self) -> dict[str, dict[str, Any]]:
        """By system the flat means over tasks of the numbers that all of them have."""
        by_task = [report.report.models for report in self.reports.values()]
        systems = by_task[0] if by_task else {}
        return {system: _mean([models[system] for models in by_task]) for system in systems}

    def to_json(self) -> dict[str, Any]:
        tasks = {task: report.to_json() for task, report in self.reports.items()}
        return {"format": FORMAT, "version": VERSION, "suite": self.suite, "tasks": tasks, "means": self.means}

    def lines(self) -> Iterator[str]:
        from hydractl.report.columns import at

        rows: list[tuple[str, str, Any]] = [
            (task, name, system) for task, one in self.reports.items() for name, system in one.report.models.items()
        ]
        if len(self.reports) > 1:
            rows += [(f"mean of {len(self.reports)}", name, means) for name, means in self.means.items()]
        shown = [column for column in columns() if any(at(entry, column.path) is not None for *_, entry in rows)]
        cells = [["task", "system", *(column.name for column in shown)]]
        cells += [[task, name, *(_cell(column, entry) for column in shown)] for task, name, entry in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            left = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
            right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
            yield "  ".join([*left, *right]).rstrip()

    def facts(self) -> Mapping[str, object]:
        return {
            system: ", ".join(f"{column.name} {_cell(column, entry)}" for column in columns()[:6])
            for system, entry in self.means.items()
        }

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True, eq=False, repr=False)
class Suites(Result):
    """The built-in suites by name."""

    suites: Mapping[str, Suite]

    def to_json(self) -> dict[str, Any]:
        return {"suites": {name: _as_json(suite) for name, suite in self.suites.items()}}

    def lines(self) -> Iterator[str]:
        width = max(map(len, self.suites))
        yield from (f"{name:{width}}  {about}" for name, about in self.facts().items())

    def facts(self) -> Mapping[str, object]:
        return {name: suite.about for name, suite in self.suites.items()}


@dataclass(frozen=True, eq=False, repr=False)
class ShownSuite(Result):
    """One suite, task by task."""

    suite: Suite

    def to_json(self) -> dict[str, Any]:
        return _as_json(self.suite)

    def lines(self) -> Iterator[str]:
        import tomli_w

        yield from tomli_w.dumps(self.to_json()).splitlines()

    def facts(self) -> Mapping[str, object]:
        return {name: task.id_data for name, task in self.suite.tasks.items()}


@dataclass(frozen=True)
class ListSuites:
    """List the built-in suites.

    Example: hydractl suites list

    >>> "sst2" in hydractl.list_suites().suites
    True
    """

    def run(self, watch: Watcher) -> Suites:
        from hydractl.evaluation.suites import SUITES

        return Suites(SUITES)


@dataclass(frozen=True)
class ShowSuite:
    """Print a suite as TOML, ready to be changed and passed to evaluate.

    Example: hydractl suites show sst2 > mine.toml

    >>> list(hydractl.show_suite("sst2").suite.tasks)
    ['sst2']

    Raises:
        OptionError: neither a built-in suite nor a readable file.
    """

    suite: Annotated[SuiteLike, Option("A built-in suite, or a TOML file.", "Model", "SUITE", positional=True)]

    def run(self, watch: Watcher) -> ShownSuite:
        from hydractl.evaluation.suites import find_suite

        return ShownSuite(find_suite(self.suite))


list_suites = function(ListSuites)
show_suite = function(ShowSuite)


def _as_json(suite: Suite) -> dict[str, Any]:
    tasks = {name: {**task.options} for name, task in suite.tasks.items()}
    return {"about": suite.about, "tasks": tasks}


def _mean(systems: Sequence[System]) -> dict[str, Any]:
    from hydractl.evaluation.results import mean, plain
    from hydractl.report.columns import at

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
