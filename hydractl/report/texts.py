"""The table of results as text that goes elsewhere: Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydractl.report.columns import Column, Entry, column_groups
from hydractl.report.definitions import caption, marked
from hydractl.report.verdict import Marks, legend, mark, verdicts

#: Beside a number in LaTeX, without a package.
RAISED: Marks = {"better": "$^{+}$", "worse": "$^{-}$", "within chance": ""}
LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "†": r"$\dagger$",
}


def markdown(report: Mapping[str, Any]) -> str:
    """The table in Markdown, every metric, the best of each column in bold."""
    models: Mapping[str, Entry] = report["models"]
    rows = list(models.values())
    columns = [
        (f"{group.title} {column.name}", column) for group in column_groups(rows, full=True) for column in group.columns
    ]
    lines = [
        "| " + " | ".join(["system", *(_cell(name) for name, _ in columns)]) + " |",
        "| --- |" + " ---: |" * len(columns),
    ]
    bests = [column.best(rows) for _, column in columns]
    for name, entry in models.items():
        cells = [_markdown_cell(column, entry, best) for (_, column), best in zip(columns, bests, strict=True)]
        lines.append("| " + " | ".join([_cell(marked(name, entry)), *cells]) + " |")
    said = [*(verdict.sentence() for verdict in verdicts(models).values()), legend(models)]
    return "\n".join([*lines, "", *map(_cell, filter(None, said)), *caption(report, full=True), ""])


def latex(report: Mapping[str, Any]) -> str:
    """The table as a LaTeX `tabular` for booktabs, the metrics of the terminal's table, the best in bold."""
    models: Mapping[str, Entry] = report["models"]
    rows = list(models.values())
    groups = column_groups(rows, full=False)
    columns = [column for group in groups for column in group.columns]
    titles = [rf"\multicolumn{{{len(group.columns)}}}{{c}}{{{_escaped(group.title)}}}" for group in groups]
    said = [*(verdict.sentence() for verdict in verdicts(models).values()), legend(models, RAISED), *caption(report)]
    lines = [
        *(f"% {' '.join(text.split())}" for text in said if text),
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        " & ".join(["", *titles]) + r" \\",
        " & ".join(["system", *(_escaped(column.name) for column in columns)]) + r" \\",
        r"\midrule",
    ]
    lines += [
        " & ".join([_escaped(marked(name, entry)), *(_latex_cell(column, entry, rows) for column in columns)]) + r" \\"
        for name, entry in models.items()
    ]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _markdown_cell(column: Column, entry: Entry, best: float | None) -> str:
    shown = f"**{column.text(entry)}**" if column.is_best(entry, best) else column.text(entry)
    return f"{shown} {mark(column, entry)}".rstrip()


def _latex_cell(column: Column, entry: Entry, rows: list[Entry]) -> str:
    text = _escaped(column.text(entry))
    shown = rf"\textbf{{{text}}}" if column.is_best(entry, column.best(rows)) else text
    return shown + mark(column, entry, RAISED)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _escaped(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)
