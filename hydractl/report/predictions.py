"""Predictions as people read them: a table on a terminal, and CSV for whatever reads tables."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any

from hydractl.report import escape
from hydractl.text import abridged

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from hydractl.checkpoint.contents import Acceptance

CELLS = 10  # of a bar
SHORTEST, LONGEST = 20, 60  # characters of an input in a table
OTHERS = 56  # characters that its other columns take
FLAG = "looks OOD"
PARTS = " ▏▎▍▌▋▊▉"  # a cell in eighths


def print_predictions(rows: Iterable[Mapping[str, Any]], acceptance: Acceptance | None, console: Console) -> None:
    """Prints a table with a line per input, and below it what the flag means.

    Args:
        rows: as `Predictions.rows` has them.
        acceptance: how sure the model is of ID samples; None where it was not calibrated.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("input", overflow="fold")
    table.add_column("label", overflow="fold")
    table.add_column("confidence", no_wrap=True)
    table.add_column("disagree (MI)", justify="right")
    listed = list(rows)
    flagged = any(row["ood"] for row in listed)
    if flagged:
        table.add_column("", no_wrap=True)
    longest = min(LONGEST, max(SHORTEST, console.width - OTHERS))
    for row in listed:
        flag = escape.terminal(FLAG, "bold yellow") if row["ood"] else ""
        name = escape.terminal(abridged(" ".join(row["input"].split()), longest))
        confidence = _confidence(row["msp"], bool(row["ood"]), console.options.ascii_only)
        numbers = [f"{row['mutual_information']:.4f}"]
        table.add_row(name, escape.terminal(row["label"]), confidence, *numbers, *([flag] if flagged else []))
    console.print(table)
    console.print(escape.terminal(_legend(acceptance), "dim"))


def _confidence(msp: float, flagged: bool, ascii_only: bool) -> Text:
    from rich.text import Text

    return Text.assemble((bar(msp, ascii_only), "yellow" if flagged else "green"), f" {msp:.4f}")


def bar(share: float, ascii_only: bool = False) -> str:
    """A share of 0 to 1 as a bar of ten cells.

    >>> bar(0.5, ascii_only=True)
    '#####.....'
    """
    if ascii_only:
        filled = round(share * CELLS)
        return "#" * filled + "." * (CELLS - filled)
    whole, eighths = divmod(round(share * CELLS * 8), 8)
    return ("█" * whole + PARTS[eighths]).ljust(CELLS)[:CELLS]


def _legend(acceptance: Acceptance | None) -> str:
    if acceptance is None:
        return "Nothing is flagged: the model has no threshold; `hydractl calibrate` finds one on ID data."
    return f"{FLAG}: less sure than {acceptance.msp:.4f}, which {100 * acceptance.rate:g} % of ID samples reach."


def predictions_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """The rows as CSV with a header, the probability of each class in a column of its own."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for place, row in enumerate(rows):
        if place == 0:
            writer.writerow([*(name for name in row if name != "probabilities"), *_headers(row)])
        cells = [value for name, value in row.items() if name != "probabilities"]
        writer.writerow([*map(_cell, cells), *row["probabilities"].values()])
    return out.getvalue()


def _headers(row: Mapping[str, Any]) -> Iterator[str]:
    yield from (escape.spreadsheet(f"p({name})") for name in row["probabilities"])


def _cell(value: Any) -> Any:
    """Text that no spreadsheet computes; true, false or nothing of what may be unknown; numbers as they are."""
    if isinstance(value, str):
        return escape.spreadsheet(value)
    return str(value).lower() if isinstance(value, bool) else value
