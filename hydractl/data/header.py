"""What a table's file says of its columns, looked at before it is read: readers take minutes over very many of them."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np

from hydractl.bounds import COLUMNS
from hydractl.data.files import FILE_FORMATS
from hydractl.data.imagefolder import IMAGE_ENDINGS
from hydractl.errors import DataError

HEAD = 2**24  # bytes of a file without a schema that are looked at closely
#: How files begin that the `datasets` library would unpack, whatever their name and however much is in them.
PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstandard",
          b"PK\x03\x04": "zip", b"\x04\x22\x4d\x18": "lz4", b"7z\xbc\xaf\x27\x1c": "7z", b"Rar!": "rar"}  # fmt: skip
TAR = slice(257, 262)  # where an archive of tar says `ustar`

BLOCK = LONGEST = 2**23  # bytes that are looked at together, and of a text
DEEPEST = 64  # objects and lists inside one another
#: A name in JSON. What stands between two texts is no name: no colon follows the quote that begins the second.
_NAME = re.compile(rb'"([^"\\]*)"\s*:')
#: A text in JSON, or, kept as a group, the beginning of one that does not end here.
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"|("(?:[^"\\]|\\.)*+\\?\Z)', re.DOTALL)
_OPENING, _CLOSING = (np.frombuffer(signs, dtype=np.uint8) for signs in (b"[{", b"]}"))

#: Names that stand side by side, one list or one for each row, and the names within those columns.
_Names: TypeAlias = Iterator[tuple[list[str], list[str]]]


def check_header(path: Path) -> None:
    """Nothing, if the columns of a file can be told apart and are not too many; files that are no tables pass.

    What is damaged passes too: whoever reads it says so.

    Raises:
        DataError: a column is there twice, there are more than COLUMNS, those within others included, or the file is
            packed.
    """
    ending = path.suffix.lower()
    loader = FILE_FORMATS.get(ending, "")
    named: _Names = iter(())
    if loader in ("csv", "json"):
        head = _head(path, HEAD).decode("utf-8-sig", "replace")
        of_json = chain(_all_in_json(path), _of_json(head))
        named = of_json if loader == "json" else _of_csv(head, "\t" if ending == ".tsv" else ",")
    elif loader in _READERS:
        named = _READERS[loader](path)
    elif loader != "webdataset" and ending not in IMAGE_ENDINGS:
        _head(path, TAR.stop)
    found: set[str] = set()
    for names, inner in named:
        if twice := [name for name, count in Counter(names).items() if count > 1 and name]:
            raise DataError(f"{path}: has column {twice[0]!r} twice: rename or remove one")
        found.update(names, inner)
        if len(found) > COLUMNS:
            raise DataError(f"{path}: has more than {COLUMNS} columns: leave out what is neither input nor label")


def _head(path: Path, size: int) -> bytes:
    """The first bytes of a file that is not packed."""
    with open(path, "rb") as file:
        head = file.read(size)
    form = next((form for start, form in PACKED.items() if head.startswith(start)), None)
    if form is not None or head[TAR] == b"ustar":
        raise DataError(f"{path}: is packed ({form or 'tar'}): unpack it")
    return head


def _of_csv(text: str, separator: str) -> _Names:
    try:
        yield next((row for row in csv.reader(StringIO(text, newline=""), delimiter=separator) if row), []), []
    except csv.Error:
        return


def _of_json(text: str) -> _Names:
    inner: list[str] = []

    def names_of(pairs: list[tuple[str, object]]) -> list[str]:
        names = [name for name, _ in pairs]
        inner.extend(names)
        return names

    # Numbers of any length are none of our business here.
    decoder = json.JSONDecoder(object_pairs_hook=names_of, parse_int=str, parse_float=str)
    place = text.find("{")
    while place >= 0:
        try:
            names, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return
        yield names, inner
        inner.clear()
        place = text.find("{", place)


def _all_in_json(path: Path) -> _Names:
    """Names anywhere in a file, whichever column they are within.

    Raises:
        DataError: a text without end, or objects and lists too deep within each other, by which a reader in C would
            end the process.
    """
    depth, kept = 0, b""
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            yield [], [name.decode("utf-8", "replace") for name in {*_NAME.findall(kept + block)}]
            bare, quote, begun = _TEXT.sub(rb"\1", kept + block).partition(b'"')
            kept = quote + begun  # which goes on in the next block
            if len(kept) > LONGEST:
                raise DataError(f"{path}: has a text of more than {LONGEST} bytes: leave it out")
            signs = np.frombuffer(bare, dtype=np.uint8)
            depths = depth + np.cumsum(np.isin(signs, _OPENING).astype(int) - np.isin(signs, _CLOSING))
            if depths.max(initial=0) > DEEPEST:
                raise DataError(f"{path}: is nested more than {DEEPEST} deep: write plain columns")
            depth = int(depths[-1]) if len(depths) else depth


def _of_parquet(path: Path) -> _Names:
    from pyarrow import parquet

    try:
        metadata = parquet.read_metadata(path)
        top = [] if metadata.num_columns > COLUMNS else list(parquet.read_schema(path).names)
    except Exception:  # pyarrow raises whatever it likes on a damaged file, and will again
        return
    yield top, [metadata.schema.column(at).path for at in range(min(metadata.num_columns, COLUMNS + 1))]


def _of_arrow(path: Path) -> _Names:
    import pyarrow

    for opened in (pyarrow.ipc.open_stream, pyarrow.ipc.open_file):
        try:
            with pyarrow.memory_map(str(path)) as file:
                yield list(opened(file).schema.names), []
        except pyarrow.ArrowException:
            continue
        return


_READERS: dict[str, Callable[[Path], _Names]] = {"parquet": _of_parquet, "arrow": _of_arrow}
