"""The table of a report, made once and drawn for a terminal, in Markdown and HTML, and the table of timings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from hydractl import text as escape
from hydractl.evaluation.results import Results
from hydractl.reports.columns import Cell, column_groups, main_groups
from hydractl.reports.verdict import caption, marked, rivalries, verdicts
from hydractl.text import aligned, printable

if TYPE_CHECKING:
    from hydractl.evaluation.timing import Row

GAP = 3  # blanks between groups of columns on a terminal
COLOURS = {"better": "green", "worse": "red"}


@dataclass(frozen=True)
class Table:
    """Systems as rows, metrics as columns, and the text below them."""

    systems: tuple[str, ...]
    # The title of each group of columns, and the name of each column with a cell per system.
    groups: tuple[tuple[str, Sequence[tuple[str, Sequence[Cell]]]], ...]
    verdicts: tuple[str, ...]  # a sentence for each comparison of two systems
    caption: tuple[str, ...]  # the lines that explain the marks and the numbers
    head: str = "system"  # what a row is


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
            (group.title, [(column.name, column.cells(entries)) for column in group.columns]) for group in groups
        ),
        verdicts=tuple(verdict.sentence() for verdict in (*verdicts(models).values(), *rivalries(models))),
        caption=tuple(caption(report, full)),
    )


def markdown_table(table: Table) -> str:
    """Returns the table in Markdown, with intervals and the best in bold."""
    names = [f"{title} {name}" for title, columns in table.groups for name, _ in columns]
    lines = [f"| {' | '.join(['system', *map(escape.markdown, names)])} |", "| --- |" + " ---: |" * len(names)]
    for system, cells in _rows(table):
        lines.append(f"| {' | '.join([escape.markdown(system), *map(_markdown_cell, cells)])} |")
    return "\n".join([*lines, "", *map(escape.markdown, [*table.verdicts, *table.caption]), ""])


def _rows(table: Table) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Yields each system's name and the cells of all its columns."""
    every = [cells for _, columns in table.groups for _, cells in columns]
    yield from zip(table.systems, zip(*every, strict=True), strict=True)


def _markdown_cell(cell: Cell) -> str:
    shown = f"**{cell.text}**" if cell.best else cell.text
    return f"{shown} {cell.mark}".rstrip() + cell.after


def draw(table: Table, console: Console) -> None:
    """Prints the table; groups of columns that do not fit the console's width go on below."""
    if not table.systems:
        return
    systems = _grid("", [(table.head, [escape.terminal(system) for system in table.systems])], "left")
    room = console.width - _width(systems, console)
    groups = ((title, [(name, _texts(cells)) for name, cells in columns]) for title, columns in table.groups)
    grids = [grid for title, columns in groups for grid in _pieces(title, columns, console, room)]
    for number, run in enumerate(_fit(grids, console, room)):
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


def table_lines(table: Table, width: int) -> list[str]:
    """Returns the lines of the table as a console of this width prints them, without colours."""
    out = StringIO()
    draw(table, Console(force_jupyter=False, force_terminal=False, file=out, width=width))
    return out.getvalue().splitlines()


def _texts(cells: Sequence[Cell]) -> list[Text]:
    """Returns the numbers of a column; those without a mark have blanks in its place."""
    width = max(len(cell.mark) for cell in cells)
    return [
        Text.assemble(
            (cell.text, "bold" if cell.best else ""), (cell.mark.ljust(width), COLOURS.get(cell.outcome or "", ""))
        )
        for cell in cells
    ]


def _grid(
    title: str, columns: Sequence[tuple[str, Sequence[Text]]], justify: Literal["left", "right"] = "right"
) -> Grid:
    grid = Grid(title=escape.terminal(title or " "), title_justify="left", title_style="italic", box=box.SIMPLE_HEAD)
    grid.show_edge = grid.pad_edge = False
    grid.padding = (0, 1, 0, 0)
    for name, _ in columns:
        grid.add_column(escape.terminal(name), justify=justify, no_wrap=True)
    for cells in zip(*(texts for _, texts in columns), strict=True):
        grid.add_row(*cells)
    return grid


def _pieces(title: str, columns: Sequence[tuple[str, Sequence[Text]]], console: Console, width: int) -> Iterator[Grid]:
    """Yields the columns of a group in pieces that fit the width, at least one column a piece."""
    start = 0
    for end in range(1, len(columns)):
        if GAP + _width(_grid(title, columns[start : end + 1]), console) > width:
            yield _grid(title, columns[start:end])
            start = end
    yield _grid(title, columns[start:])


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


#: The columns of `analyse speed`: heading and text of a row.
TIMING_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("ms", lambda row: f"{row.timing.milliseconds:.2f}"),
    ("IQR", lambda row: f"{row.timing.spread:.2f}"),
    ("samples/s", lambda row: f"{row.throughput:.1f}"),
    ("peak MB", lambda row: f"{row.timing.peak_memory / 1e6:.0f}"),
    ("params M", lambda row: f"{row.weight.parameters / 1e6:.2f}"),
    ("mult-adds G", lambda row: f"{row.weight.multiply_adds / 1e9:.2f}"),
    ("performed G", lambda row: f"{row.weight.performed / 1e9:.2f}"),
    ("ratio", lambda row: f"{row.ratio:.3f}"),
    ("counted", lambda row: f"{row.counted_ratio:.3f}"),
    ("ratio / counted", lambda row: f"{row.over_counted:.3f}"),
)


def timing_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yields the lines of a table for each batch size and precision.

    Multiply-adds are of one sample, as published and as performed; `counted` is the ratio of those performed.
    """
    for (dtype, batch_size), group in groupby(rows, lambda row: (row.dtype, row.batch_size)):
        yield f"{dtype}, batch {batch_size}"
        numbers = [[printable(row.name), *(text(row) for _, text in TIMING_COLUMNS)] for row in group]
        yield from aligned([["model", *(heading for heading, _ in TIMING_COLUMNS)], *numbers])
        yield ""
