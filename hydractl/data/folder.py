"""What lies in a folder of data, seen in one pass, and which of its files belong to which split."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hydractl.bounds import FILES
from hydractl.data.files import A_FOLDER, FILE_FORMATS, require_regular, special_kind
from hydractl.data.imagefolder import CARDS, IMAGE_ENDINGS
from hydractl.data.splits import KEYWORDS
from hydractl.errors import DataError

#: The loader of the `datasets` library for each ending; it has more, for files that no classifier reads.
LOADERS = {**FILE_FORMATS, ".txt": "text", **dict.fromkeys(sorted(IMAGE_ENDINGS), "imagefolder")}
#: Which wins where a folder holds as many files of several.
FIRST = ("parquet", "arrow", "json", "csv", "imagefolder", "text", "webdataset")
#: Files that say something of the data and are none, as the `datasets` library writes them.
ABOUT = frozenset({"config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"})
OTHERS = 5  # endings that a message names

_SHARD = re.compile(r"data/(\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*")
_WORD = re.compile(rf"(?:^|[-._ 0-9])({'|'.join(KEYWORDS)})(?=$|[-._ 0-9])", re.IGNORECASE)


@dataclass(frozen=True)
class Contents:
    """What lies below a folder.

    Args:
        files: names of those that can be read, relative to the folder, sorted; links that lead nowhere among them.
        others: a few endings of those that cannot.
        special: one that is no regular file, if there is any.
        count: how many things there are in all, hidden ones among them.
    """

    files: tuple[str, ...]
    others: frozenset[str]
    special: Path | None
    count: int

    def require_regular(self) -> None:
        """Raises DataError where there is a pipe, a socket or a device, which may hang or never end."""
        if self.special is not None:
            require_regular(self.special)


def look(folder: Path, endings: Iterable[str] = LOADERS, hidden: bool = False) -> Contents:
    """What lies below a folder; links to folders are not followed.

    Args:
        endings: of the files that can be read, in lower case.
        hidden: whether files count whose name, or that of a folder above them, begins with a dot.

    Raises:
        DataError: there are more than FILES, or a folder cannot be looked into.
    """
    endings = frozenset(endings)
    files: list[str] = []
    others: set[str] = set()
    special: Path | None = None
    count = 0
    for place, entry in _entries(folder):
        if (count := count + 1) > FILES:
            raise DataError(f"{folder}: holds more than {FILES} files: name one of them, or a folder below")
        name = place + entry.name
        kind = None if entry.is_file(follow_symlinks=False) else special_kind(Path(entry.path))
        if kind == A_FOLDER or (not hidden and (name[0] == "." or "/." in name)):
            continue
        if kind is not None:
            special = special or Path(entry.path)
        ending = os.path.splitext(name)[1].lower()
        if ending in endings:
            files.append(name)
        elif len(others) < OTHERS:
            others.add(ending)
    return Contents(tuple(sorted(files)), frozenset(others), special, count)


def _entries(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything below a folder, each with the name of the place it lies in, which ends in a slash."""
    waiting = [""]
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(folder / place) as entries:  # which knows what things are without asking the disk for each
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{place}{entry.name}/")
                    yield place, entry
        except OSError as error:
            raise DataError(f"{folder / place}: cannot look into this folder: {error.strerror}") from error


def data_files(contents: Contents) -> list[str]:
    """The files that hold data; what only says something of it, or lies in a folder like `__MACOSX`, is left out."""
    return [
        file
        for file in contents.files
        if os.path.basename(file) not in ABOUT and not any(part.startswith("__") for part in file.split("/")[:-1])
    ]


def splits_by_name(files: Sequence[str]) -> dict[str, list[str]]:
    """The files of each split, by the rules of the `datasets` library, which looks at each some sixty times for it.

    Shards in a folder `data` name their splits; or else the words for splits do, in the names of folders or of files;
    or else all is `train`. A file whose name has the words of two splits belongs to both.

    Args:
        files: names relative to their folder.
    """
    rules = (_of_shard, _of_folders, _of_name)
    return next((splits for rule in rules if (splits := _sorted_out(files, rule))), {"train": [*files]})


def _sorted_out(files: Sequence[str], rule: Callable[[str], set[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in files:
        for split in rule(file):
            found.setdefault(split, []).append(file)
    usual = dict.fromkeys(KEYWORDS.values())
    return {split: found[split] for split in (*usual, *sorted(found.keys() - usual)) if split in found}


def _of_shard(file: str) -> set[str]:
    shard = _SHARD.fullmatch(file)
    return {shard[1]} if shard else set()


def _of_folders(file: str) -> set[str]:
    return {split for part in file.split("/")[:-1] for split in _of_name(part)}


def _of_name(file: str) -> set[str]:
    return {KEYWORDS[word.lower()] for word in _WORD.findall(os.path.basename(file))}


def loader_of(splits: Mapping[str, Sequence[str]], folder: Path) -> str:
    """The loader of most files of each split.

    Raises:
        DataError: it is not the same for all.
    """
    loaders = {split: _most_common(files) for split, files in splits.items()}
    if len({*loaders.values()}) > 1:
        found = ", ".join(f"{split}: {loader}" for split, loader in loaders.items())
        raise DataError(f"{folder}: its splits hold files of different kinds ({found}): name one of them")
    return next(iter(loaders.values()))


def _most_common(files: Sequence[str]) -> str:
    tables = [file for file in files if os.path.basename(file) not in CARDS] or files
    counts = Counter(LOADERS[_ending(file)] for file in tables)
    return max(counts, key=lambda loader: (counts[loader], -FIRST.index(loader)))


def belongs(file: str, loader: str) -> bool:
    """Whether a loader reads a file: by its ending, or since it says which images there are."""
    return LOADERS[_ending(file)] == loader or (loader == "imagefolder" and os.path.basename(file) in CARDS)


def _ending(file: str) -> str:
    return os.path.splitext(file)[1].lower()
