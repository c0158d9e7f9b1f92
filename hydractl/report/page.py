"""The report as one HTML page that needs no network and no other file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from hydractl.report.columns import Column, ColumnGroup, Entry, column_groups, main_groups
from hydractl.report.definitions import DEFINITIONS, caption, marked
from hydractl.report.figures import TITLES, told_apart
from hydractl.report.verdict import JUDGED, MARKS, Verdict, legend, mark, outcome, verdicts
from hydractl.text import printable

TOLD = 5  # verdicts before the table: more of them fold away
CARDS = ("accuracy", "nll", "mean_auroc")


def html_page(report: Mapping[str, Any], pictures: Mapping[str, str]) -> str:
    """The page.

    Args:
        report: in its JSON form.
        pictures: what `drawing.inline` makes of each, by its name in `TITLES`.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    # Jinja escapes what means something to HTML, but lets characters through that no page may hold.
    environment = Environment(
        autoescape=True, finalize=_finalized, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(files("hydractl.report").joinpath("page.html").read_text(encoding="utf-8"))
    models: Mapping[str, Entry] = report["models"]
    rows, found = list(models.values()), verdicts(models)
    sentences = [found[name].sentence() for name in _by_weight(models, found)]
    drawn, drawn_by = told_apart(models)
    return template.render(
        report=report,
        models=models,
        marked=marked,
        tables=[
            ("results", "Results", [_table(group, rows) for group in main_groups(rows)]),
            ("details", "Every metric", [_table(group, rows) for group in column_groups(rows, full=True)]),
        ],
        verdicts=sentences,
        told=TOLD,
        cards=list(_cards(models, found)),
        compared=bool(found),
        caption=[line for line in (legend(models), *caption(report)) if line],
        pictures=[
            (TITLES[name], pictures[name].count("<svg") > 1, Markup(pictures[name]))
            for name in TITLES
            if name in pictures
        ],
        drawn=len(drawn),
        drawn_by=drawn_by,
        maps=list(_head_maps(models)),
        samples=list(_samples(models)),
        definitions=DEFINITIONS,
        first=next(iter(models)),
    )


def _by_weight(models: Mapping[str, Entry], found: Mapping[str, Verdict]) -> list[str]:
    """The systems that are judged, the one with the most members first; of equals the first stays first."""
    return sorted(found, key=lambda name: -(models[name].get("cost") or {}).get("members", 1))


def _cards(models: Mapping[str, Entry], found: Mapping[str, Verdict]) -> Iterator[dict[str, str]]:
    """The numbers to remember: those of the system with the most members against the first, and what it costs."""
    if not found:
        return
    name = _by_weight(models, found)[0]
    verdict, first = found[name], models[found[name].first]
    for judged in JUDGED:
        judgement = next((one for one in verdict.judgements if one.key == judged.key), None)
        if judgement is None or judged.key not in CARDS:
            continue
        column, unit = judged.column, " %" if judged.column.kind == "percent" else ""
        yield {
            "title": f"{column.name}{unit}, {column.better} is better",
            "text": f"{column.text(first)} → {column.text(models[name])}",
            "mark": MARKS[judgement.outcome],
            "outcome": judgement.outcome,
            "note": f"{judgement.said}: {judgement.outcome}",
        }
    if verdict.multiply_adds is not None:
        parameters = "" if verdict.parameters is None else f"{verdict.parameters:.2f} times the parameters; "
        yield {
            "title": "cost, lower is better",
            "text": f"{verdict.multiply_adds:.2f} × multiply-adds",
            "mark": "",
            "outcome": "",
            "note": f"{parameters}{verdict.first} → {name}",
        }


def _finalized(value: Any) -> Any:
    return printable(value) if type(value) is str else value


def _table(group: ColumnGroup, rows: list[Entry]) -> dict[str, Any]:
    return {
        "title": group.title,
        "columns": [{"name": column.name, "cells": _cells(column, rows)} for column in group.columns],
    }


def _cells(column: Column, rows: list[Entry]) -> list[dict[str, Any]]:
    best = column.best(rows)
    return [
        {
            "text": column.text(row),
            "value": "" if (value := column.value(row)) is None else repr(value),
            "best": column.is_best(row, best),
            "mark": mark(column, row),
            "outcome": outcome(column, row),
            "interval": column.interval(row),
            "difference": column.difference(row),
        }
        for row in rows
    ]


def _samples(models: Mapping[str, Entry]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """What the system with the most members doubts, and what the first one was sure of and wrong about."""
    shown = {name: entry["curves"]["doubts"] for name, entry in models.items() if entry.get("curves", {}).get("doubts")}
    if not shown:
        return
    most = max(shown, key=lambda name: (models[name].get("cost") or {}).get("members", 1))
    first = next(iter(shown))
    yield f"What {most} doubts most", shown[most]["doubted"]
    if shown[first]["wrong"]:
        yield f"What {first} was sure of, and wrong", shown[first]["wrong"]


def _head_maps(models: Mapping[str, Entry]) -> Iterator[dict[str, Any]]:
    """Which heads each member of each system keeps, for systems that lack some."""
    for system, entry in models.items():
        for network in entry.get("networks", []):
            for tower, heads in network["heads"].items():
                layers, of = heads["kept"], heads["of"]
                members = len(layers[0]) if layers else 0
                if any(len(kept) < of for layer in layers for kept in layer):
                    yield {
                        "title": system if len(network["heads"]) == 1 else f"{system}, {tower} tower",
                        "heads": of,
                        "layers": len(layers),
                        "members": [[set(layer[member]) for layer in layers] for member in range(members)],
                    }
