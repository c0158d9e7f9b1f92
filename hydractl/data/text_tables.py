"""Tables in text files: every cell of CSV and JSON lines stays the text that is written there."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import IO, Any

import datasets
import fsspec
import pandas
import pyarrow as pa

from hydractl.errors import DataError

# An empty cell is a missing value, the words NA and null are text.
CSV_OPTIONS: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
SAMPLED = 100  # rows that must agree on a separator
LONGEST = 2**31 - 1  # characters of a cell; the usual limit of Python's reader is shorter than some texts
BATCH = 1000  # lines of JSON that are read together
EXCEL = "sep="  # with which a first line of Excel names the separator


def csv_options(source: str, files: Sequence[str], usual: str, on_note: Callable[[str], None]) -> dict[str, Any]:
    """Returns how `datasets` reads the CSV files of a source: by the separator of the first, every column as text.

    Args:
        usual: the separator that the file's ending tells.
        on_note: called with the separator if it is another one.

    Raises:
        DataError: a header has cells between semicolons, tabs or bars, and some rows have more or fewer; a first row
            has more cells than its header; or two columns have one name.
    """
    file, *others = files
    separator, skipped = find_separator(source, file, usual)
    for other in others:
        find_separator(source, other, separator)
    if separator != usual:
        on_note(f"{source}: has {SEPARATORS[separator]} between its cells")
    options = {**CSV_OPTIONS, "sep": separator, "skiprows": skipped}
    written = pandas.read_csv(file, nrows=1, header=None, dtype=str, **options).iloc[0].dropna()
    if len(repeated := written[written.duplicated()]):
        raise DataError(f"{source}: the header names the column {repeated.iloc[0]} twice: rename one of them")
    header = pandas.read_csv(file, nrows=0, **options)
    return {**options, "features": datasets.Features({str(name): datasets.Value("string") for name in header})}


def find_separator(source: str, file: str, usual: str) -> tuple[str, int]:
    """Returns the separator of the cells in a CSV file of a source, and how many lines precede its header.

    It is the usual one, unless the header has no such separator and another one divides it and all rows alike.

    Raises:
        DataError: another one divides the header and only some rows alike, the first row has more cells than the
            header, of which pandas would make names of rows, or the file is in UTF-16.
    """
    with _opened(file) as text:
        first = text.readline().strip().strip('"')
        if "\0" in first:
            raise DataError(f"{source}: has zero bytes, as text in UTF-16 has: save it as UTF-8")
        if first.startswith(EXCEL) and first.removeprefix(EXCEL) in SEPARATORS:
            return first.removeprefix(EXCEL), 1
        header, *rows = _cells(text, usual, 2)
        if len(header) > 1:
            _require_no_more_cells(source, header, rows, usual)
            return usual, 0
        for separator in (mark for mark in SEPARATORS if mark != usual):
            header, *rows = _cells(text, separator, 1 + SAMPLED)
            odd = [at for at, row in enumerate(rows, 1) if len(row) != len(header)]
            if len(header) == 1 or not all(map(str.strip, header)) or len(odd) == len(rows):
                continue
            if not odd:
                return separator, 0
            raise _uneven(source, [header, *rows], odd[0], separator)
        header, *rows = _cells(text, usual, 2)
        _require_no_more_cells(source, header, rows, usual)
    return usual, 0


def _require_no_more_cells(source: str, header: Sequence[str], rows: Sequence[Sequence[str]], separator: str) -> None:
    if rows and len(rows[0]) > len(header):
        raise _uneven(source, [header, *rows], 1, separator)


def _uneven(source: str, rows: Sequence[Sequence[str]], number: int, separator: str) -> DataError:
    """Returns the error of a row with more or fewer cells than the header, which is the first."""
    names = f"{len(rows[0])} names with {SEPARATORS[separator]} between" if len(rows[0]) > 1 else "1 name"
    counts = f"{names}, row {number} has {len(rows[number])} cells"
    return DataError(
        f"{source}: the header has {counts}: put texts that hold {separator!r} in quotes, and name each column"
    )


def _opened(file: str) -> IO[str]:
    how: Any = {"encoding": "utf-8-sig", "errors": "replace", "newline": ""}
    return fsspec.open(file, "rt", **how).open() if "://" in file else open(file, **how)


def _cells(text: IO[str], separator: str, count: int) -> list[list[str]]:
    """Returns the cells of the first rows that are not blank, at least one row."""
    text.seek(0)
    limit = csv.field_size_limit(LONGEST)
    try:
        return list(islice(filter(None, csv.reader(text, delimiter=separator)), count)) or [[]]
    except csv.Error:  # is for `datasets` to explain
        return [[]]
    finally:
        csv.field_size_limit(limit)


def read_json_lines(source: str, files: Mapping[str, Sequence[str]]) -> dict[str, datasets.Dataset] | None:
    """Returns the rows of JSON lines by split; None if the files hold other JSON.

    Numbers, true and false are texts as they are written. Lists and objects keep a type if all rows have the same, and
    else are JSON texts.

    Raises:
        DataError: a line is not a JSON object.
    """
    lines = datasets.load_dataset("text", data_files=dict(files), encoding="utf-8-sig")
    if not all(_is_object(next(filter(str.strip, rows["text"]), "")) for rows in lines.values()):
        return None
    kinds: dict[str, pa.DataType] = {}
    for rows in lines.values():
        for first in range(0, len(rows), BATCH):
            batch = rows[first : first + BATCH]["text"]
            _widen(kinds, _objects(source, batch, range(first, first + len(batch))))
    texts = [name for name, kind in kinds.items() if pa.types.is_null(kind) or pa.types.is_string(kind)]
    types = {name: pa.string() if name in texts else kind for name, kind in kinds.items()}
    how: dict[str, Any] = {"with_indices": True, "batched": True, "batch_size": BATCH, "remove_columns": ["text"]}
    how["features"] = datasets.Features.from_arrow_schema(pa.schema(types))
    how["fn_kwargs"] = {"source": source, "names": list(kinds), "texts": texts}
    return {split: rows.map(_columns, **how) for split, rows in lines.items()}


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _objects(source: str, lines: Sequence[str], places: Sequence[int]) -> list[dict[str, Any]]:
    """Returns the objects in lines that are not blank; only numbers inside lists and objects are numbers."""
    objects = []
    for place, line in zip(places, lines, strict=True):
        if not (line := line.lstrip("\ufeff").strip()):
            continue
        try:
            row = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
            if not isinstance(row, dict):
                raise ValueError("it is not an object")
            if any(isinstance(value, list | dict) for value in row.values()):
                row |= {name: value for name, value in json.loads(line).items() if isinstance(value, list | dict)}
        except ValueError as error:
            remedy = "write one JSON object per line"
            raise DataError(f"{source}: line {place + 1} cannot be read ({error}): {remedy}") from error
        objects.append(row)
    return objects


def _widen(kinds: dict[str, pa.DataType], objects: Sequence[Mapping[str, Any]]) -> None:
    """Widens the types of columns to hold further rows; text holds all."""
    for name in dict.fromkeys(name for row in objects for name in row):
        values = [row.get(name) for row in objects]
        try:
            types = [kinds.get(name, pa.null()), _type(values)]
            schemas = [pa.schema([(name, kind)]) for kind in types]
            kinds[name] = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
        except (pa.ArrowException, OverflowError):
            kinds[name] = pa.string()


def _type(values: Sequence[Any]) -> pa.DataType:
    written = any(isinstance(value, str | bool) for value in values)
    return pa.string() if written else pa.array(values).type


def _columns(
    batch: Mapping[str, Sequence[str]],
    places: Sequence[int],
    *,
    source: str,
    names: Sequence[str],
    texts: Sequence[str],
) -> dict[str, list[Any]]:
    objects = _objects(source, batch["text"], places)
    return {name: [as_text(row.get(name)) if name in texts else row.get(name) for row in objects] for name in names}


def as_text(value: Any) -> str | None:
    """Returns a value of JSON as text: a string as it is, lists, objects, true and false as JSON writes them."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
