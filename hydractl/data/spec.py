"""What a user gives for a data set: `[GROUP/]NAME=SOURCE[:CONFIG][:SPLIT]` or less, or values of Python.

A `str` or a `Path` always is a source, and so is each one in a list of nothing else. Texts that are data themselves
are told apart by a name: `{"reviews": ["good", "bad"]}`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard, cast

from hydractl.data.files import FILE_FORMATS
from hydractl.data.like import DataLike, DataSetsLike, Group, Indexed
from hydractl.data.parts import Part, split_off_part
from hydractl.data.splits import split_of_word
from hydractl.errors import DataError

GROUPS = ("near", "far")

COLUMNS = ("image", "text", "label")
ONLY = "only"  # names a file of classes, where the others name columns

FORM = "[NAME=]SOURCE[:SPLIT]"
GROUPED_FORM = "[near/|far/]NAME=SOURCE[:SPLIT]"
HUB_ID = re.compile(r"(?=.{1,96}$)(?!.*(--|\.\.))[\w][\w.-]*(/[\w][\w.-]*)?")
PREFIX = re.compile(r"(?:(?P<group>[\w.-]+)/)?(?P<name>[^/\\:=.~?\s][^/\\:=?]*)=(?P<source>.*)", re.DOTALL)


@dataclass(frozen=True)
class DataSpec:
    """A data set as asked for: `source` is a path that exists or a hub id, `split` may carry a slice.

    `columns` are those of this set alone: `text`, `image` or `label`, and a name. `only` is a file with the classes to
    take, all of them where it is None.
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
    """A data set that a program holds: `values` are samples by their place."""

    name: str
    values: Indexed
    group: Group | None = None

    def __str__(self) -> str:
        return self.name


def parse_data(data: DataLike, name: str = "data") -> DataSpec | DataValues:
    """One data set as asked for.

    Args:
        data: a source, values, or one of them by its name: `{name: data}`.
        name: of values that have none of their own.

    Raises:
        DataError: several data sets, or no such file or folder.
    """
    if isinstance(data, Mapping):
        asked = [_named(key, value) for key, value in data.items()]
    else:
        asked = [parse_data_spec(str(text)) for text in data] if _are_sources(data) else [_parse(data, name)]
    if len(asked) != 1:
        raise DataError(
            f"one data set is wanted here, not {len(asked)}: {', '.join(one.name for one in asked[:12])}; give texts "
            "as {name: texts}, columns as datasets.Dataset.from_dict(columns)"
        )
    return asked[0]


def parse_data_sets(data: DataSetsLike, name: str = "data") -> list[DataSpec | DataValues]:
    """Several data sets, each perhaps of a group.

    Args:
        data: a source, a list of sources, values, or sources and values by `NAME` or `GROUP/NAME`.
        name: of values that have none of their own.

    Raises:
        DataError: an unknown group, or no such file or folder.
    """
    if isinstance(data, Mapping):
        return [_named(key, value, grouped=True) for key, value in data.items()]
    if _are_sources(data):
        return [parse_data_spec(str(text), grouped=True) for text in data]
    return [_parse(data, name, grouped=True)]


def _are_sources(data: object) -> TypeGuard[list[str | Path] | tuple[str | Path, ...]]:
    return isinstance(data, list | tuple) and all(isinstance(one, str | Path) for one in data)


def _parse(data: Any, name: str, grouped: bool = False) -> DataSpec | DataValues:
    return parse_data_spec(str(data), grouped) if isinstance(data, str | Path) else DataValues(name, data)


def _named(key: str, data: Any, grouped: bool = False) -> DataSpec | DataValues:
    group, _, name = key.rpartition("/")
    _check_group(group, grouped, key)
    return replace(_parse(data, name), name=name, group=cast("Group | None", group or None))


def parse_data_spec(text: str, grouped: bool = False) -> DataSpec:
    """What the text asks for; a path that exists wins over any other reading, so it may have `:` and `=`.

    Args:
        text: `[GROUP/]NAME=SOURCE[:CONFIG][:SPLIT][%PART][?COLUMNS]`; all but SOURCE may be left out. SPLIT may be
            sliced and added up (`train[:100]+test`), and `:[:100]` slices the only split. PART is of
            `hydractl.data.parts`, may stand behind COLUMNS too, and another behind it is a part of that. COLUMNS are
            of this set alone: `?text=title,content&label=stars`. Among them `only=FILE` takes the samples of the
            classes in a file, one a line.
        grouped: whether a GROUP, `near` or `far`, may stand before the name.

    Raises:
        DataError: the text is empty, names an unknown group or kind of column, or a path where nothing lies.
    """
    named = None if _existing(text) else PREFIX.fullmatch(text)
    group, name, source = named.group("group", "name", "source") if named else (None, None, text)
    _check_group(group, grouped, text)
    if not source:
        raise DataError(f"{text!r} names no data: write {GROUPED_FORM if grouped else FORM}")
    source, last = _split_off_parts(source)
    source, columns = (source, ()) if _existing(source) else _split_off_columns(source)
    source, first = _split_off_parts(source)
    part = _nested([*first, *last])
    place, config, split = _split_source(source)
    only = dict(columns).get(ONLY)
    own = tuple(pair for pair in columns if pair[0] != ONLY)
    grouping = cast("Group | None", group)
    return DataSpec(name or _default_name(place), place, config, split, grouping, part, own, only)


def _split_off_parts(source: str) -> tuple[str, list[Part]]:
    """A source, and the parts that are named behind it."""
    parts: list[Part] = []
    while not _existing(source):
        source, part = split_off_part(source)
        if part is None:
            break
        parts.insert(0, part)
    return source, parts


def _nested(parts: Sequence[Part]) -> Part | None:
    """Returns the last of some parts, each within the one before."""
    whole = None
    for part in parts:
        whole = replace(part, within=whole)
    return whole


def _split_off_columns(source: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """A source, and the columns that are named behind a question mark."""
    place, mark, said = source.rpartition("?")
    if not mark:
        return source, ()
    named = [(kind, name) for kind, _, name in (pair.partition("=") for pair in said.split("&"))]
    kinds = [kind for kind, _ in named]
    if not all(name for _, name in named) or not set(kinds) <= {*COLUMNS, ONLY} or len(set(kinds)) < len(kinds):
        raise DataError(f"{source}: behind ? stand columns, each once, as in ?text=title,content&label=stars")
    return place, tuple(named)


def _check_group(group: str | None, grouped: bool, text: str) -> None:
    if group and (not grouped or group not in GROUPS):
        remedy = f"use near/ or far/: {GROUPED_FORM}" if grouped else f"groups are for OOD data; here: {FORM}"
        raise DataError(f"{text}: {group!r} is no group here: {remedy}")


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
        raise DataError(f"{source}: there is no such file or folder")
    return place, *_config_and_split(rest)


def _config_and_split(rest: list[str]) -> tuple[str | None, str | None]:
    padded = [None, None, *(piece or None for piece in rest)]
    return padded[-2], padded[-1]


def _is_file_name(place: str) -> bool:
    return Path(place).suffix.lower() in FILE_FORMATS


def _default_name(source: str) -> str:
    """A short name: `validation.parquet` in a folder `cifar10` is called cifar10."""
    path = Path(source)
    stem = path.stem if path.suffix.lower() in FILE_FORMATS else path.name
    if split_of_word(stem) and path.absolute().parent.name:
        return path.absolute().parent.name
    return stem or path.resolve().name or source
