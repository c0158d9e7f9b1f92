"""The table of a benchmark: one for each batch size and precision, systems as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table

from hydractl.evaluation.benchmark import Row
from hydractl.report import escape

COLUMNS = (
    "model",
    "ms",
    "IQR",
    "samples\n/s",
    "peak\nMB",
    "params\nM",
    "mult-adds\nG",
    "performed\nG",
    "time\nratio",
    "counted\nratio",
    "time /\ncounted",
)
NUMBERS_WIDTH = 80  # of all columns but the first


def timing_lines(rows: Sequence[Row], width: int) -> Iterator[str]:
    """The lines of a table for each batch size and precision.

    Multiply-adds are of one sample, as published and as performed; `counted` is the ratio of those performed.

    Args:
        width: of a line, in characters.
    """
    for _, part in groupby(rows, lambda row: (row.dtype, row.batch_size)):
        text = StringIO()
        Console(force_jupyter=False, file=text, width=width).print(_table(list(part), width))
        yield from text.getvalue().splitlines()


def _table(rows: Sequence[Row], width: int) -> Table:
    title = f"{rows[0].dtype}, batch {rows[0].batch_size}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    longest = max(len(row.name) for row in rows)
    # Names give way first in a narrow window; a number cut short would be no result.
    table.add_column(COLUMNS[0], min_width=min(longest, max(width - NUMBERS_WIDTH, 0)), overflow="fold")
    for column in COLUMNS[1:]:
        table.add_column(column, justify="right", overflow="fold")
    for row in rows:
        table.add_row(escape.terminal(row.name), *_cells(row))
    return table


def _cells(row: Row) -> list[str]:
    return [
        f"{row.timing.milliseconds:.2f}",
        f"{row.timing.spread:.2f}",
        f"{row.throughput:.1f}",
        f"{row.timing.peak_memory / 1e6:.0f}",
        f"{row.weight.parameters / 1e6:.2f}",
        f"{row.weight.multiply_adds / 1e9:.2f}",
        f"{row.weight.performed / 1e9:.2f}",
        f"{row.ratio:.3f}",
        f"{row.counted_ratio:.3f}",
        f"{row.over_counted:.3f}",
    ]
