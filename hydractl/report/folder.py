"""A report as a folder: a page to look at, and every part of it as a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydractl.artifacts import seen_from
from hydractl.checkpoint.atomic import write_bytes
from hydractl.checkpoint.folders import make_folder, refuse_folder, write_folder
from hydractl.report.drawing import inline, png, svg, whole
from hydractl.report.figures import pictures
from hydractl.report.page import html_page
from hydractl.report.texts import latex, markdown
from hydractl.text import printable_json

PAGE = "index.html"
KIND = "report"  # of folder, by which ours are known


def refuse_existing_report(folder: Path, force: bool) -> None:
    """Nothing, if a report can be written there: called before long work starts.

    Raises:
        OutputError: a report lies there and `force` is not set, or anything that is not of one.
    """
    if folder.parent.is_dir():  # else it is made when there is something to put in it
        refuse_folder(folder, KIND, force)


def write_report(folder: Path, report: Mapping[str, Any], force: bool = False, full: bool = False) -> Path:
    """Writes index.html, report.json, table.md, table.tex and figures/*.svg and *.png; returns the page.

    The folder appears with all of them or not at all.

    Args:
        full: every metric in the tables of text, rather than the main ones; the page has both.

    Raises:
        OutputError: see `refuse_existing_report`; or the disk refuses it.
    """
    found = pictures(report)
    drawn = {name: whole(picture) for name, picture in found.items()}
    report = seen_from(folder, report)
    texts = {
        "report.json": printable_json(report) + "\n",
        "table.md": markdown(report, full),
        "table.tex": latex(report, full),
        PAGE: html_page(report, {name: inline(picture) for name, picture in found.items()}),
        **{f"figures/{name}.svg": svg(figure) for name, figure in drawn.items()},
    }
    make_folder(folder.parent, parents=True)
    with write_folder(folder, KIND, force) as new:
        make_folder(new / "figures")
        for name, text in texts.items():
            write_bytes(new / name, text.encode())
        for name, figure in drawn.items():
            write_bytes(new / "figures" / f"{name}.png", png(figure))
    return folder / PAGE
