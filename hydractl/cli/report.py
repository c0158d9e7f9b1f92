"""`hydractl report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hydractl.cli import console
from hydractl.cli.evaluation_output import Full, JsonReport, Outputs, check_outputs, output_report
from hydractl.cli.options import Force, Quiet


def report(
    files: Annotated[
        list[str], typer.Argument(metavar="REPORT...|-", help="Reports of `hydractl evaluate`; - is stdin.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Write a page, figures and tables.")
    ] = None,
    json: JsonReport = None,
    full: Full = False,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Put the systems of several reports into one table.

    Example: hydractl report dense.json hydra.json -o comparison

    Prints the table; nothing is computed again. Only reports made by the same definitions are joined, and where they
    are not of the same data, that is said. Curves are drawn of reports that hold them: report.json of --report FOLDER.
    """
    from hydractl.report.artifact import join_reports, read_report

    outputs = Outputs(json, output, full, force, quiet)
    check_outputs(outputs)
    reports: dict[str, dict[str, Any]] = {file: read_report(file) for file in files}
    joined, notes = join_reports(reports)
    for text in notes:
        console.note(f"note: {text}", quiet)
    output_report(joined, outputs)
