"""Predictions as a table on a terminal, and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any

from hydractl.reports import escape
from hydractl.text import abridged

if TYPE_CHECKING:
    from rich.console import Console

SHORTEST, LONGEST = 20, 60  # characters of an input in a table
OTHERS = 45  # characters that its other columns take
FLAG = "OOD"


def print_predictions(rows: Iterable[Mapping[str, Any]], meaning: str, console: Console) -> None:
    """Prints a table with a line per input, and the meaning of the flag below it.

    Args:
        rows: as in `Predictions.rows`.
        meaning: the rule of the flag.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("input", overflow="fold")
    table.add_column("label", overflow="fold")
    table.add_column("confidence", no_wrap=True)
    table.add_column("disagree (MI)", justify="right")
    listed = list(rows)
    typical = any(row["typicality"] is not None for row in listed)
    flagged = any(row["ood"] for row in listed)
    if typical or flagged:
        table.add_column("typical" if typical else "", no_wrap=True)
    longest = min(LONGEST, max(SHORTEST, console.width - OTHERS))
    for row in listed:
        name = escape.terminal(abridged(" ".join(row["input"].split()), longest))
        confidence = Text(f"{row['msp']:.4f}", "yellow" if row["ood"] else "green")
        share = f"{row['typicality']:.3f} " if typical else ""
        flag = Text.assemble(share, escape.terminal(FLAG if row["ood"] else "", "bold yellow"))
        cells = [flag] if typical or flagged else []
        label = f"{row['label']}{'' if row.get('sure', True) else ' ?'}"
        table.add_row(name, escape.terminal(label), confidence, f"{row['mutual_information']:.4f}", *cells)
    console.print(table)
    console.print(escape.terminal(meaning, "dim"))


def predictions_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Returns the rows as CSV with a header and a column for the probability of each class."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for place, given in enumerate(rows):
        row = dict(given)
        layers = enumerate(row.pop("profile", ()))
        row |= {f"typicality(layer {number})": share for number, share in layers}
        if place == 0:
            classes = (escape.spreadsheet(f"p({name})") for name in row["probabilities"])
            writer.writerow([*(name for name in row if name != "probabilities"), *classes])
        cells = [value for name, value in row.items() if name != "probabilities"]
        writer.writerow([*map(_cell, cells), *row["probabilities"].values()])
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Returns text that no spreadsheet runs, true or false in lower case, and numbers as they are."""
    if isinstance(value, str):
        return escape.spreadsheet(value)
    return str(value).lower() if isinstance(value, bool) else value
