"""Where the numbers of an evaluation go: the terminal, a JSON file, a folder with a page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from hydractl.cli import console

ReportFolder = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Write a page to look at, with figures and tables as Markdown and LaTeX."),
]


def output_report(content: Mapping[str, Any], json: Path | None, folder: Path | None, force: bool, quiet: bool) -> None:
    """Prints the table, or the report itself where `json` is `-`, and writes what was asked for.

    Raises:
        OutputError: a file exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.report.folder import write_report
    from hydractl.report.table import print_results

    if json is not None:
        entries = {name: _without_curves(entry) for name, entry in content["models"].items()}
        console.write_json(json, {**content, "models": entries}, force)
    if str(json) != console.STDOUT:
        print_results(content, console.stdout_console())
    if folder is not None:
        command = shlex.join(["hydractl", *sys.argv[1:]])
        page = write_report(folder, {**content, "command": command}, force)
        console.note(f"report: {page}", quiet)


def _without_curves(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "curves"}
