"""Reports: the numbers of an evaluation as a value, a table, JSON and a page, and several reports in one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.optional import require
from hydractl.steps.inputs import Force
from hydractl.steps.options import Option, step
from hydractl.steps.result import Result
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 120  # of a table where no terminal says how wide it is

JsonReport = Annotated[
    str | Path | None,
    Option("Write the report as JSON as well.", heading="Output", metavar="FILE|-", flags=("--json",), bare="-"),
]
Full = Annotated[bool, Option("Show every metric, AUPR and selective prediction among them.", heading="Output")]
ReportFolder = Annotated[
    str | Path | None,
    Option(
        "Write a page to look at, with figures and tables as Markdown and LaTeX.", heading="Output", metavar="FOLDER"
    ),
]


@dataclass(frozen=True, eq=False, repr=False)
class Reported(Result):
    """A report: every number of every system, and what they were measured on.

    Attributes:
        report: as plain JSON, with the curves of pictures where they were asked for.
        full: whether its table shows every metric.
    """

    report: Mapping[str, Any]
    full: bool = False

    @property
    def models(self) -> Mapping[str, Mapping[str, Any]]:
        """The numbers of each system, as a report has them: `models["hydra"]["id"]["accuracy"]`."""
        found: Mapping[str, Mapping[str, Any]] = self.report["models"]
        return found

    def to_json(self) -> dict[str, Any]:
        """The report, without what only pictures are drawn of."""
        models = {
            name: {key: value for key, value in entry.items() if key != "curves"} for name, entry in self.models.items()
        }
        return {**self.report, "models": models}

    def lines(self) -> Iterator[str]:
        from rich.console import Console

        text = StringIO()
        self.draw(Console(force_jupyter=False, file=text, width=WIDTH))
        yield from text.getvalue().splitlines()

    def draw(self, console: Console) -> None:
        """Prints the table, as wide as the console is, the best of each column in bold."""
        from hydractl.report import table

        table.print_results(self.report, console, self.full)

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        from hydractl.report.notebook import html_table

        return html_table(self.report, self.full)


def check_outputs(json: str | Path | None, folder: str | Path | None, force: bool) -> None:
    """Nothing, if a report can be written: called before long work starts.

    Raises:
        OutputError: one exists and `force` is not set.
        OptionError: matplotlib, which draws a report's pictures, is not installed.
    """
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.report.folder import refuse_existing_report

    if json is not None:
        refuse_existing(Path(json), force)
    if folder is not None:
        refuse_existing_report(Path(folder), force)
        require("matplotlib")


def write_outputs(
    found: Reported, json: str | Path | None, folder: str | Path | None, force: bool, watch: Watcher
) -> None:
    """Writes what was asked for.

    Raises:
        OutputError: a file exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.artifacts import write_json
    from hydractl.report.folder import write_report

    if folder is not None:
        command = {} if watch.command is None else {"command": watch.command}
        page = write_report(Path(folder), {**found.report, **command}, force, found.full)
        watch.note(f"report: {page}")
    if json is not None:
        write_json(Path(json), found.to_json(), force)


@step
def report(
    files: Annotated[
        Sequence[str | Path],
        Option("Reports of `hydractl evaluate`; - is stdin.", heading="Model", metavar="REPORT...", positional=True),
    ],
    *,
    output: Annotated[
        str | Path | None,
        Option("Write a page, figures and tables.", heading="Output", metavar="FOLDER", flags=("--output", "-o")),
    ] = None,
    json: JsonReport = None,
    full: Full = False,
    force: Force = False,
    watch: Watcher = LOG,
) -> Reported:
    """Put the systems of several reports into one table.

    Example: hydractl report dense.json hydra.json -o comparison

    Prints the table; nothing is computed again. Only reports made by the same definitions are joined, and where they
    are not of the same data, that is said. Curves are drawn of reports that hold them: report.json of --report FOLDER.

    >>> from hydractl.steps.report import report
    >>> evaluated = [hydractl.evaluate(name, id_data="data/pets", json=f"{name}.json") for name in ("vit", "m1")]
    >>> sorted(report(["vit.json", "m1.json"]).models)
    ['m1', 'vit']

    Raises:
        ArtifactError: a file is no report, or two define their numbers differently.
        OutputError: an output exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.report.artifact import join_reports, read_report

    check_outputs(json, output, force)
    joined, notes = join_reports({str(file): read_report(str(file)) for file in files})
    for text in notes:
        watch.note(f"note: {text}")
    found = Reported(joined, full)
    write_outputs(found, json, output, force, watch)
    return found
