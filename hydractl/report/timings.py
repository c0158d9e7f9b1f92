"""The table of a benchmark: one for each batch size and precision, systems as rows."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from hydractl.evaluation.benchmark import Row

COLUMNS = (
    "model",
    "ms",
    "IQR",
    "samples/s",
    "peak MB",
    "params M",
    "mult-adds G",
    "performed G",
    "time ratio",
    "counted",
    "time / counted",
)


def print_timings(rows: Sequence[Row], console: Console) -> None:
    """Prints rows of one batch size and one precision.

    Multiply-adds are of one sample, as published and as performed; `counted` is the ratio of those performed.
    """
    table = Table(title=f"{rows[0].dtype}, batch {rows[0].batch_size}", title_justify="left", box=box.SIMPLE_HEAD)
    for column in COLUMNS:
        # A heading may take several lines; a number cut short would be no result.
        table.add_column(column, justify="left" if column == "model" else "right", overflow="fold")
    for row in rows:
        table.add_row(row.name, *_cells(row))
    console.print(table)


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
