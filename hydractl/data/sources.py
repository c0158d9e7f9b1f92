"""Names a data set: `[GROUP/]NAME=SOURCE[:CONFIG][:SPLIT][%PART][?COLUMNS]`, or values of Python.

A `str` or a `Path` is always a source, and a list of them is a list of sources. Texts as data need a name:
`{"reviews": ["good", "bad"]}`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from hydractl.data.files import FILE_FORMATS, split_of_word
from hydractl.data.reading import DataLike, DataSetsLike, Group, Indexed
from hydractl.errors import DataError, OptionError

if TYPE_CHECKING:
    from hydractl.data.hashes import Hashes

GROUPS = ("near", "far")
COLUMNS = ("image", "text", "label")
ONLY = "only"  # names a file of classes, where the others name columns
MOST_PARTS = 1000

FORM = "[NAME=]SOURCE[:SPLIT]"
GROUPED_FORM = "[near/|far/]NAME=SOURCE[:SPLIT]"
HUB_ID = re.compile(r"(?=.{1,96}$)(?!.*(--|\.\.))[\w][\w.-]*(/[\w][\w.-]*)?")
PREFIX = re.compile(r"(?:(?P<group>[\w.-]+)/)?(?P<name>[^/\\:=.~?\s][^/\\:=?]*)=(?P<source>.*)", re.DOTALL)
PART = re.compile(
    r"(?P<whole>.+)%(?P<first>\d{1,4})(?:-(?P<last>\d{1,4}))?/(?P<count>\d{1,4})(?:@(?P<seed>\d{1,18}))?", re.ASCII
)


@dataclass(frozen=True)
class Part:
    """Parts `first` to `last` of `count` parts, numbered from 1; another seed divides differently.

    The content of a sample determines its part, so parts are disjoint, and the same for any order and file format.
    Their sizes are equal in expectation only. A part of a part (`within`) divides that part again.
    """

    first: int
    last: int
    count: int
    seed: int = 0
    within: Part | None = None

    def __str__(self) -> str:
        span = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.within or ''}%{span}/{self.count}" + (f"@{self.seed}" if self.seed else "")

    def of(self, hashes: Hashes) -> NDArray[np.int64]:
        """Returns the positions of its samples, ascending, from the hashes `[N]` of all samples."""
        return np.flatnonzero(self._holds(hashes)[0])

    def _holds(self, hashes: Hashes) -> tuple[NDArray[np.bool_], Hashes]:
        """Returns a mask of its samples, and the hashes mixed once for each division."""
        outer, hashes = self.within._holds(hashes) if self.within else (np.ones(len(hashes), bool), hashes)
        mixed = _mixed(hashes, self.seed)
        number = mixed % np.uint64(self.count) + np.uint64(1)
        return outer & (self.first <= number) & (number <= self.last), mixed


def _mixed(hashes: Hashes, seed: int) -> Hashes:
    """Mixes the hashes with the seed: the finish of SplitMix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        x = hashes.astype(np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True)
class DataSpec:
    """A data set by its source, an existing path or a hub id; `split` may carry a slice.

    `columns` are pairs of `text`, `image` or `label` and a name, for this set alone. `only` is a file with the classes
    to take, or None for all classes.
    """

    name: str
    source: str
    config: str | None = None
    split: str | None = None
    group: Group | None = None
    part: Part | None = None
    columns: tuple[tuple[str, str], ...] = ()
    only: str | None = None

    def __str__(self) -> str:
        whole = ":".join(part for part in (self.source, self.config, self.split) if part)
        named = self.columns if self.only is None else (*self.columns, (ONLY, self.only))
        columns = "&".join(f"{kind}={name}" for kind, name in named)
        return f"{whole}{self.part or ''}{'?' if columns else ''}{columns}"


@dataclass(frozen=True, eq=False)
class DataValues:
    """A data set in a program: `values` are samples by their place."""

    name: str
    values: Indexed
    group: Group | None = None

    def __str__(self) -> str:
        return self.name


def parse_data(data: DataLike | DataSpec | DataValues, name: str = "data") -> DataSpec | DataValues:
    """Returns one data set.

    Args:
        data: a source, values, or one of them by its name: `{name: data}`.
        name: of values that have none of their own.

    Raises:
        DataError: several data sets, or no such file or folder.
    """
    if isinstance(data, DataSpec | DataValues):
        return data
    found = parse_data_sets(data, name, grouped=False)
    if len(found) != 1:
        raise DataError(
            f"expected one data set, got {len(found)}: {', '.join(one.name for one in found[:12])}; give texts "
            "as {name: texts}, columns as datasets.Dataset.from_dict(columns)"
        )
    return found[0]


def parse_data_sets(data: DataSetsLike, name: str = "data", *, grouped: bool = True) -> list[DataSpec | DataValues]:
    """Returns several data sets, each perhaps of a group.

    Args:
        data: a source, a list of sources, values, or sources and values by `NAME` or `GROUP/NAME`.
        name: of values that have none of their own.
        grouped: whether a set may have a group.

    Raises:
        DataError: an unknown group, or no such file or folder.
    """
    if isinstance(data, Mapping):
        return [_named(key, value, grouped) for key, value in data.items()]
    if isinstance(data, list | tuple) and all(isinstance(one, str | Path) for one in data):
        return [parse_data_spec(str(text), grouped) for text in data]
    return [_parse(data, name, grouped)]


