"""A report as a folder: a page to look at, and every part of it as a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydractl.artifacts import seen_from
from hydractl.checkpoint.atomic import write_bytes
from hydractl.checkpoint.folders import make_folder
from hydractl.errors import OutputError
from hydractl.report.figures import figures, png, svg
from hydractl.report.page import html_page
from hydractl.report.texts import latex, markdown
from hydractl.text import printable_json

PAGE = "index.html"


def refuse_existing_report(folder: Path, force: bool) -> None:
    """Raises OutputError when a report lies in the folder and `force` is not set: called before long work starts."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: is a file, a report is a folder: name another")
    if (folder / PAGE).exists() and not force:
        raise OutputError(f"{folder}: holds a report already: name another folder or pass `force`")


def write_report(folder: Path, report: Mapping[str, Any], force: bool = False) -> Path:
    """Writes index.html, report.json, table.md, table.tex and figures/*.svg and *.png; returns the page.

    Raises:
        OutputError: a report lies there and `force` is not set, or the disk refuses it.
    """
    refuse_existing_report(folder, force)
    make_folder(folder / "figures", parents=True)
    pictures: dict[str, str] = {}
    for name, figure in figures(report).items():
        pictures[name] = svg(figure)
        write_bytes(folder / "figures" / f"{name}.svg", pictures[name].encode(), force=True)
        write_bytes(folder / "figures" / f"{name}.png", png(figure), force=True)
    report = seen_from(folder, report)
    texts = {
        "report.json": printable_json(report) + "\n",
        "table.md": markdown(report),
        "table.tex": latex(report),
        # The page comes last: where it is, the rest is.
        PAGE: html_page(report, {name: _inline(picture) for name, picture in pictures.items()}),
    }
    for name, text in texts.items():
        write_bytes(folder / name, text.encode(), force=True)
    return folder / PAGE


def _inline(picture: str) -> str:
    """The `<svg>` element alone: a page has no room for an XML declaration."""
    return picture[picture.index("<svg") :]
