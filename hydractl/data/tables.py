"""Any source as one table of the `datasets` library: files, folders, saved data sets, the hub; splits and slices."""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import datasets
import huggingface_hub
from datasets.data_files import EmptyDatasetError
from datasets.exceptions import DataFilesNotFoundError, DatasetGenerationError
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

from hydractl.data.files import FILE_FORMATS, image_files, image_splits, read_image_folder, split_of_word
from hydractl.data.sources import DataSpec, DataValues
from hydractl.errors import DataError
from hydractl.text import one_line, shortened

# An empty cell is a missing value, the words NA and null are text.
CSV_OPTIONS: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}
READ = ", ".join((*FILE_FORMATS, ".txt"))
HUB = "hf://"
#: The fixed loaders of the `datasets` library; others start programs, or read what no classifier takes.
LOADERS = frozenset({*FILE_FORMATS.values(), "text", "imagefolder"})
LONGEST_REASON = 300  # characters
ENDLESS = 2**62  # stands for a number of samples that is not known

Rows: TypeAlias = "datasets.Dataset | datasets.IterableDataset"


@dataclass(frozen=True)
class _Found:
    """A source that is there: the splits and slices wanted, how to read them, and their sizes where known."""

    request: str
    read: Callable[[bool], Mapping[str, Rows]]  # of whether as a stream
    sizes: Mapping[str, int] = field(default_factory=dict)


def open_table(spec: DataSpec) -> datasets.Dataset:
    """Returns the rows of a source; images stay encoded, files are memory-mapped by `datasets`.

    Raises:
        DataError: nothing there, unreadable, several splits and none named, or the hub is out of reach.
    """
    with one_line_errors(spec.source):
        found = _find(spec)
        return _chosen_rows(found.read(False), found.request, spec.source)


def open_rows(spec: DataSpec) -> tuple[datasets.IterableDataset, int | None]:
    """Returns the same rows as `open_table`, read as they are used and kept nowhere, and their number if known.

    Raises:
        DataError: as for `open_table`, or a slice that needs a number of rows which is not known.
    """
    with one_line_errors(spec.source):
        found = _find(spec)
        return _chosen_stream(found.read(True), found, spec.source)


def _find(spec: DataSpec) -> _Found:
    path = Path(spec.source)
    if not path.exists():
        _check_reachable(spec.source)
        return _from_builder(spec, spec.source, HUB)
    return _from_folder(spec, path) if path.is_dir() else _from_file(spec, path)


def folders_of(data: DataSpec | DataValues) -> tuple[Path, ...] | None:
    """Returns where files may lie that the rows of a data set name, the first for names that are relative.

    Those of a source are its own folder and the caches of what is downloaded; rows made in Python (None) may name any.
    """
    if isinstance(data, DataValues):
        return None
    downloads = (datasets.config.HF_DATASETS_CACHE, huggingface_hub.constants.HF_HUB_CACHE)
    # Without `..`, as the names are compared with them.
    caches = tuple(Path(os.path.abspath(folder)) for folder in downloads)
    place = Path(os.path.abspath(data.source))
    if not place.exists():
        return caches
    return place if place.is_dir() else place.parent, *caches


@contextmanager
def one_line_errors(source: str) -> Iterator[None]:
    """Turns what readers raise into a DataError, and keeps their bars and logs off stderr."""
    bars, level = datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
    hub_level = huggingface_hub.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)
    huggingface_hub.logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    except DataError:
        raise
    except (DataFilesNotFoundError, EmptyDatasetError) as error:
        raise DataError(f"{source}: holds nothing that can be read as data: give images or {READ}") from error
    except Exception as error:  # the readers of nine formats raise whatever they like on a damaged file
        cause = error.__cause__ if isinstance(error, DatasetGenerationError) and error.__cause__ else error
        raise DataError(f"{source}: cannot be read as a data set: {_reason(cause)}") from error
    finally:
        datasets.logging.set_verbosity(level)
        huggingface_hub.logging.set_verbosity(hub_level)
        if not bars:
            datasets.enable_progress_bars()


