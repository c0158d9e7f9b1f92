"""The table of results as text that goes elsewhere: Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydractl.report import escape
from hydractl.report.columns import Column, ColumnGroup, Entry, column_groups, main_groups
from hydractl.report.definitions import caption, marked
from hydractl.report.verdict import Marks, legend, mark, verdicts
from hydractl.text import printable

#: Beside a number in LaTeX, without a package.
RAISED: Marks = {"better": "$^{+}$", "worse": "$^{-}$", "within chance": ""}


def markdown(report: Mapping[str, Any], full: bool = False) -> str:
    """The table in Markdown with intervals, the best of each column in bold.

    Args:
        full: every metric, rather than accuracy, NLL, ECE, AUROC and cost.
    """
    models: Mapping[str, Entry] = report["models"]
    rows = list(models.values())
    columns = [(f"{group.title} {column.name}", column) for group in _groups(rows, full) for column in group.columns]
    lines = [
        "| " + " | ".join(["system", *(escape.markdown(name) for name, _ in columns)]) + " |",
        "| --- |" + " ---: |" * len(columns),
    ]
    bests = [column.best(rows) for _, column in columns]
    for name, entry in models.items():
        cells = [_markdown_cell(column, entry, best) for (_, column), best in zip(columns, bests, strict=True)]
        lines.append("| " + " | ".join([escape.markdown(marked(name, entry)), *cells]) + " |")
    said = [
        *(verdict.sentence() for verdict in verdicts(models).values()),
        legend(models),
        *caption(report, full),
    ]
    return "\n".join([*lines, "", *(escape.markdown(text) for text in said if text), ""])


def latex(report: Mapping[str, Any], full: bool = False) -> str:
    """The table as a LaTeX `tabular` for booktabs with intervals, the best in bold.

    Args:
        full: every metric, rather than accuracy, NLL, ECE, AUROC and cost.
    """
    models: Mapping[str, Entry] = report["models"]
    rows = list(models.values())
    groups = _groups(rows, full)
    columns = [column for group in groups for column in group.columns]
    titles = [rf"\multicolumn{{{len(group.columns)}}}{{c}}{{{escape.latex(group.title)}}}" for group in groups]
    said = [
        *(verdict.sentence() for verdict in verdicts(models).values()),
        legend(models, RAISED),
        *caption(report, full),
    ]
    lines = [
        *(f"% {printable(text)}" for text in said if text),
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        " & ".join(["", *titles]) + r" \\",
        " & ".join(["system", *(escape.latex(column.name) for column in columns)]) + r" \\",
        r"\midrule",
    ]
    for name, entry in models.items():
        cells = [escape.latex(marked(name, entry)), *(_latex_cell(column, entry, rows) for column in columns)]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _markdown_cell(column: Column, entry: Entry, best: float | None) -> str:
    shown = f"**{column.text(entry)}**" if column.is_best(entry, best) else column.text(entry)
    return f"{shown} {mark(column, entry)}".rstrip() + _interval(column, entry)


def _latex_cell(column: Column, entry: Entry, rows: list[Entry]) -> str:
    text = escape.latex(column.text(entry))
    shown = rf"\textbf{{{text}}}" if column.is_best(entry, column.best(rows)) else text
    return shown + mark(column, entry, RAISED) + _interval(column, entry)


def _interval(column: Column, entry: Entry) -> str:
    found = column.interval(entry)
    return "" if found is None else f" ({found})"


def _groups(rows: list[Entry], full: bool) -> list[ColumnGroup]:
    return column_groups(rows, full=True) if full else main_groups(rows)
