"""The command `report`: the numbers of evaluations as a value, a table, JSON and a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.errors import require
from hydractl.options import Option, Without, function
from hydractl.steps.inputs import Force
from hydractl.steps.result import Result
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from rich.console import Console

    from hydractl.evaluation.results import Results

WIDTH = 120  # columns of a table outside a terminal

JsonReport = Annotated[
    str | Path | None, Option("Also write the report as JSON.", "Output", "FILE|-", flags=("--json",), bare="-")
]
Full = Annotated[bool, Option("Show every metric, including AUPR and selective prediction.", "Output")]
ReportFolder = Annotated[
    str | Path | None,
    Option("Write a page with figures, and the tables as Markdown and LaTeX.", "Output", "FOLDER"),
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

    @property
    def models(self) -> Mapping[str, Mapping[str, Any]]:
        """The numbers of each system, as in `models["hydra"]["id"]["accuracy"]`."""
        from hydractl.reports.artifact import report_json

        found: Mapping[str, Mapping[str, Any]] = report_json(self.report)["models"]
        return found

    def to_json(self) -> dict[str, Any]:
        """Returns the report without the curves, which only pictures need."""
        from hydractl.reports.artifact import report_json, without_curves

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

        from hydractl.reports.table import markdown, result_table

        return MarkdownIt().enable("table").render(markdown(result_table(self.report, self.full)))


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
        from hydractl.reports.page import refuse_existing_report

        if self.json is not None:
            refuse_existing(Path(self.json), self.force)
        if self.report is not None:
            refuse_existing_report(Path(self.report), self.force)
            require("matplotlib")

    def write(self, report: Results, watch: Watcher) -> Reported:
        """Writes a report in each form that was chosen, and returns it.

        Raises:
            OutputError: a file exists and `force` is not set, or the disk refuses it.
        """
        from hydractl.artifacts import write_json
        from hydractl.reports.page import write_report

        found = Reported(report, self.full)
        if self.report is not None:
            told = replace(report, command=watch.command or report.command)
            page = write_report(Path(self.report), told, self.force, self.full)
            watch.note(f"report: {page}")
        if self.json is not None:
            write_json(Path(self.json), found.to_json(), self.force)
        return found


@dataclass(frozen=True)
class Report:
    """Put the systems of several reports into one table.

    Example: hydractl report dense.json hydra.json -o comparison

    Prints the table without computing anything again. Only reports that define their numbers alike can be joined; a
    note names those of different data. Curves are drawn for reports that hold them: report.json of --report FOLDER.

    >>> evaluated = [hydractl.evaluate(name, id_data="data/pets", json=f"{name}.json") for name in ("vit", "m1")]
    >>> sorted(hydractl.report(["vit.json", "m1.json"]).models)
    ['m1', 'vit']

    Raises:
        ArtifactError: a file is no report, or two reports define their numbers differently.
        OutputError: an output exists and `force` is not set, or the disk refuses it.
    """

    files: Annotated[
        Sequence[str | Path],
        Option("Reports of `hydractl evaluate`, or their folders; - is stdin.", "Model", "REPORT...", positional=True),
    ]
    output: Annotated[
        str | Path | None, Option("Write a page, figures and tables.", "Output", "FOLDER", flags=("--output", "-o"))
    ] = None
    outputs: Annotated[Outputs, Without("report")] = Outputs()

    def run(self, watch: Watcher) -> Reported:
        from hydractl.artifacts import file_of_ours
        from hydractl.reports.artifact import join_reports, read_report

        outputs = replace(self.outputs, report=self.output)
        outputs.check()
        given = [self.files] if isinstance(self.files, str | Path) else self.files
        files = [str(file_of_ours(str(file)) or file) for file in given]
        joined, notes = join_reports({file: read_report(file) for file in files})
        for text in notes:
            watch.note(f"note: {text}")
        return outputs.write(joined, watch)


report = function(Report)