def _reason(error: BaseException) -> str:
    said = str(error).strip().partition("\nExample of usage")[0] or type(error).__name__
    return shortened(one_line(said), LONGEST_REASON)


def _from_file(spec: DataSpec, path: Path) -> _Found:
    loader = FILE_FORMATS.get(path.suffix.lower())
    if loader is None:
        endings = ", ".join(FILE_FORMATS)
        raise DataError(f"{path}: is no data file of a known kind ({endings}); or give the folder it lies in")
    split = split_of_word(path.stem) or "train"
    return _load(spec, loader, {split: [str(path.absolute())]})


def _from_folder(spec: DataSpec, folder: Path) -> _Found:
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        saved = datasets.load_from_disk(str(folder))
        tables = dict(saved) if isinstance(saved, datasets.DatasetDict) else {str(saved.split or "train"): saved}
        return _Found(_complete(spec.split, list(tables), spec.source), lambda streamed: tables)
    if not (images := image_files(folder)):
        root = str(folder.resolve())
        return _from_builder(spec, root, f"{root}/")
    parts = image_splits(images)
    below = 0 if parts.get("train") is images else 1
    request = _complete(spec.split, list(parts), spec.source)
    return _Found(
        request, lambda streamed: {name: read_image_folder(folder, parts[name], below) for name in _splits_in(request)}
    )


def _from_builder(spec: DataSpec, source: str, root: str) -> _Found:
    """Finds what `datasets` finds in a folder or on the hub, if a fixed loader reads it.

    Args:
        root: how the names of its files begin.
    """
    if spec.config is None and spec.split is not None:
        # `glue:sst2` names a configuration where the data set has several.
        configs = datasets.get_dataset_config_names(source)
        if spec.split in configs and len(configs) > 1:
            spec = replace(spec, config=spec.split, split=None)
    builder = datasets.load_dataset_builder(source, name=spec.config)
    found = (builder.config.data_files or {}).items()
    files = {str(name): [_plain(str(file)) for file in some] for name, some in found}
    if elsewhere := [file for some in files.values() for file in some if not file.startswith(root)]:
        raise DataError(f"{spec.source}: its card names {elsewhere[0]}: data comes from its own folder only")
    if not files or builder.name not in LOADERS:
        raise DataError(f"{spec.source}: holds {builder.name} files, which are not read: give images or {READ}")
    return _load(spec, builder.name, files, builder.info)


def _plain(file: str) -> str:
    return file if "://" in file else os.path.normpath(file)


def _load(
    spec: DataSpec, loader: str, files: Mapping[str, Sequence[str]], info: datasets.DatasetInfo | None = None
) -> _Found:
    """Reads the files of the splits asked for and no others: a training split may be far larger.

    Args:
        info: what a card says of their columns and numbers.
    """
    request = _complete(spec.split, list(files), spec.source)
    wanted = {name: [_literal(file) for file in files[name]] for name in _splits_in(request)}
    endings = {Path(file).suffix.lower() for some in files.values() for file in some}
    if loader == "csv" and len(endings) > 1:
        raise DataError(f"{spec.source}: holds {' and '.join(sorted(endings))} files: name one of them")
    options = dict(CSV_OPTIONS) if loader == "csv" else {}
    if loader == "csv" and endings == {".tsv"}:
        options["sep"] = "\t"
    if info and info.features is not None:
        options["features"] = info.features
    counts = {str(name): split.num_examples for name, split in ((info and info.splits) or {}).items()}

    def read(streamed: bool) -> Mapping[str, Rows]:
        return datasets.load_dataset(loader, data_files=wanted, streaming=streamed, **options)

    return _Found(request, read, {name: count for name, count in counts.items() if count})


def _literal(file: str) -> str:
    """Returns a pattern that matches this file alone."""
    return file if "://" in file else glob.escape(file)


