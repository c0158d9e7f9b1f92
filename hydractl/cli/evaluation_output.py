"""Where the numbers of an evaluation go: the terminal, a JSON file, a folder with a page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hydractl.cli import console

JsonReport = Annotated[Path | None, typer.Option(metavar="FILE|-", help="Write the report as JSON as well.")]
Full = Annotated[bool, typer.Option("--full", help="Print every metric, AUPR and selective prediction among them.")]
ReportFolder = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Write a page to look at, with figures and tables as Markdown and LaTeX."),
]


@dataclass(frozen=True)
class Outputs:
    """Where numbers go, and how many of them to the terminal."""

    json: Path | None
    folder: Path | None
    full: bool
    force: bool
    quiet: bool


def check_outputs(outputs: Outputs) -> None:
    """Nothing, if all can be written: called before long work starts.

    Raises:
        OutputError: one exists and `force` is not set.
        OptionError: there is nothing to draw a report's pictures with.
    """
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.report.figures import check_plots
    from hydractl.report.folder import refuse_existing_report

    if outputs.json is not None and str(outputs.json) != console.STDOUT:
        refuse_existing(outputs.json, outputs.force)
    if outputs.folder is not None:
        refuse_existing_report(outputs.folder, outputs.force)
        check_plots()


def output_report(content: Mapping[str, Any], outputs: Outputs) -> None:
    """Writes what was asked for, then prints the table, or the report itself where `json` is `-`.

    Raises:
        OutputError: a file exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.report.folder import write_report
    from hydractl.report.table import print_results

    # Files first: a reader of stdout who leaves early must not cost them.
    if outputs.folder is not None:
        command = shlex.join(["hydractl", *sys.argv[1:]])
        page = write_report(outputs.folder, {**content, "command": command}, outputs.force)
        console.note(f"report: {page}", outputs.quiet)
    if outputs.json is not None:
        entries = {name: _without_curves(entry) for name, entry in content["models"].items()}
        console.write_json(outputs.json, {**content, "models": entries}, outputs.force)
    if str(outputs.json) != console.STDOUT:
        print_results(content, console.stdout_console(), outputs.full)


def _without_curves(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "curves"}
