"""Any source as one table of the `datasets` library: files, folders, saved data sets, the hub."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import datasets
import huggingface_hub
from datasets.data_files import EmptyDatasetError
from datasets.exceptions import DataFilesNotFoundError, DatasetGenerationError
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

from hydractl.data import splits
from hydractl.data.files import FILE_FORMATS
from hydractl.data.image_folder import image_files, image_splits, read_image_folder
from hydractl.data.spec import DataSpec, DataValues
from hydractl.errors import DataError
from hydractl.text import one_line, shortened

# An empty cell is a missing value, the words NA and null are text.
CSV_OPTIONS: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}
LONGEST_REASON = 300  # characters
READ = ", ".join((*FILE_FORMATS, ".txt"))
HUB = "hf://"
#: The fixed loaders of the `datasets` library; others start programs, or read what no classifier takes.
BUILDERS = frozenset({*FILE_FORMATS.values(), "text", "imagefolder"})

Rows: TypeAlias = "datasets.Dataset | datasets.IterableDataset"


@dataclass(frozen=True)
class _Found:
    """What a source turned out to be: which splits are asked for, how to read them, and their sizes where known."""

    request: str
    read: Callable[[bool], Mapping[str, Rows]]  # told whether as a stream
    sizes: Mapping[str, int] = field(default_factory=dict)


def open_table(spec: DataSpec) -> datasets.Dataset:
    """The rows the spec asks for; images stay encoded, files are memory-mapped by `datasets`.

    Raises:
        DataError: nothing there, unreadable, several splits and none named, or the hub is out of reach.
    """
    with one_line_errors(spec.source):
        found = _find(spec)
        return splits.chosen_rows(found.read(False), found.request, spec.source)


def open_rows(spec: DataSpec) -> tuple[datasets.IterableDataset, int | None]:
    """The same rows as `open_table` gives, read as they are asked for and kept nowhere, and their number if known.

    Raises:
        DataError: as for `open_table`, or a slice that needs a number of rows which is not known.
    """
    with one_line_errors(spec.source):
        found = _find(spec)
        return splits.chosen_stream(found.read(True), found.request, found.sizes, spec.source)


def _find(spec: DataSpec) -> _Found:
    path = Path(spec.source)
    if not path.exists():
        return _from_hub(spec)
    return _from_folder(spec, path) if path.is_dir() else _from_file(spec, path)


def folders_of(asked: DataSpec | DataValues) -> tuple[Path, ...] | None:
    """Where files may lie that the rows of a data set name, the first for names that are relative.

    Those of a source are its own folder and the caches of what is downloaded; rows made in Python (None) may name any.
    """
    if isinstance(asked, DataValues):
        return None
    downloads = (datasets.config.HF_DATASETS_CACHE, huggingface_hub.constants.HF_HUB_CACHE)
    # Without `..`, as the names are compared with them.
    caches = tuple(Path(os.path.abspath(folder)) for folder in downloads)
    place = Path(os.path.abspath(asked.source))
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
    return shortened(one_line(" ".join(said.split())), LONGEST_REASON)


def _from_file(spec: DataSpec, path: Path) -> _Found:
    loader = FILE_FORMATS.get(path.suffix.lower())
    if loader is None:
        endings = ", ".join(FILE_FORMATS)
        raise DataError(f"{path}: is no data file of a known kind ({endings}); or give the folder it lies in")
    split = splits.split_of_word(path.stem) or "train"
    return _load(spec, loader, {split: [str(path.absolute())]}, _options(loader, path.suffix))


def _options(loader: str, ending: str) -> dict[str, Any]:
    if loader != "csv":
        return {}
    return {**CSV_OPTIONS, "sep": "\t"} if ending.lower() == ".tsv" else CSV_OPTIONS


def _load(
    spec: DataSpec,
    loader: str,
    files: Mapping[str, list[str]],
    options: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None,
) -> _Found:
    """Reads the files of the splits asked for and no others: a training split may be far larger."""
    request = splits.complete_request(spec.split, list(files), spec.source)
    wanted = {name: [_literal(file) for file in files[name]] for name in splits.names_in(request)}

    def read(streamed: bool) -> Mapping[str, Rows]:
        return datasets.load_dataset(loader, data_files=wanted, streaming=streamed, **options)

    return _Found(request, read, sizes or {})


def _literal(file: str) -> str:
    """Returns a pattern that matches this file alone."""
    return file if "://" in file else glob.escape(file)


def _from_folder(spec: DataSpec, folder: Path) -> _Found:
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        saved = datasets.load_from_disk(str(folder))
        parts = dict(saved) if isinstance(saved, datasets.DatasetDict) else {str(saved.split or "train"): saved}
        return _Found(splits.complete_request(spec.split, list(parts), spec.source), lambda streamed: parts)
    if images := image_files(folder):
        return _from_images(spec, folder, images)
    return _from_builder(spec, str(folder.resolve()))


def _from_images(spec: DataSpec, folder: Path, files: list[Path]) -> _Found:
    parts = image_splits(files)
    below = 0 if parts.get("train") is files else 1
    request = splits.complete_request(spec.split, list(parts), spec.source)
    names = splits.names_in(request)
    return _Found(request, lambda streamed: {name: read_image_folder(folder, parts[name], below) for name in names})


def _from_files(spec: DataSpec, loader: str, files: Mapping[str, list[str]], info: datasets.DatasetInfo) -> _Found:
    """The files of each split, with what a card says of their columns and numbers."""
    endings = {Path(file).suffix.lower() for some in files.values() for file in some}
    if loader == "csv" and len(endings) > 1:
        raise DataError(f"{spec.source}: holds {' and '.join(sorted(endings))} files: name one of them")
    options = _options(loader, min(endings))
    if info.features is not None:
        options = {**options, "features": info.features}
    sizes = {str(name): split.num_examples for name, split in (info.splits or {}).items() if split.num_examples}
    return _load(spec, loader, files, options, sizes)


def _from_hub(spec: DataSpec) -> _Found:
    _check_reachable(spec.source)
    return _from_builder(spec, spec.source, HUB)


def _from_builder(spec: DataSpec, source: str, root: str | None = None) -> _Found:
    """Finds what `datasets` finds in a folder or on the hub, if a fixed loader reads it.

    Args:
        root: where its files lie. Default: the source.
    """
    if spec.config is None and spec.split is not None:
        # `glue:sst2` names a configuration where the data set has several.
        configs = datasets.get_dataset_config_names(source)
        if spec.split in configs and len(configs) > 1:
            spec = replace(spec, config=spec.split, split=None)
    builder = datasets.load_dataset_builder(source, name=spec.config)
    files = {
        str(name): [_plain(str(file)) for file in some] for name, some in (builder.config.data_files or {}).items()
    }
    if elsewhere := [file for some in files.values() for file in some if not file.startswith(root or f"{source}/")]:
        raise DataError(f"{spec.source}: its card names {elsewhere[0]}: data comes from its own folder only")
    if not files or builder.name not in BUILDERS:
        raise DataError(f"{spec.source}: holds {builder.name} files, which are not read: give images or {READ}")
    return _from_files(spec, builder.name, files, builder.info)


def _plain(file: str) -> str:
    return file if "://" in file else os.path.normpath(file)


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