def _check_reachable(source: str) -> None:
    """Asks the hub once: `datasets` asks for half a minute before it gives up on a misspelt folder."""
    cached = Path(datasets.config.HF_DATASETS_CACHE, source.replace("/", "___"))
    try:
        huggingface_hub.HfApi().dataset_info(source, timeout=10)
    except GatedRepoError as error:
        raise DataError(f"{source}: is gated: ask for access on the hub, then log in with `hf auth login`") from error
    except RepositoryNotFoundError as error:
        raise DataError(f"{source}: is no file or folder here and no public data set on the hub") from error
    except Exception as error:  # whichever HTTP client the hub library has: no network, a proxy, offline mode
        if not cached.is_dir():
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise DataError(f"{source}: is no file or folder here, and the hub cannot be asked: {reason}") from error


def _complete(wanted: str | None, splits: Sequence[str], where: str) -> str:
    """Returns a request with every split named, checked: the only split where none is named.

    Args:
        wanted: what stands after the source, e.g. `validation`, `val`, `train[:10%]`, `[:100]` or None.
        splits: the splits there are.
        where: the source, for messages.

    Raises:
        DataError: several splits and none named, or one that is not there.
    """
    if not wanted or wanted.startswith("["):
        if len(splits) != 1:
            raise DataError(f"{where}: holds the splits {', '.join(splits)}: name one, as in {where}:{splits[0]}")
        return splits[0] + (wanted or "")
    return "+".join(_complete_part(part.strip(), splits, where) for part in wanted.split("+"))


def _complete_part(part: str, splits: Sequence[str], where: str) -> str:
    name, bracket, slice_ = part.partition("[")
    if name in splits:
        return part
    if (canonical := split_of_word(name)) in splits:
        return f"{canonical}{bracket}{slice_}"
    raise DataError(f"{where}: has no split {name!r}, only {', '.join(splits)}")


def _splits_in(request: str) -> list[str]:
    """Returns the splits a complete request takes samples from, each once, in order."""
    return list(dict.fromkeys(part.partition("[")[0] for part in request.split("+")))


def _chosen_rows(parts: Mapping[str, Rows], request: str, where: str) -> datasets.Dataset:
    """Returns the samples of a complete request, in its order."""
    pieces = _pieces(request, {name: len(part) for name, part in parts.items()}, where)
    # An empty range at the end is out of range to `select`, an empty list is not.
    rows = [range(piece.from_, piece.to) if piece.from_ < piece.to else [] for piece in pieces]
    chosen = [parts[piece.splitname].select(some) for piece, some in zip(pieces, rows, strict=True)]
    return chosen[0] if len(chosen) == 1 else datasets.concatenate_datasets(chosen)


def _chosen_stream(parts: Mapping[str, Rows], found: _Found, where: str) -> tuple[datasets.IterableDataset, int | None]:
    """Returns the samples of a complete request as a stream in its order, and how many, None where not known."""
    known = {name: len(part) for name, part in parts.items() if isinstance(part, datasets.Dataset)}
    lengths = {name: known.get(name, found.sizes.get(name, ENDLESS)) for name in parts}
    if ENDLESS in lengths.values() and (slice_ := re.search(r"\[[^]]*[%-][^]]*]", found.request)):
        raise DataError(f"{where}: how many samples it has is not known before the end: write {slice_[0]} as [:100]")
    pieces = _pieces(found.request, lengths, where)
    rows = []
    for piece in pieces:
        part = parts[piece.splitname]
        part = part.to_iterable_dataset() if isinstance(part, datasets.Dataset) else part
        part = part.skip(piece.from_) if piece.from_ else part
        rows.append(part.take(piece.to - piece.from_) if piece.to < lengths[piece.splitname] else part)
    total = sum(piece.to - piece.from_ for piece in pieces)
    whole = rows[0] if len(rows) == 1 else datasets.concatenate_datasets(rows)
    return whole, total if total < ENDLESS // 2 else None


def _pieces(request: str, lengths: Mapping[str, int], where: str) -> list[Any]:
    try:
        return datasets.ReadInstruction.from_spec(request).to_absolute(lengths)
    except (ValueError, AssertionError) as error:
        raise DataError(f"{where}:{request}: is no slice; write [:100], [100:200] or [:10%]") from error
