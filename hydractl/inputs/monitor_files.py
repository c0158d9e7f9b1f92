"""The files of `monitor`: answers that `predict` wrote, and tables of inputs that a person labels."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydractl.data.files import decode_text, read_bytes
from hydractl.data.labels import folded
from hydractl.errors import DataError
from hydractl.inputs.predictions import UNREADABLE
from hydractl.monitoring.stream import Known
from hydractl.tasks.task import OneAnswer, share_of
from hydractl.text import composed, shortened, spreadsheet

NEEDED = ("input", "typicality")  # columns of predictions
SAVED = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".txt", ".parquet")  # endings of files that may hold them


class Seen(NamedTuple):
    """An input by its name, with the answer to it."""

    name: str
    answer: OneAnswer
    classes: tuple[str, ...] | None = None  # which it was chosen from; None where nothing names them

    def is_right(self, label: str, where: str) -> bool:
        """Returns whether the answer is the class that a label names.

        Raises:
            DataError: it names none.
        """
        if self.classes is None:
            return folded(label) == folded(str(self.answer.label))
        return spelled(label, self.classes, where) == self.answer.label


def saved_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a file, those of predictions in Parquet as JSON."""
    if path.suffix.lower() != ".parquet":
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            yield from file
        return
    from pyarrow import ArrowInvalid, parquet

    try:
        table = parquet.ParquetFile(path)
    except ArrowInvalid:  # is for the library that reads data to explain
        return
    if set(NEEDED) <= set(table.schema_arrow.names):
        for batch in table.iter_batches():
            yield from (json.dumps(row, default=str) for row in batch.to_pylist())


def are_predictions(line: str) -> bool:
    """Returns whether a file or pipe that begins with this line holds predictions of `predict`."""
    if line.lstrip().startswith("{"):
        return '"typicality"' in line or line.strip() == "{"
    return set(NEEDED) <= set(next(csv.reader([line], delimiter=_separator(line)), []))


class AnswerReader:
    """Reads the answers that `predict` wrote, all at once or as they come."""

    def __init__(self, where: str, known: Known) -> None:
        """
        Args:
            where: the file, for messages.
        """
        self.where, self.known = where, known
        self._word: tuple[Any, int] = None, 0  # the text of the last word, and where it starts there

    def read(self, lines: Iterable[str]) -> Iterator[Seen]:
        """Yields the answers in lines: CSV, those of the pipe of `predict`, JSON, or JSON lines.

        Raises:
            DataError: a row lacks a number or holds none, or the lines are something else.
        """
        for number, row in enumerate(_rows(lines, self.where), 1):
            unreadable = UNREADABLE in row.values() and row.get("typicality") in ("", UNREADABLE)
            if row.get("unreadable") or unreadable:
                continue
            try:
                if not self._goes_on(row):
                    classes = _classes(row) if self.known.classes is None else self.known.classes
                    yield Seen(str(row.get("input", number)), _answer(row, self.known, classes), classes)
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(
                    f"{self.where}: row {number}: {_problem(error)}: give predictions of a calibrated model, as "
                    "`predict` writes them"
                ) from None

    def _goes_on(self, row: Mapping[str, Any]) -> bool:
        """Returns whether a row is of a further word of a text."""
        if "word" not in row:
            return False
        (text, start), self._word = self._word, ((row.get("input"), row.get("row")), int(row["start"]))
        return text == self._word[0] and start < self._word[1]


def _rows(lines: Iterable[str], where: str) -> Iterator[Mapping[str, Any]]:
    lines = iter(lines)
    first = next((line for line in lines if line.strip()), "")
    if first.strip() == "{":  # one object over many lines, as `--json` writes it
        yield from _json("".join([first, *lines]), where)["predictions"]
    elif first.startswith("{"):
        yield from (_json(line, where) for line in (first, *lines) if line.strip())
    else:
        header = next(csv.reader([first], delimiter=_separator(first)), [])
        yield from csv.DictReader(lines, header, delimiter=_separator(first))


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"{where}: is not readable JSON ({error}): write the predictions again") from error


def _separator(line: str) -> str:
    return "\t" if "\t" in line else ","


def _classes(row: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Returns the classes whose probabilities a row holds; None if it holds none, as that of a pipe."""
    return tuple(row.get("probabilities") or (name[2:-1] for name in row if str(name).startswith("p("))) or None


def _answer(row: Mapping[str, Any], model: Known, classes: tuple[str, ...] | None) -> OneAnswer:
    layers = row.get("profile") or [row.get(f"typicality(layer {at})") for at in range(model.layers)]
    profile = np.array(layers, dtype=np.float64) if model.layers and None not in layers else None
    answer = model.task.read_row(row, classes)
    return answer._replace(typicality=share_of(row, "typicality"), profile=profile)


def _problem(error: Exception) -> str:
    return f"has no {error.args[0]}" if isinstance(error, KeyError) else str(error)


LABEL = "label"


def spelled(label: str, classes: tuple[str, ...], where: str) -> str:
    """Returns the class that a label in a table names, ignoring case, `_` and `-`.

    Raises:
        DataError: it names none.
    """
    called = _called(classes)
    if (name := called.get(composed(label), called.get(folded(label)))) is None:
        known = shortened(", ".join(classes), 80)
        raise DataError(f"{where}: {shortened(label, 40)} is not among the classes: give {known}")
    return name


@lru_cache(maxsize=1)
def _called(classes: tuple[str, ...]) -> Mapping[str, str]:
    return {folded(name): name for name in classes} | {name: name for name in classes}


def read_labels(path: Path, classes: tuple[str, ...] | None) -> dict[str, str]:
    """Returns the labels in a table by the inputs in its first column; rows without a label are left out.

    Args:
        classes: the model's, which labels name; None if they may change.

    Raises:
        DataError: the table cannot be read, has no column `label`, or names something else.
    """
    from hydractl.data.text_tables import find_separator

    text = decode_text(read_bytes(path, "name a table of labels"), str(path), "a table with a column `label`")
    separator, skipped = find_separator(str(path), str(path), ",")
    rows = csv.DictReader(StringIO(text).readlines()[skipped:], delimiter=separator)
    if LABEL not in (names := list(rows.fieldnames or ())) or names[0] == LABEL:
        raise DataError(f"{path}: has the columns {', '.join(names)}: give inputs in the first, classes in `{LABEL}`")
    labels = {row[names[0]]: row[LABEL].strip() for row in rows if (row[LABEL] or "").strip()}
    if classes is not None:
        labels = {name: spelled(label, classes, str(path)) for name, label in labels.items()}
    # A file may be named as seen from the table or as `predict` names it.
    files = {os.path.abspath(path.parent / name): label for name, label in labels.items()}
    return {**files, **labels}


def label_of(name: str, labels: Mapping[str, str]) -> str | None:
    """Returns the label of an input; None if it has none."""
    return next((labels[key] for key in (name, spreadsheet(name), os.path.abspath(name)) if key in labels), None)