def refuse_same(ood: DataSpec | DataValues, id_data: DataSpec | DataValues) -> None:
    """Raises OptionError if OOD data are the ID data."""
    one, other = (str(data) if isinstance(data, DataSpec) else data.values for data in (ood, id_data))
    if one is other or (isinstance(one, str) and one == other):
        raise OptionError(f"`ood_data` {ood}: is `id_data` too: name data that show none of its classes")


def _parse(data: Any, name: str, grouped: bool = False) -> DataSpec | DataValues:
    return parse_data_spec(str(data), grouped) if isinstance(data, str | Path) else DataValues(name, data)


def _named(key: str, data: Any, grouped: bool) -> DataSpec | DataValues:
    group, _, name = key.rpartition("/")
    _check_group(group, grouped, key)
    return replace(_parse(data, name), name=name, group=cast("Group | None", group or None))


def parse_data_spec(text: str, grouped: bool = False) -> DataSpec:
    """Returns the data set of a source; an existing path comes before any other reading, so it may have `:` and `=`.

    Args:
        text: `[GROUP/]NAME=SOURCE[:CONFIG][:SPLIT][%PART][?COLUMNS]`; only SOURCE is required. SPLIT may have slices
            and sums (`train[:100]+test`), and `:[:100]` slices the only split. PART is `%I/N` or `%I-J/N`, perhaps
            with `@SEED`; it may also follow COLUMNS, and a second PART divides the first. COLUMNS are for this set
            alone: `?text=title,content&label=stars`. Among them `only=FILE` takes the samples of the classes in a
            file, one a line.
        grouped: whether a GROUP, `near` or `far`, may precede the name.

    Raises:
        DataError: the text is empty, names an unknown group, part or kind of column, or a path that does not exist.
    """
    named = None if _existing(text) else PREFIX.fullmatch(text)
    group, name, source = named.group("group", "name", "source") if named else (None, None, text)
    _check_group(group, grouped, text)
    if not source:
        raise DataError(f"{text!r} names no data: write {GROUPED_FORM if grouped else FORM}")
    source, last = _split_off_parts(source)
    source, columns = (source, ()) if _existing(source) else _split_off_columns(source)
    source, first = _split_off_parts(source)
    part: Part | None = None
    for inner in (*first, *last):
        part = replace(inner, within=part)
    place, config, split = _split_source(source)
    return DataSpec(
        name or _default_name(place),
        place,
        config,
        split,
        group=cast("Group | None", group),
        part=part,
        columns=tuple(pair for pair in columns if pair[0] != ONLY),
        only=dict(columns).get(ONLY),
    )


def _split_off_parts(source: str) -> tuple[str, list[Part]]:
    """Returns a source without its parts, and the parts."""
    parts: list[Part] = []
    while not _existing(source) and (found := PART.fullmatch(source)):
        first, count = int(found["first"]), int(found["count"])
        part = Part(first, int(found["last"] or first), count, int(found["seed"] or 0))
        if not 1 <= part.first <= part.last <= count <= MOST_PARTS:
            raise DataError(f"{source}: no such part: write %I/N or %I-J/N with 1 <= I <= J <= N <= {MOST_PARTS}")
        source = found["whole"]
        parts.insert(0, part)
    return source, parts


def _split_off_columns(source: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Returns a source without its columns, and the columns."""
    place, mark, text = source.rpartition("?")
    if not mark:
        return source, ()
    named = [(kind, name) for kind, _, name in (pair.partition("=") for pair in text.split("&"))]
    kinds = [kind for kind, _ in named]
    if not all(name for _, name in named) or not set(kinds) <= {*COLUMNS, ONLY} or len(set(kinds)) < len(kinds):
        raise DataError(f"{source}: unknown or repeated columns: write them as ?text=title,content&label=stars")
    return place, tuple(named)


def _check_group(group: str | None, grouped: bool, text: str) -> None:
    if group and (not grouped or group not in GROUPS):
        remedy = f"use near/ or far/: {GROUPED_FORM}" if grouped else f"groups are for OOD data; here: {FORM}"
        raise DataError(f"{text}: unexpected group {group!r}: {remedy}")


def _existing(text: str) -> bool:
    return bool(text) and os.path.exists(os.path.expanduser(text))


def _split_source(source: str) -> tuple[str, str | None, str | None]:
    pieces = re.split(r":(?![^\[]*\])", source)  # not at the colon inside [10:20]
    for count in range(len(pieces), max(len(pieces) - 3, 0), -1):
        if _existing(place := ":".join(pieces[:count])):
            return os.path.expanduser(place), *_config_and_split(pieces[count:])
    place, rest = pieces[0], pieces[1:]
    like_path = _is_file_name(place) or any("/" in piece or "\\" in piece for piece in rest)
    if len(pieces) > 3 or like_path or not HUB_ID.fullmatch(place):
        raise DataError(f"{source}: no such file or folder: check the path")
    return place, *_config_and_split(rest)


def _config_and_split(rest: Sequence[str]) -> tuple[str | None, str | None]:
    padded = [None, None, *(piece or None for piece in rest)]
    return padded[-2], padded[-1]


def _is_file_name(place: str) -> bool:
    return Path(place).suffix.lower() in FILE_FORMATS


def _default_name(source: str) -> str:
    """Returns a short name, such as cifar10 for `cifar10/validation.parquet`."""
    path = Path(source)
    stem = path.stem if _is_file_name(source) else path.name
    if split_of_word(stem) and path.absolute().parent.name:
        return path.absolute().parent.name
    return stem or path.resolve().name or source
