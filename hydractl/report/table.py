"""The table of a report: made once, then drawn for a terminal, in Markdown, in HTML and in LaTeX."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from hydractl.evaluation.results import Results, System
from hydractl.report import escape
from hydractl.report.columns import Column, column_groups, main_groups
from hydractl.report.verdict import MARKS, Outcome, caption, marked, outcome, verdicts
from hydractl.text import printable

GAP = 3  # blanks between groups of columns on a terminal
COLOURS = {"better": "green", "worse": "red"}


@dataclass(frozen=True)
class Cell:
    """A number as people read it.

    Attributes:
        value: the number itself; None where the system has none.
        best: whether it wins its column.
        outcome: how it compares with the first system's number; None where that is unknown.
        interval, difference: its interval, and its paired difference to the first system; None where not computed.
    """

    text: str
    value: float | None
    best: bool
    outcome: Outcome | None
    interval: str | None
    difference: str | None

    @property
    def mark(self) -> str:
        """The mark beside the number; empty unless it differs beyond chance."""
        return MARKS[self.outcome] if self.outcome else ""

    @property
    def after(self) -> str:
        """The interval in brackets after the number."""
        return "" if self.interval is None else f" ({self.interval})"


@dataclass(frozen=True)
class TableColumn:
    """The numbers of one metric, a cell per system."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class TableGroup:
    """Columns under one title."""

    title: str
    columns: tuple[TableColumn, ...]


@dataclass(frozen=True)
class Table:
    """Systems as rows, metrics as columns, and the text below them.

    Attributes:
        verdicts: a sentence for each system that was compared with the first.
        caption: the lines that explain the marks and the numbers.
    """

    systems: tuple[str, ...]
    groups: tuple[TableGroup, ...]
    verdicts: tuple[str, ...]
    caption: tuple[str, ...]

    @property
    def columns(self) -> list[TableColumn]:
        """The columns of all groups."""
        return [column for group in self.groups for column in group.columns]


def result_table(report: Results, full: bool = False, brief: bool = False) -> Table:
    """Returns the table of a report.

    Args:
        full: every metric, rather than the few that most look for.
        brief: unless full, only what a paper has room for: accuracy, NLL, ECE, AUROC and cost.
    """
    models = report.models
    entries = list(models.values())
    groups = main_groups(entries) if brief and not full else column_groups(entries, full)
    return Table(
        systems=tuple(marked(name, entry) for name, entry in models.items()),
        groups=tuple(
            TableGroup(one.title, tuple(_column(column, entries) for column in one.columns)) for one in groups
        ),
        verdicts=tuple(verdict.sentence() for verdict in verdicts(models).values()),
        caption=tuple(caption(report, full)),
    )


def _column(column: Column, entries: Sequence[System]) -> TableColumn:
    best = column.best(entries)
    cells = (
        Cell(
            text=column.text(entry),
            value=column.value(entry),
            best=column.is_best(entry, best),
            outcome=outcome(column, entry),
            interval=column.interval(entry),
            difference=column.difference(entry),
        )
        for entry in entries
    )
    return TableColumn(column.name, tuple(cells))


def markdown(table: Table) -> str:
    """Returns the table in Markdown, with intervals and the best in bold."""
    names = [f"{group.title} {column.name}" for group in table.groups for column in group.columns]
    lines = [
        f"| {' | '.join(['system', *map(escape.markdown, names)])} |",
        "| --- |" + " ---: |" * len(names),
    ]
    for row, system in enumerate(table.systems):
        cells = (_markdown_cell(column.cells[row]) for column in table.columns)
        lines.append(f"| {' | '.join([escape.markdown(system), *cells])} |")
    return "\n".join([*lines, "", *map(escape.markdown, [*table.verdicts, *table.caption]), ""])


def _markdown_cell(cell: Cell) -> str:
    shown = f"**{cell.text}**" if cell.best else cell.text
    return f"{shown} {cell.mark}".rstrip() + cell.after


def latex(table: Table) -> str:
    """Returns the table as a LaTeX `tabular` for booktabs, with intervals and the best in bold."""
    titles = [rf"\multicolumn{{{len(group.columns)}}}{{c}}{{{escape.latex(group.title)}}}" for group in table.groups]
    lines = [
        *(f"% {printable(text)}" for text in [*table.verdicts, *table.caption]),
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(["", *titles]) + r" \\",
        " & ".join(["system", *(escape.latex(column.name) for column in table.columns)]) + r" \\",
        r"\midrule",
    ]
    for row, system in enumerate(table.systems):
        cells = (_latex_cell(column.cells[row]) for column in table.columns)
        lines.append(" & ".join([escape.latex(system), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _latex_cell(cell: Cell) -> str:
    text = escape.latex(cell.text)
    return (rf"\textbf{{{text}}}" if cell.best else text) + escape.latex(cell.mark) + cell.after


def draw(table: Table, console: Console) -> None:
    """Prints the table; groups of columns that do not fit the console's width go on below."""
    if not table.systems:
        return
    systems = _grid("", {"system": [escape.terminal(system) for system in table.systems]}, "left")
    grids = [_grid(group.title, {column.name: _texts(column) for column in group.columns}) for group in table.groups]
    for number, run in enumerate(_fit(grids, console, console.width - _width(systems, console))):
        if number:
            console.print()
        line = Grid.grid(padding=(0, GAP))
        line.add_row(systems, *run)
        console.print(line)
    console.print()
    for sentence in table.verdicts:
        console.print(escape.terminal(sentence))
    for text in table.caption:
        console.print(escape.terminal(text, "dim"))


def _texts(column: TableColumn) -> list[Text]:
    """Returns the numbers of a column; those without a mark have blanks in its place."""
    width = max(len(cell.mark) for cell in column.cells)
    return [
        Text.assemble(
            (cell.text, "bold" if cell.best else ""),
            (cell.mark.ljust(width), COLOURS.get(cell.outcome or "", "")),
        )
        for cell in column.cells
    ]


def _grid(title: str, columns: Mapping[str, Sequence[Text]], justify: Literal["left", "right"] = "right") -> Grid:
    grid = Grid(title=escape.terminal(title or " "), title_justify="left", title_style="italic", box=box.SIMPLE_HEAD)
    grid.show_edge = grid.pad_edge = False
    grid.padding = (0, 1, 0, 0)
    for name in columns:
        grid.add_column(escape.terminal(name), justify=justify, no_wrap=True)
    for cells in zip(*columns.values(), strict=True):
        grid.add_row(*cells)
    return grid


def _fit(grids: Sequence[Grid], console: Console, width: int) -> Iterator[list[Grid]]:
    """Yields the groups in runs that fit the width, at least one group a run."""
    run: list[Grid] = []
    used = 0
    for grid in grids:
        needed = GAP + _width(grid, console)
        if run and used + needed > width:
            yield run
            run, used = [], 0
        run.append(grid)
        used += needed
    yield run


def _width(grid: Grid, console: Console) -> int:
    title = grid.title.cell_len if isinstance(grid.title, Text) else 0
    grid.min_width = title  # a title wider than its columns must not wrap
    return max(title, Measurement.get(console, console.options, grid).maximum)
