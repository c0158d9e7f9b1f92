"""The table of results in a terminal: systems as rows, metrics as columns, the best of each column in bold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from hydractl.report import escape
from hydractl.report.columns import Column, Entry, column_groups
from hydractl.report.definitions import caption, marked
from hydractl.report.verdict import ASCII_MARKS, MARKS, Marks, legend, outcome, verdicts

GAP = 3  # blanks between groups of columns
COLOURS = {"better": "green", "worse": "red"}


def print_results(report: Mapping[str, Any], console: Console, full: bool = False) -> None:
    """Prints a report's table; groups of columns that do not fit the console's width go on below.

    Args:
        full: every metric, rather than the few that most look for.
    """
    models: Mapping[str, Entry] = report["models"]
    if not models:
        return
    rows = list(models.values())
    systems = [escape.terminal(marked(name, entry)) for name, entry in models.items()]
    names = _part("", [("system", systems)], justify="left")
    marks = ASCII_MARKS if console.options.ascii_only else MARKS
    parts = [
        _part(group.title, [(column.name, _cells(column, rows, marks)) for column in group.columns])
        for group in column_groups(rows, full)
    ]
    for number, run in enumerate(_fit(parts, console, console.width - _width(names, console))):
        if number:
            console.print()
        line = Table.grid(padding=(0, GAP))
        line.add_row(names, *run)
        console.print(line)
    console.print()
    for verdict in verdicts(models).values():
        console.print(escape.terminal(verdict.sentence()))
    for text in filter(None, (legend(models, marks), *caption(report, full))):
        console.print(escape.terminal(text, "dim"))


def _cells(column: Column, rows: Sequence[Entry], marks: Marks) -> list[Text]:
    """The numbers of a column, those that differ beyond chance marked; a blank holds the place beside the others."""
    best, found = column.best(rows), [outcome(column, row) for row in rows]
    beside = [marks[one] if one else "" for one in found]
    width = max(map(len, beside))
    return [
        Text.assemble(
            (column.text(row), "bold" if column.is_best(row, best) else ""),
            (mark.ljust(width), COLOURS.get(one or "", "")),
        )
        for row, one, mark in zip(rows, found, beside, strict=True)
    ]


def _part(
    title: str, columns: Sequence[tuple[str, Sequence[Text]]], justify: Literal["left", "right"] = "right"
) -> Table:
    table = Table(title=escape.terminal(title or " "), title_justify="left", title_style="italic", box=box.SIMPLE_HEAD)
    table.show_edge = table.pad_edge = False
    table.padding = (0, 1, 0, 0)
    for name, _ in columns:
        table.add_column(escape.terminal(name), justify=justify, no_wrap=True)
    for cells in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*cells)
    return table


def _fit(parts: Sequence[Table], console: Console, width: int) -> Iterator[list[Table]]:
    """The parts in runs that fit the width, at least one part a run."""
    run: list[Table] = []
    used = 0
    for part in parts:
        needed = GAP + _width(part, console)
        if run and used + needed > width:
            yield run
            run, used = [], 0
        run.append(part)
        used += needed
    yield run


def _width(part: Table, console: Console) -> int:
    title = part.title.cell_len if isinstance(part.title, Text) else 0
    part.min_width = title  # a title wider than its columns must not wrap
    return max(title, Measurement.get(console, console.options, part).maximum)
