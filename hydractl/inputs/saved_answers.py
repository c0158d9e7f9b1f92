"""Answers from what `predict` wrote: CSV, the lines of its pipe, JSON, or JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from hydractl.errors import DataError
from hydractl.monitoring.pick import Seen
from hydractl.monitoring.stream import Known, SeenAnswer

NEEDED = ("label", "msp", "typicality")  # columns of predictions


def are_predictions(line: str) -> bool:
    """Returns whether a file or pipe that begins with this line holds predictions of `predict`."""
    if line.lstrip().startswith("{"):
        return '"typicality"' in line or line.strip() == "{"
    return set(NEEDED) <= set(next(csv.reader([line], delimiter=_separator(line)), []))


def saved_answers(lines: Iterable[str], where: str, known: Known) -> Iterator[Seen]:
    """Yields the answers that `predict` wrote: CSV, the lines of its pipe, JSON, or JSON lines.

    Args:
        where: the file, for messages.

    Raises:
        DataError: a row lacks a number or holds none, or the lines are something else.
    """
    for number, row in enumerate(_rows(lines, where), 1):
        if row.get("unreadable") or row.get("label") == "unreadable":
            continue
        try:
            yield Seen(str(row.get("input", number)), _answer(row, known))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{where}: row {number}: {_problem(error)}: give predictions of a calibrated model, as `predict` "
                "writes them"
            ) from None


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


def _answer(row: Mapping[str, Any], known: Known) -> SeenAnswer:
    typical, sure = (_share(row, name) for name in ("typicality", "msp"))
    probabilities = profile = None
    if known.classes is not None:
        given = row.get("probabilities") or {name: row[f"p({name})"] for name in known.classes if f"p({name})" in row}
        if given:
            probabilities = np.array([_share(given, name) for name in known.classes])
    layers = row.get("profile") or [row.get(f"typicality(layer {at})") for at in range(known.layers)]
    if known.layers and None not in layers:
        profile = np.array(layers, dtype=np.float64)
    label = str(row["label"])
    if known.classes is not None and label not in known.classes:
        label = label.removeprefix("'")  # which CSV puts before what a spreadsheet would run
    return SeenAnswer(typical, sure, label, probabilities, profile=profile)


def _share(row: Mapping[str, Any], name: str) -> float:
    value = float(row[name])
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value:g}, not from 0 to 1")
    return value


def _problem(error: Exception) -> str:
    return f"has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
