"""The inputs of `predict` as rows: named, and read one by one."""

from __future__ import annotations

import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from io import IncrementalNewlineDecoder, StringIO
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from hydractl.data.files import decode_text, read_bytes
from hydractl.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

    from hydractl.data.samples import Samples

STDIN = "-"
CHUNK = 2**16  # bytes of standard input that are taken together


class InputRow(NamedTuple):
    """One input: its name in messages, how to read it, its place in its file or data set, and columns to keep."""

    name: str
    read: Callable[[], Any]
    row: int = 0
    id: Any = None
    kept: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class DataRows(Sequence[InputRow]):
    """The rows of a data set, named and read when they are used: 100,000 rows take no memory of their own.

    Attributes:
        ids: the name of each row; None if there is no column for it.
        kept: the columns to keep, by name.
    """

    samples: Samples
    ids: Sequence[Any] | None
    kept: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> Any:
        places = range(len(self))[index]
        if isinstance(places, int):
            return self[places : places + 1][0]
        inputs, names = self.samples.inputs[places.start : places.stop], self.samples.names(places)
        return [
            InputRow(
                name,
                partial(inputs.__getitem__, at),
                place,
                None if self.ids is None else self.ids[place],
                kept={column: values[place] for column, values in self.kept.items()},
            )
            for at, (place, name) in enumerate(zip(places, names, strict=True))
        ]


@dataclass(frozen=True, eq=False)
class JoinedRows(Sequence[InputRow]):
    """Rows of several inputs one after the other."""

    pieces: Sequence[Sequence[InputRow]]

    @cached_property
    def ends(self) -> Sequence[int]:
        """The number of rows up to the end of each piece."""
        return [*accumulate(map(len, self.pieces))]

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, index: Any) -> Any:
        places = range(len(self))[index]
        if isinstance(places, int):
            return self[places : places + 1][0]
        rows = list[InputRow]()
        for piece, end in zip(self.pieces, self.ends, strict=True):
            start = end - len(piece)
            rows += piece[max(places.start - start, 0) : max(places.stop - start, 0)]
        return rows


class Rows(Sequence[Any]):
    """The values of rows, each read when it is used."""

    def __init__(self, entries: Sequence[InputRow]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: Any) -> Any:
        """Returns a value, or the values of a slice; raises DataError for one that cannot be read."""
        return Rows(self._entries[index]) if isinstance(index, slice) else self._entries[index].read()


def text_rows(texts: Iterable[str], first: int = 0) -> Iterator[InputRow]:
    """Yields a row for each text, of which the first has the number given."""
    for row, text in enumerate(texts, first):
        yield InputRow(text, partial(str, text), row)


def read_lines(file: str) -> list[str]:
    """Returns the lines of a file, blank ones too, which keep the place of those behind them."""
    text = decode_text(_content(file), file, "one text per line")
    # Lines as `datasets` and Python's files have them: `splitlines` would cut a text at U+2028 or a form feed too.
    lines = [line.rstrip("\n") for line in StringIO(text, newline=None)]
    if not any(map(str.strip, lines)):
        raise DataError(f"{file}: holds no text: write one text per line")
    return lines


def lines_as_they_come() -> Iterator[list[str]]:
    """Yields the lines of standard input that come together."""
    decoder = IncrementalNewlineDecoder(getincrementaldecoder("utf-8-sig")(), translate=True)
    rest, is_text = "", False
    while True:
        came = sys.stdin.buffer.read1(CHUNK)  # type: ignore[union-attr]
        try:
            *lines, rest = (rest + decoder.decode(came, final=not came)).split("\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{STDIN}: cannot read as text ({error}): write one text per line, in UTF-8") from error
        lines += [rest] if rest and not came else []
        is_text = is_text or any(map(str.strip, lines))
        if lines:
            yield lines
        if not came:
            break
    if not is_text:
        raise DataError(f"{STDIN}: holds no text: write one text per line")


def read_image_file(file: str) -> Image:
    """Returns the image of a file or of standard input; raises DataError if it cannot be read."""
    from hydractl.data.images import read_image

    return read_image(_content(file), file)


def _content(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == STDIN else read_bytes(Path(file), "name a file, or - for standard input")
