"""Results of steps, readable as lines of a terminal, JSON, text and a table in a notebook; reports of evaluations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, cast

from hydractl.options import Option
from hydractl.run_options import Force
from hydractl.text import TableLine, html, printable
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from rich.console import Console

    from hydractl.evaluation.results import Results, SystemResult
    from hydractl.model.hydra import Hydra, HydraOutput
    from hydractl.reports.columns import Column
    from hydractl.tasks.task import Answers

Value = TypeVar("Value")


class Result:
    """The readable side of a step's result; what it holds stands in the dataclass that a step returns."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON: what `--json` writes."""
        raise NotImplementedError

    def lines(self) -> Iterator[str]:
        """Yields the lines that the command prints on standard output."""
        raise NotImplementedError

    def facts(self) -> Mapping[str, object]:
        """Returns facts by name, which Python and notebooks show in place of the lines if there are any."""
        return {}

    def guidance(self) -> Iterator[str]:
        """Yields lines for stderr: what changed, and the likely next command."""
        yield from ()

    @property
    def exit_code(self) -> int:
        """The code that the command ends with once the result is printed: 1 for a finding that should stop a job."""
        return 0

    def __repr__(self) -> str:
        facts = {printable(name): printable(str(value)) for name, value in self.facts().items()}
        if not facts:
            return "\n".join(self.lines())
        width = max(map(len, facts))
        return "\n".join([type(self).__name__, *(f"  {name:<{width}}  {value}" for name, value in facts.items())])

    def _repr_html_(self) -> str:
        facts = self.facts()
        if not facts:
            return "".join(starmap(_in_html, groupby(self.lines(), type)))
        rows = (f"<tr><th>{html(name)}</th><td>{html(str(v))}</td></tr>" for name, v in facts.items())
        return f"<table><caption>{type(self).__name__}</caption>{''.join(rows)}</table>"


def _in_html(kind: type, lines: Iterator[str]) -> str:
    """Returns lines of one kind: a table, whose first line is a heading where it has more than two columns, or text."""
    if kind is not TableLine:
        return "<pre>" + "\n".join(map(html, lines)) + "</pre>"
    rows = [line.cells for line in cast("Iterator[TableLine]", lines)]
    tags = ["th" if len(rows[0]) > 2 else "td", *["td"] * (len(rows) - 1)]
    marked = ("".join(f"<{tag}>{html(cell)}</{tag}>" for cell in row) for tag, row in zip(tags, rows, strict=True))
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in marked)}</table>"


class MadeModel(Result):
    """A result that is a model: it answers as what `hydractl.load` returns does, and is loaded at its first answer."""

    def facts(self: Any) -> Mapping[str, object]:
        from hydractl.reports.summary import key_facts

        return key_facts(self.checkpoint) | ({"file": self.output} if self.output else {})

    def __call__(self, *inputs: Any, **tensors: Any) -> HydraOutput:
        """Classifies a batch of tensors; see `Hydra.forward`."""
        return self._loaded(*inputs, **tensors)

    def predict(self, samples: Any, batch_size: int = 64) -> Answers:
        """Predicts raw images or texts; see `Hydra.predict`."""
        return self._loaded.predict(samples, batch_size)

    @cached_property
    def _loaded(self: Any) -> Hydra:
        from hydractl.inference import load_checkpoint

        return load_checkpoint(self.checkpoint).optimize_for_inference()


@dataclass(frozen=True, eq=False, repr=False)
class Finding(Result, Generic[Value]):
    """A value, ready to be read in every way.

    Attributes:
        value: what a command found.
        content: the same and how it was made, as plain JSON.
        table: the lines that people read.
    """

    value: Value
    content: Mapping[str, Any]
    table: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        return dict(self.content)

    def lines(self) -> Iterator[str]:
        yield from self.table


SuiteLike = Any  #: a name, a path, or a `Suite`
FORMAT, VERSION = "hydractl-suite", 1
#: Parts of a system's results that are averaged over tasks.
AVERAGED = (("id",), ("ood_means", "all"), ("shift_means", "all"))

WIDTH = 120  # columns of a table outside a terminal

