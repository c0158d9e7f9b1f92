"""Predictions as a table on a terminal and in a notebook, and as CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from hydractl.reports import escape
from hydractl.text import abridged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

SHORTEST, LONGEST = 20, 60  # characters of an input in a table
OTHERS = 56  # characters that its other columns take
FLAGS = {"ood": "OOD", "sure": "sure"}  # what a table shows where a flag is true


class PredictionRows(Protocol):
    """Predictions with a row per input, as a table shows them."""

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns that people see."""

    @property
    def meaning(self) -> str:
        """The rule of the flags, a sentence."""

    @property
    def ood(self) -> NDArray[np.bool_] | None:
        """True where an input looks odd, `[N]`."""

    @property
    def profile(self) -> NDArray[np.floating[Any]] | None:
        """Typicality by layer, `[N,L]`."""

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yields the cells of each row below the columns."""

    def __len__(self) -> int:
        """The number of inputs."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields all that is known of each input, by name."""


def print_predictions(rows: PredictionRows, console: Console) -> None:
    """Prints a table with a line per input, and the meaning of the flags below it."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in rows.columns:
        table.add_column(escape.terminal(name), overflow="fold")
    longest = min(LONGEST, max(SHORTEST, console.width - OTHERS))
    odd = [False] * len(rows) if rows.ood is None else rows.ood.tolist()
    for cells, is_odd in zip(rows.cells(), odd, strict=True):
        texts = dict(zip(rows.columns, map(_shown, rows.columns, cells), strict=True))
        texts["input"] = abridged(texts["input"], longest)
        if "set" in texts:
            texts["set"] = abridged(texts["set"], longest)
        styles = {"msp": "yellow" if is_odd else "green", "ood": "bold yellow"}
        table.add_row(*(escape.terminal(cell, styles.get(name, "")) for name, cell in texts.items()))
    console.print(table)
    console.print(escape.terminal(rows.meaning, "dim"))


def predictions_html(predictions: PredictionRows, most: int) -> str:
    """Returns a table of HTML for a notebook with at most so many rows, and the meaning of the flags."""
    head = "".join(f"<th>{escape.html(name)}</th>" for name in predictions.columns)
    rows = (map(_shown, predictions.columns, cells) for cells in islice(predictions.cells(), most))
    body = "".join(f"<tr>{''.join(f'<td>{escape.html(cell)}</td>' for cell in row)}</tr>" for row in rows)
    more = f"<p>... {len(predictions)} in all</p>" if len(predictions) > most else ""
    return f"<table><tr>{head}</tr>{body}</table>{more}<p>{escape.html(predictions.meaning)}</p>"


def _shown(column: str, cell: str) -> str:
    return {"true": FLAGS[column], "false": ""}.get(cell, cell) if column in FLAGS else cell


def predictions_csv(predictions: PredictionRows) -> str:
    """Returns the rows as CSV with a header and a column for the probability of each class."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for at, row in enumerate(flat_rows(predictions)):
        if at == 0:
            writer.writerow(map(escape.spreadsheet, row))
        writer.writerow(map(_cell, row.values()))
    return out.getvalue()


def flat_rows(predictions: PredictionRows) -> Iterator[dict[str, Any]]:
    """Yields the rows with a column for each probability, each layer's typicality and each column that is kept.

    Of a model that labels words, yields a row for each of them, with the span that it is in.
    """
    layers = 0 if predictions.profile is None else predictions.profile.shape[1]
    for row in predictions:
        profile = row.pop("profile", None) or [None] * layers
        row |= {f"typicality(layer {number})": share for number, share in enumerate(profile)}
        for group, letter in (("kept", "kept"), ("probabilities", "p")):
            row |= {f"{letter}({name})": value for name, value in row.pop(group, {}).items()}
        yield from _of_words(row) if "words" in row else [row]


def _of_words(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    words, spans = row.pop("words") or [{}], row.pop("spans") or []
    keys = ("label", "start", "end", "confidence", *(["sure"] if "sure" in row else []))
    for word in words:
        columns = {"word": word.get("text"), **{key: word.get(key) for key in keys[:4]}}
        span_of_word: dict[str, Any] = next(
            (span for span in spans if word and span["start"] <= word["start"] < span["end"]), {}
        )
        yield row | columns | {f"span {key}": span_of_word.get(key) for key in keys}


def _cell(value: Any) -> Any:
    """Returns text that no spreadsheet runs, true or false in lower case, and numbers as they are."""
    if isinstance(value, tuple):
        value = ", ".join(value)
    if isinstance(value, list):
        return json.dumps(value)
    if isinstance(value, str):
        return escape.spreadsheet(value)
    return str(value).lower() if isinstance(value, bool) else value
