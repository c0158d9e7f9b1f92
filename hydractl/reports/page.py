"""A report as a folder: one HTML page that needs no network, and every part of it as a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.artifacts import seen_from
from hydractl.checkpoint.output import make_folder, refuse_folder, write_bytes, write_folder
from hydractl.evaluation.results import Results, Sample, SystemResult
from hydractl.reports.artifact import report_json
from hydractl.reports.drawing import inline, png, svg
from hydractl.reports.figures import TITLES, pictures, told_apart
from hydractl.reports.table import latex_table, markdown_table, result_table
from hydractl.reports.verdict import next_command, recommended, rivalries, verdicts
from hydractl.text import printable, printable_json

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE = "index.html"
KIND = "report"  # marks the folders that may be replaced

TOLD = 5  # verdicts before the table; further ones fold away


def refuse_existing_report(folder: Path, force: bool) -> None:
    """Raises an error if a report cannot be written there, before long work starts.

    Raises:
        OutputError: the folder holds a report and `force` is not set, or it holds anything else.
    """
    refuse_folder(folder, KIND, force)


def write_report(folder: Path, report: Results, force: bool = False, full: bool = False) -> Path:
    """Writes index.html, report.json, table.md, table.tex and figures/*.svg and *.png; returns the page.

    The folder appears with all of them or not at all.

    Args:
        full: whether table.md and table.tex show every metric; the page always does.

    Raises:
        OutputError: see `refuse_existing_report`; or the disk refuses it.
    """
    figures = pictures(report)
    content = seen_from(folder, report_json(report))
    table = result_table(report, full, brief=True)
    texts = {
        "report.json": printable_json(content) + "\n",
        "table.md": markdown_table(table),
        "table.tex": latex_table(table),
        PAGE: html_page(report, {name: inline(figure, name) for name, figure in figures.items()}, folder),
        **{f"figures/{name}.svg": svg(figure) for name, figure in figures.items()},
    }
    with write_folder(folder, KIND, force) as new:
        make_folder(new / "figures")
        for name, text in texts.items():
            write_bytes(new / name, text.encode())
        for name, figure in figures.items():
            write_bytes(new / "figures" / f"{name}.png", png(figure))
    return folder / PAGE


def html_page(report: Results, drawn: Mapping[str, str], folder: Path = Path()) -> str:
    """Returns the page.

    Args:
        drawn: the result of `drawing.inline` for each picture, by its name in `TITLES`.
        folder: of the page, from which references to models are given.
    """
    from markupsafe import Markup

    template = environment().get_template("page.html")
    models, content = report.models, seen_from(folder, report_json(report))
    by_first, rivals = verdicts(models), rivalries(models)
    in_order = sorted(by_first.values(), key=lambda verdict: -models[verdict.system].members)
    main = result_table(report, brief=True)
    shown, chosen_by = told_apart(models)
    first = next(iter(models))
    clear = bool(by_first) and (len(by_first) == 1 or bool(rivals))
    best, why = recommended(models) if clear else (first, "")
    listed = list(_samples(models))
    used = [network["reference"] for network in content["models"][best].get("networks") or ()]
    return template.render(
        report=content,
        models=content["models"],
        tables=[("results", "Results", main), ("details", "Every metric", result_table(report, full=True))],
        verdicts=[verdict.sentence() for verdict in (*in_order, *rivals)],
        told=TOLD,
        deploy=why,
        next=next_command(used) if clear or len(models) == 1 else "",
        compared=bool(by_first),
        caption=main.caption,
        pictures=[(TITLES[name], Markup(drawn[name])) for name in TITLES if name in drawn],
        shown=len(shown),
        chosen_by=chosen_by,
        maps=list(_head_maps(models)),
        samples=listed,
        profiles=any(sample.profile for _, shown in listed for sample in shown),
        first=first,
    )


def environment() -> Environment:
    """Returns Jinja for pages: it escapes markup, and text that no page may hold."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # Jinja escapes markup, but lets characters through that no page may hold.
    made = Environment(
        loader=PackageLoader("hydractl", "reports"),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["oddness"] = _oddness
    return made


def _samples(models: Mapping[str, SystemResult]) -> Iterator[tuple[str, Sequence[Sample]]]:
    """Yields samples under titles.

    The oddest of each set by the first system that has profiles, what the largest system doubts, and what the first one
    was sure of and wrong about.
    """
    curves = {name: entry.curves for name, entry in models.items() if entry.curves}
    odd = {name: curve.oddest for name, curve in curves.items() if curve.oddest}
    for name, sets in list(odd.items())[:1]:
        yield from ((f"Least typical of {'ID' if of == 'id' else of}, by {name}", shown) for of, shown in sets.items())
    doubts = {name: curve.doubts for name, curve in curves.items() if curve.doubts}
    if not doubts:
        return
    most, first = max(doubts, key=lambda name: models[name].members), next(iter(doubts))
    yield f"Samples that {most} is least sure of", doubts[most].doubted
    if doubts[first].wrong:
        yield f"Confident errors of {first}", doubts[first].wrong


def _oddness(typicality: float) -> float:
    """Returns the height of a bar, 0 for a typicality of 1 up to 30 for .001 and less."""
    return round(10 * min(3.0, -log10(max(typicality, 1e-3))), 1)


def _head_maps(models: Mapping[str, SystemResult]) -> Iterator[dict[str, Any]]:
    """Yields the heads that each member keeps, for systems that lack some."""
    for name, system in models.items():
        for network in system.networks or ():
            for tower, heads in network.heads.items():
                members = len(heads.kept[0]) if heads.kept else 0
                if any(len(kept) < heads.of for layer in heads.kept for kept in layer):
                    yield {
                        "title": name if len(network.heads) == 1 else f"{name}, {tower} tower",
                        "heads": heads.of,
                        "layers": len(heads.kept),
                        "members": [[set(layer[member]) for layer in heads.kept] for member in range(members)],
                    }
