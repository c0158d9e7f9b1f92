"""The data that a user gives: their types, the options by which commands read them, and what names a data set.

A data set is `[GROUP/]NAME=SOURCE[:CONFIG][:SPLIT][%PART][?COLUMNS]`, or values of Python. A `str` or a `Path` is
always a source, and a list of them is a list of sources. Texts as data need a name: `{"reviews": ["good", "bad"]}`.

This file loads no library, so that any signature may name its types.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeAlias, cast

from hydractl import bounds
from hydractl.data.files import FILE_FORMATS, on_disk, split_of_word
from hydractl.errors import DataError, OptionError
from hydractl.options import Option, option
from hydractl.text import LONGEST_SENTENCE, one_line, shortened

Modality = Literal["image", "text"]
Group = Literal["near", "far"]
Text = str | tuple[str, str]


class Indexed(Protocol):
    """Samples by their place: a list, a `datasets.Dataset`, a torch `Dataset` that has a length."""

    def __len__(self) -> int:
        """Returns the number of samples."""

    def __getitem__(self, index: Any, /) -> Any:
        """Returns the sample at a place."""


#: One data set; `hydractl.data.open` says how each kind is read.
DataLike: TypeAlias = str | Path | Indexed | Mapping[str, Indexed]
#: Several data sets: sources, or data by `NAME` or `GROUP/NAME`.
DataSetsLike: TypeAlias = DataLike | Sequence[str | Path] | Mapping[str, str | Path | Indexed]


SOURCE = "[NAME=]SOURCE[:SPLIT]"
OOD_SOURCE = "[[near/|far/]NAME=]SOURCE[:SPLIT]"
DEFAULT_TEMPLATE = "A photo of a {label}."


Limit = Annotated[
    int | None,
    Option("Use only N samples of each data set, spread evenly over it.", "Data", "N", within=(1, bounds.SAMPLES)),
]
Classes = Annotated[
    Any,
    Option(
        "Class names for a zero-shot model: a file with one name per line. Default: the names of the labels.",
        "Data",
        "FILE",
        remembered=False,
        rare=True,
    ),
]
Template = Annotated[str, Option("Prompt of a zero-shot model; {label} stands for the class name.", "Data", rare=True)]
SkipBad = Annotated[
    bool, Option("Leave out unreadable images and empty texts, and list them.", "Data", remembered=False, rare=True)
]


def _column(text: str, metavar: str = "NAME") -> Any:
    return option(None, text, "Data", metavar, remembered=False, rare=True)


@dataclass(frozen=True)
class Reading:
    """Says how the samples of a data set are found, limited and labelled."""

    limit: Limit = None
    classes: Classes = None
    template: Template = DEFAULT_TEMPLATE
    image_column: str | None = _column("Column of the images. Default: found by type and name.")
    text_column: str | None = _column("Column of the texts; name two with a comma for text pairs.", "NAME[,NAME]")
    label_column: str | None = _column("Column of the labels.")
    match_labels: Literal["name", "index"] = option(
        "name", "Match the data's labels to the model's by name or by index.", "Data", remembered=False, rare=True
    )


#: All of a data set, its columns found by type and name.
EVERYTHING = Reading()


GROUPS = ("near", "far")
COLUMNS = ("image", "text", "label")
MOST_PARTS = 1000

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


@dataclass(frozen=True)
class DataSpec:
    """A data set by its source, an existing path or a hub id; `split` may carry a slice.

    `columns` are pairs of `text`, `image` or `label` and a name, for this set alone. `parse_data_spec`
    reads what `str` gives.
    """

    name: str
    source: str
    config: str | None = None
    split: str | None = None
    group: Group | None = None
    part: Part | None = None
    columns: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        group = f"{self.group}/" if self.group else ""
        name = f"{group}{self.name}=" if group or self.name != _default_name(self.source) else ""
        pieces = [self.config, self.split] if self.config else [self.split] if self.split else []
        columns = "&".join(f"{kind}={column}" for kind, column in self.columns)
        rest = "".join(f":{piece or ''}" for piece in pieces)
        return f"{name}{self.source}{rest}{self.part or ''}{'?' if columns else ''}{columns}"

    def within(self, part: Part) -> DataSpec:
        """Returns a part of these samples."""
        return replace(self, part=replace(part, within=self.part))

    def seen_from(self, folder: str | Path, mark: str = "") -> DataSpec:
        """Returns the data set with its paths as `path_seen_from` gives them."""
        return replace(self, source=path_seen_from(self.source, folder, mark=mark))


def path_seen_from(path: str, folder: str | Path, here: str | Path = "", mark: str = "") -> str:
    """Returns a path as seen from a folder; an absolute path, and a name that is no path, stay as they are.

    Args:
        here: the folder that the path is seen from; the current one if empty.
        mark: text that stands before a path that is seen from the folder.
    """
    path = os.path.expanduser(path)
    if os.path.isabs(path) or not (path.startswith("..") or _existing(path, here)):
        return path
    return mark + os.path.relpath(os.path.join(here, path), folder)


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
    sets = parse_data_sets(data, name, grouped=False)
    if len(sets) != 1:
        raise DataError(
            f"expected one data set, got {len(sets)}: {', '.join(data_set.name for data_set in sets[:12])}; give texts "
            "as {name: texts}, columns as datasets.Dataset.from_dict(columns)"
        )
    return sets[0]


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
    if isinstance(data, list | tuple) and all(isinstance(item, str | Path) for item in data):
        return [parse_data_spec(text, grouped) for text in data]
    return [_parse(data, name, grouped)]


def refuse_same(ood: DataSpec | DataValues, id_data: DataSpec | DataValues) -> None:
    """Raises OptionError if OOD data are the ID data."""
    ood_source, id_source = (
        replace(data, name="", group=None) if isinstance(data, DataSpec) else data.values for data in (ood, id_data)
    )
    if ood_source is id_source or (isinstance(ood_source, DataSpec) and ood_source == id_source):
        raise OptionError(f"`ood_data` {ood}: is also `id_data`: name data that do not show its classes")


def _parse(data: Any, name: str, grouped: bool = False) -> DataSpec | DataValues:
    return parse_data_spec(data, grouped) if isinstance(data, str | Path) else DataValues(name, data)


def _named(key: str, data: Any, grouped: bool) -> DataSpec | DataValues:
    group, _, name = key.rpartition("/")
    _check_group(group, grouped, key)
    return replace(_parse(data, name), name=name, group=cast("Group | None", group or None))


def parse_data_spec(text: str | Path, grouped: bool = False, here: str | Path = "") -> DataSpec:
    """Returns the data set of a source; an existing path comes before any other reading, so it may have `:` and `=`.

    Args:
        text: `[GROUP/]NAME=SOURCE[:CONFIG][:SPLIT][%PART][?COLUMNS]`; only SOURCE is required. SPLIT may have slices
            and sums (`train[:100]+test`), and `:[:100]` slices the only split. PART is `%I/N` or `%I-J/N`, perhaps
            with `@SEED`; it may also follow COLUMNS, and a second PART divides the first. COLUMNS are for this set
            alone: `?text=title,content&label=stars`.
        grouped: whether a GROUP, `near` or `far`, may precede the name.
        here: the folder that paths in the text are seen from; the result has them as seen from the current one.

    Raises:
        DataError: the text is empty, names an unknown group, part or kind of column, or a path that does not exist.
    """
    spec = _read(text := str(text), here)
    match = None if spec else PREFIX.fullmatch(text)
    group, name, source = match.group("group", "name", "source") if match else (None, None, text)
    _check_group(group, grouped, text)
    if not source:
        raise DataError(f"{text!r} names no data: write {OOD_SOURCE if grouped else SOURCE}")
    spec = _read(source, here) if match else spec
    if spec is None:
        raise DataError(f"{os.path.join(here, source)}: no such file or folder: {_remedy(source, here)}")
    return replace(spec, name=name or spec.name, group=cast("Group | None", group))


def _remedy(source: str, here: str | Path) -> str:
    """Returns what may help where a source is no path."""
    place, bracket, rest = source.partition("[")
    if bracket and _existing(place, here):
        return f"a slice follows a colon: write {place}:[{rest}"
    group, _, rest = source.partition("/")
    if group in GROUPS and (not rest or rest[0] in "/~." or _existing(rest, here)):
        return f"a group precedes a name: write {group}/NAME={rest or 'SOURCE'}"
    return "download it first" if "://" in source else "check the path"


def require_on_hub(source: str) -> None:
    """Asks the hub once for a data set, because `datasets` tries for half a minute before it gives up on a name.

    Raises:
        DataError: the hub does not give it, and no earlier one has left it in the cache.
    """
    from huggingface_hub import HfApi, constants

    cache = os.environ.get("HF_DATASETS_CACHE") or os.path.join(constants.HF_HOME, "datasets")
    if os.path.isdir(os.path.join(cache, source.replace("/", "___"))):
        return
    try:
        HfApi().dataset_info(source, timeout=10)
    except Exception as error:  # of the hub, of the network, or of whichever HTTP client is installed
        reason = shortened(one_line(str(error).strip() or type(error).__name__), LONGEST_SENTENCE)
        raise DataError(f"{source}: is not a file or folder here, and the hub does not provide it: {reason}") from error


def split_sources(text: str) -> list[str]:
    """Returns the sources of a list with commas; a comma between columns divides no sources."""
    sources: list[str] = []
    for piece in text.split(","):
        if sources and "?" in sources[-1] and not ((spec := _read(piece)) and _existing(spec.source)):
            sources[-1] += f",{piece}"
        else:
            sources.append(piece)
    return sources


def _read(text: str, here: str | Path = "") -> DataSpec | None:
    """Returns the data set of a source without a name; None if it is neither an existing path nor like a hub id."""
    source, last = _split_off_parts(text, here)
    source, columns = (source, {}) if _existing(source, here) else _split_off_columns(source)
    source, first = _split_off_parts(source, here)
    pieces = re.split(r":(?![^\[]*\])", source)  # not at the colon inside [10:20]
    counts = range(len(pieces), max(len(pieces) - 3, 0), -1)
    count = next((n for n in counts if _existing(":".join(pieces[:n]), here)), 0)
    if not count and not _like_hub_id(pieces, here):
        return None
    config, split = (None, None, *(piece or None for piece in pieces[count or 1 :]))[-2:]
    place = _from_here(":".join(pieces[: count or 1]), here)
    place = on_disk(place) or place
    spec = DataSpec(_default_name(place), place, config, split, columns=tuple(columns.items()))
    for part in (*first, *last):
        spec = spec.within(part)
    return spec


def _from_here(path: str, here: str | Path) -> str:
    return path_seen_from(path, ".", here) if here else os.path.expanduser(path)


def _split_off_parts(source: str, here: str | Path) -> tuple[str, list[Part]]:
    """Returns a source without its parts, and the parts."""
    parts: list[Part] = []
    while not _existing(source, here) and (match := PART.fullmatch(source)):
        first, count = int(match["first"]), int(match["count"])
        part = Part(first, int(match["last"] or first), count, int(match["seed"] or 0))
        if not 1 <= part.first <= part.last <= count <= MOST_PARTS:
            raise DataError(f"{source}: no such part: write %I/N or %I-J/N with 1 <= I <= J <= N <= {MOST_PARTS}")
        source = match["whole"]
        parts.insert(0, part)
    return source, parts


def _split_off_columns(source: str) -> tuple[str, dict[str, str]]:
    """Returns a source without its columns, and the columns by kind."""
    place, *rest = re.split(r"\?(?=\w+(?:=|$))", source, maxsplit=1)
    pairs = (pair.partition("=") for text in rest for pair in text.split("&"))
    listed = [(kind, name) for kind, _, name in pairs]
    columns = dict(listed)
    if not all(columns.values()) or not columns.keys() <= set(COLUMNS) or len(columns) < len(listed):
        raise DataError(f"{source}: unknown or repeated columns: write them as ?text=title,content&label=stars")
    return place, columns


def _check_group(group: str | None, grouped: bool, text: str) -> None:
    if group and (not grouped or group not in GROUPS):
        remedy = f"use near/ or far/: {OOD_SOURCE}" if grouped else f"groups are for OOD data; here: {SOURCE}"
        raise DataError(f"{text}: unexpected group {group!r}: {remedy}")


def _existing(text: str, here: str | Path = "") -> bool:
    return bool(text) and on_disk(os.path.join(here, os.path.expanduser(text))) is not None


def _like_hub_id(pieces: Sequence[str], here: str | Path) -> bool:
    """Returns whether a source, divided at its colons, can be an id of the hub with a configuration and a split."""
    place, *rest = pieces
    group, _, name = place.partition("/")
    like_path = _is_file_name(place) or any("/" in piece or "\\" in piece for piece in rest)
    like_path |= group in GROUPS and _existing(name, here)
    return len(pieces) <= 3 and not like_path and HUB_ID.fullmatch(place) is not None


def _is_file_name(place: str) -> bool:
    return Path(place).suffix.lower() in FILE_FORMATS


def _default_name(source: str) -> str:
    """Returns a short name, such as cifar10 for `cifar10/validation.parquet`."""
    path = Path(os.path.abspath(source))
    stem = path.stem if _is_file_name(source) else path.name
    return (path.parent.name if split_of_word(stem) else "") or stem or source
