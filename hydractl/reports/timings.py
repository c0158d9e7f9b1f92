"""The times of `analyse speed` as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from hydractl.text import aligned, printable

if TYPE_CHECKING:
    from hydractl.evaluation.timing import Row

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
