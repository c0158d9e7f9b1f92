"""Suites of tasks: the built-in ones, and what comes of evaluating on one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.options import Option, function
from hydractl.steps.report import Reported
from hydractl.steps.result import Result
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.evaluation.suites import Suite

    SuiteLike = str | Path | Suite
else:  # what the command line derives flags from
    SuiteLike = Any

FORMAT, VERSION = "hydractl-suite", 1
#: What a row of the table shows: its header, where a system's entry has it, and what to multiply it by.
COLUMNS = (
    ("acc %", ("id", "accuracy"), 100),
    ("Brier", ("id", "brier"), 1),
    ("NLL", ("id", "nll"), 1),
    ("ECE %", ("id", "ece"), 100),
    ("AUROC %", ("ood_means", "all", "auroc"), 100),
    ("FPR95 %", ("ood_means", "all", "fpr95"), 100),
    ("shift acc %", ("shift_means", "all", "accuracy"), 100),
    ("shift ECE %", ("shift_means", "all", "ece"), 100),
)
#: The parts of a system's entry that are averaged over tasks.
AVERAGED = (("id",), ("ood_means", "all"), ("shift_means", "all"))


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
        """By system the flat means over tasks of what all of them have."""
        by_task = [report.models for report in self.reports.values()]
        systems = by_task[0] if by_task else {}
        return {system: _mean([models[system] for models in by_task]) for system in systems}

    def to_json(self) -> dict[str, Any]:
        tasks = {task: report.to_json() for task, report in self.reports.items()}
        return {"format": FORMAT, "version": VERSION, "suite": self.suite, "tasks": tasks, "means": self.means}

    def lines(self) -> Iterator[str]:
        blocks = {task: report.models for task, report in self.reports.items()}
        if len(blocks) > 1:
            blocks[f"mean of {len(blocks)}"] = self.means
        rows = [(task, system, entry) for task, models in blocks.items() for system, entry in models.items()]
        columns = [column for column in COLUMNS if any(_at(entry, column[1]) is not None for *_, entry in rows)]
        cells = [["task", "system", *(name for name, *_ in columns)]]
        cells += [[task, system, *(_shown(entry, column) for column in columns)] for task, system, entry in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            left = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
            right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
            yield "  ".join([*left, *right]).rstrip()

    def facts(self) -> Mapping[str, object]:
        return {
            system: ", ".join(f"{column[0]} {_shown(entry, column)}" for column in COLUMNS[:6])
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


def _mean(entries: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The numbers of all entries, averaged where every one has them."""
    mean: dict[str, Any] = {}
    for path in AVERAGED:
        parts = [_at(entry, path) for entry in entries]
        if any(part is None for part in parts):
            continue
        names = [name for name, value in parts[0].items() if isinstance(value, int | float) and name != "samples"]
        place = mean
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = {name: fmean(part[name] for part in parts) for name in names}
    return mean


def _at(entry: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        entry = entry.get(key) if isinstance(entry, Mapping) else None
    return entry


def _shown(entry: Mapping[str, Any], column: tuple[str, tuple[str, ...], int]) -> str:
    value = _at(entry, column[1])
    if value is None:
        return "-"
    return f"{column[2] * value:.2f}" if column[2] > 1 else f"{value:.3f}"
