"""Tables of inputs that a person labels: written with what to look at, read back with classes."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

from hydractl.checkpoint.output import write_bytes
from hydractl.data.files import decode_text, read_bytes
from hydractl.data.reading import Modality
from hydractl.errors import DataError
from hydractl.monitoring.pick import Seen
from hydractl.reports.escape import spreadsheet

LABEL = "label"


def write_picks(path: Path, picked: Sequence[Seen], modality: Modality, force: bool) -> None:
    """Writes a table with an empty column `label`, which `finetune` and `calibrate` read once it is filled.

    Images are named as seen from the table's folder.

    Raises:
        DataError: an image is no file of its own, as in a table.
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    out = StringIO()
    table = csv.writer(out, lineterminator="\n")
    numbers = tuple(picked[0].answer.shares) if picked else ("typicality", "confidence")
    predicted = ["predicted"] if "confidence" in numbers else []
    table.writerow([modality, LABEL, *predicted, *numbers, "why"])
    for name, answer in picked:
        shown = name
        if modality == "image":
            if not Path(name).is_file():
                raise DataError(f"{name}: is no file that a table could name: watch a folder of images to pick from")
            shown = os.path.relpath(name, path.parent)
        labels = [spreadsheet(", ".join(answer.labels))] if predicted else []
        numerals = (f"{number:.4f}" for number in answer.shares.values())
        table.writerow([spreadsheet(shown), "", *labels, *numerals, Seen(name, answer).why])
    write_bytes(path, out.getvalue().encode(), force)


def read_picked_labels(path: Path) -> dict[str, str]:
    """Returns the labels in a table by the inputs in its first column; rows without a label are left out.

    Raises:
        DataError: the table cannot be read, or has no column `label`.
    """
    from hydractl.data.text_tables import find_separator

    text = decode_text(read_bytes(path, "name a table of labels"), str(path), "a table with a column `label`")
    separator, skipped = find_separator(str(path), str(path), ",")
    rows = csv.DictReader(StringIO(text).readlines()[skipped:], delimiter=separator)
    if LABEL not in (names := list(rows.fieldnames or ())) or names[0] == LABEL:
        raise DataError(f"{path}: has the columns {', '.join(names)}: give inputs in the first, classes in `{LABEL}`")
    labels = {row[names[0]]: row[LABEL].strip() for row in rows if (row[LABEL] or "").strip()}
    # A file may be named as seen from the table or as `predict` names it.
    files = {os.path.abspath(path.parent / name): label for name, label in labels.items()}
    return {**files, **labels}


def label_of(name: str, labels: Mapping[str, str]) -> str | None:
    """Returns the label of an input; None if it has none."""
    return next((labels[key] for key in (name, spreadsheet(name), os.path.abspath(name)) if key in labels), None)