JsonReport = Annotated[
    str | Path | None, Option("Also write the report as JSON.", "Output", "FILE|-", flags=("--json",), bare="-")
]
Full = Annotated[bool, Option("Show every metric, including AUPR and selective prediction.", "Output")]
ReportFolder = Annotated[
    str | Path | None, Option("Write a page with figures, and the table as Markdown.", "Output", "FOLDER")
]


@dataclass(frozen=True, eq=False, repr=False)
class Reported(Result):
    """A report: all numbers of all systems, and the data that they were measured on.

    Attributes:
        report: the results, with the curves of the pictures if they were computed.
        full: whether its table shows every metric.
    """

    report: Results
    full: bool = False

    @cached_property
    def models(self) -> Mapping[str, Mapping[str, Any]]:
        """The numbers of each system, as in `models["hydra"]["id"]["accuracy"]`."""
        from hydractl.reports.page import report_json

        return report_json(self.report)["models"]

    def to_json(self) -> dict[str, Any]:
        """Returns the report without the curves, which only pictures need."""
        from hydractl.reports.page import report_json, without_curves

        return report_json(without_curves(self.report))

    def lines(self) -> Iterator[str]:
        from hydractl.reports.table import result_table, table_lines

        yield from table_lines(result_table(self.report, self.full), WIDTH)

    def draw(self, console: Console) -> None:
        """Prints the table, as wide as the console is, with the best of each column in bold."""
        from hydractl.reports.table import draw, result_table

        draw(result_table(self.report, self.full), console)

    def _repr_html_(self) -> str:
        from markdown_it import MarkdownIt

        from hydractl.reports.table import markdown_table, result_table

        return MarkdownIt().enable("table").render(markdown_table(result_table(self.report, self.full)))


@dataclass(frozen=True)
class Outputs:
    """The forms in which a report is written, besides the printed table."""

    json: JsonReport = None
    report: ReportFolder = None
    full: Full = False
    force: Force = False

    def check(self) -> None:
        """Raises an error if the report cannot be written, before long work starts.

        Raises:
            OutputError: an output exists and `force` is not set.
            OptionError: matplotlib, which draws the pictures of a page, is not installed.
        """
        from hydractl.checkpoint.output import refuse_existing
        from hydractl.reports.page import check_report

        if self.json is not None:
            refuse_existing(Path(self.json), self.force)
        if self.report is not None:
            check_report(Path(self.report), self.force)

    def write(self, report: Results, watch: Watcher) -> Reported:
        """Writes a report in each form that was chosen, and returns it.

        Raises:
            OutputError: a file exists and `force` is not set, or the disk refuses it.
        """
        from hydractl.artifacts import write_json
        from hydractl.reports.page import write_report

        reported = Reported(report, self.full)
        if self.report is not None:
            with_command = replace(report, command=watch.command or report.command)
            page = write_report(Path(self.report), with_command, self.force, self.full)
            watch.note(f"report: {page}")
        if self.json is not None:
            write_json(Path(self.json), reported.to_json(), self.force)
        return reported


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
            (task, name, system)
            for task, reported in self.reports.items()
            for name, system in reported.report.models.items()
        ]
        if len(self.reports) > 1:
            rows += [(f"mean of {len(self.reports)}", name, means) for name, means in self.means.items()]
        shown = [column for column in columns() if any(at(entry, column.path) is not None for *_, entry in rows)]
        cells = [["task", "system", *(column.name for column in shown)]]
        cells += [[task, name, *(_mean_cell(column, entry) for column in shown)] for task, name, entry in rows]
        return aligned(cells, left=2)


def _mean(systems: Sequence[SystemResult]) -> dict[str, Any]:
    from hydractl.evaluation.results import mean
    from hydractl.reports.columns import at
    from hydractl.systems.system import plain

    means: dict[str, Any] = {}
    for *above, part in AVERAGED:
        parts = [at(system, (*above, part)) for system in systems]
        if all(parts):
            place = means.setdefault(above[0], {}) if above else means
            place[part] = plain(replace(mean(parts), samples=None))
    return means


def _mean_cell(column: Column, entry: Any) -> str:
    value = column.value(entry)
    return "-" if value is None else column.show(value)
