"""Any source as one table of the `datasets` library: files, folders, saved data sets, the hub; splits and slices.

Folders of images are read here: which files are images, which class and split each folder stands for, what is left out.
"""

from __future__ import annotations

import glob
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
from datasets.data_files import EmptyDatasetError
from datasets.exceptions import DataFilesNotFoundError, DatasetGenerationError

from hydractl.checkpoint.disk import weights_in
from hydractl.data.files import FILE_FORMATS, files_below, split_of_word
from hydractl.data.images import FORMATS, is_image_file
from hydractl.data.reading import DataSpec, require_on_hub
from hydractl.data.text_tables import csv_options, read_json_lines
from hydractl.data.words import conll_columns
from hydractl.errors import DataError
from hydractl.text import composed, one_line, shortened

#: A folder of images with one of these is read by the `datasets` library, as with a README.md that has settings.
TABLES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
#: Files so called count as images, even damaged ones. The content of all others decides, but for tables and texts.
ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
OTHERS = frozenset({*FILE_FORMATS, ".txt", ".md"})


@dataclass(frozen=True)
class ImagePart:
    """The files of one split, relative to the folder: images, and those left out.

    `below` counts the leading parts of each path that name no class: 1 where they name the split.
    """

    below: int
    images: list[Path] = field(default_factory=list)
    left_out: list[Path] = field(default_factory=list)

    def class_of(self, path: Path) -> str | None:
        """Returns the folder that would be a file's class, None for a file beside such folders."""
        return composed(path.parts[self.below]) if len(path.parts) > self.below + 1 else None


def image_parts(folder: Path) -> dict[str, ImagePart]:
    """Returns the parts of a folder of images by split; none where there are no images, or a table describes them.

    All is in `train` unless every top folder bears a split's name. The `datasets` library would take a class folder
    named `test` for a split and silently drop its neighbours.
    """
    if _is_described(folder):
        return {}
    files = sorted(map(Path, files_below(folder)))
    is_image = {path: _is_image(folder / path) for path in files}
    splits = {path: split_of_word(path.parts[0]) if len(path.parts) > 1 else None for path in files}
    images = [path for path in files if is_image[path]]
    divided = all(splits[path] for path in images)
    parts: dict[str, ImagePart] = {}
    for path in files if images else []:
        if (split := splits[path] if divided else "train") is not None:
            part = parts.setdefault(split, ImagePart(int(divided)))
            (part.images if is_image[path] else part.left_out).append(path)
    return parts


def _is_described(folder: Path) -> bool:
    if any((folder / table).is_file() for table in TABLES):
        return True
    return (card := folder / "README.md").is_file() and card.read_bytes().startswith(b"---")


def _is_image(file: Path) -> bool:
    ending = file.suffix.lower()
    if ending in ENDINGS or ending in OTHERS:
        return ending in ENDINGS
    return not file.is_fifo() and is_image_file(file)  # which would wait for a writer


def read_image_folder(folder: Path, part: ImagePart) -> datasets.Dataset:
    """Returns the images, with the class each folder stands for where all of them lie in class folders.

    Raises:
        DataError: a folder beside those of classes, or all the part, has files but no image.
    """
    classes = [part.class_of(path) for path in part.images]
    names = sorted({name for name in classes if name is not None})
    labelled = None not in classes
    lost = Counter(name for path in part.left_out if (name := part.class_of(path)) is not None and name not in names)
    if labelled and lost:
        counted = ", ".join(f"{name} ({count} files)" for name, count in sorted(lost.items()))
        raise DataError(
            f"{folder}: no image in {counted}, only {', '.join(FORMATS)} are supported: convert them, or move the "
            "folder"
        )
    # Absolute, since names that are relative are those of files beside a table.
    columns: dict[str, list[object]] = {"image": [str(folder.absolute() / path) for path in part.images]}
    features: dict[str, object] = {"image": datasets.Image()}
    if labelled:
        features["label"] = datasets.ClassLabel(names=names)
        columns["label"] = list(classes)
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def left_out_note(part: ImagePart) -> str | None:
    """Returns how many files of each class are no images that are read, or None."""
    if not part.left_out:
        return None
    by_class: dict[str, list[Path]] = {}
    for path in part.left_out:
        by_class.setdefault(part.class_of(path) or "no class", []).append(path)
    listed = ", ".join(f"{len(paths)} of {name} ({paths[0].name})" for name, paths in sorted(by_class.items()))
    return f"left out {len(part.left_out)} files that are not {', '.join(FORMATS)}: {listed}"


READ = ", ".join((*FILE_FORMATS, ".txt"))
HUB = "hf://"
#: The fixed loaders of the `datasets` library; others start programs, or read what no classifier takes.
LOADERS = frozenset({*FILE_FORMATS.values(), "text", "imagefolder"})
LONGEST_REASON = 300  # characters


def open_table(spec: DataSpec, on_note: Callable[[str], None] = lambda text: None) -> datasets.Dataset:
    """Returns the rows of a source; images stay encoded, files are memory-mapped by `datasets`.

    Args:
        on_note: called with what is left out.

    Raises:
        DataError: no such source, one that cannot be read, or several splits and no choice among them.
    """
    path = Path(spec.source)
    with _one_line_errors(spec.source):
        if path.is_dir():
            return _from_folder(spec, path, on_note)
        if path.exists():
            return _from_file(spec, path, on_note)
        require_on_hub(spec.source)
        return _from_builder(spec, spec.source, on_note)


@contextmanager
def _one_line_errors(source: str) -> Iterator[None]:
    """Turns any error of a reader into a DataError, and keeps progress bars and logs off stderr."""
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
        raise DataError(f"{source}: holds no readable data: give images or {READ}") from error
    except Exception as error:  # each reader has exceptions of its own for a damaged file
        cause = error.__cause__ if isinstance(error, DatasetGenerationError) and error.__cause__ else error
        raise DataError(f"{source}: cannot be read as a data set ({_reason(cause)}): repair or convert it") from error
    finally:
        datasets.logging.set_verbosity(level)
        huggingface_hub.logging.set_verbosity(hub_level)
        if not bars:
            datasets.enable_progress_bars()


def _reason(error: BaseException) -> str:
    text = str(error).strip().partition("\nExample of usage")[0] or type(error).__name__
    if "corresponds to no data" in text:  # what datasets says of a header alone
        return "it holds no rows"
    return shortened(one_line(text), LONGEST_REASON)


def _from_file(spec: DataSpec, path: Path, on_note: Callable[[str], None]) -> datasets.Dataset:
    loader = FILE_FORMATS.get(path.suffix.lower())
    if loader is None:
        raise DataError(f"{path}: does not end in {', '.join(FILE_FORMATS)}: convert it")
    split = split_of_word(path.stem) or "train"
    return _load(spec, loader, {split: [str(path.absolute())]}, on_note)


def _from_folder(spec: DataSpec, folder: Path, on_note: Callable[[str], None]) -> datasets.Dataset:
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        saved = datasets.load_from_disk(str(folder))
        tables = dict(saved) if isinstance(saved, datasets.DatasetDict) else {str(saved.split or "train"): saved}
        return _chosen_rows(tables, _complete(spec.split, list(tables), spec.source), spec.source)
    if weights_in(folder) is not None:
        raise DataError(f"{spec.source}: is a checkpoint: name data here, and the checkpoint as the model")
    if not (parts := image_parts(folder)):
        return _from_builder(spec, str(folder.resolve()), on_note)
    request = _complete(spec.split, list(parts), spec.source)
    splits = {name: read_image_folder(folder, parts[name]) for name in _splits_in(request)}
    for name in splits:
        if (note := left_out_note(parts[name])) is not None:
            on_note(f"{spec.source}: {note}")
    return _chosen_rows(splits, request, spec.source)


def _from_builder(spec: DataSpec, source: str, on_note: Callable[[str], None]) -> datasets.Dataset:
    """Loads the files that `datasets` finds in a folder or on the hub, if a fixed loader reads them."""
    if spec.config is None and spec.split is not None:
        # `glue:sst2` names a configuration where the data set has several.
        configs = datasets.get_dataset_config_names(source)
        if spec.split in configs and len(configs) > 1:
            spec = replace(spec, config=spec.split, split=None)
    builder = datasets.load_dataset_builder(source, name=spec.config)
    data_files = (builder.config.data_files or {}).items()
    files = {str(name): [str(file) for file in some] for name, some in data_files}
    elsewhere = [file for some in files.values() for file in some if not file.startswith(HUB)]
    if elsewhere and not Path(source).exists():
        raise DataError(f"{spec.source}: its card names {elsewhere[0]}, a file of this machine: use another data set")
    if not files or builder.name not in LOADERS:
        raise DataError(f"{spec.source}: holds {builder.name} files, which are not supported: give images or {READ}")
    return _load(spec, builder.name, files, on_note, features=builder.info.features)


def _load(
    spec: DataSpec,
    loader: str,
    files: Mapping[str, Sequence[str]],
    on_note: Callable[[str], None],
    features: datasets.Features | None = None,
) -> datasets.Dataset:
    """Reads only the files of the requested splits, since a training split may be far larger.

    Args:
        features: the types of columns, where a card declares them.
    """
    request = _complete(spec.split, list(files), spec.source)
    # As patterns, each of which matches its file alone.
    literal = {name: [file if "://" in file else glob.escape(file) for file in some] for name, some in files.items()}
    requested = {name: literal[name] for name in _splits_in(request)}
    first = files[next(iter(requested))][0]
    endings = {Path(file).suffix.lower() for some in files.values() for file in some}
    if loader == "csv" and len(endings) > 1:
        raise DataError(f"{spec.source}: holds {' and '.join(sorted(endings))} files: name one of them")
    if loader == "json" and features is None and (rows := read_json_lines(spec.source, requested)) is not None:
        return _chosen_rows(rows, request, spec.source)
    options: dict[str, Any] = {} if features is None else {"features": features}
    if loader == "csv":
        read = [file for name in requested for file in files[name]]
        options = csv_options(spec.source, read, "\t" if endings == {".tsv"} else ",", on_note) | options
    if loader == "conll":
        options["column_names"] = conll_columns(first)
    if loader in ("conll", "text"):
        options["encoding"] = "utf-8-sig"
    return _chosen_rows(datasets.load_dataset(loader, data_files=requested, **options), request, spec.source)


def _complete(request: str | None, splits: Sequence[str], where: str) -> str:
    """Returns a request such as `val+train[:10%]` with every split's full name; `[:100]` slices the only split."""
    if not request or request.startswith("["):
        if len(splits) != 1:
            raise DataError(f"{where}: holds the splits {', '.join(splits)}: name one, as in {where}:{splits[0]}")
        return splits[0] + (request or "")
    return "+".join(_complete_part(part.strip(), splits, where) for part in request.split("+"))


def _complete_part(part: str, splits: Sequence[str], where: str) -> str:
    name, bracket, slice_ = part.partition("[")
    if name in splits:
        return part
    if (canonical := split_of_word(name)) in splits:
        return f"{canonical}{bracket}{slice_}"
    raise DataError(f"{where}: has no split {name!r}, only {', '.join(splits)}")


def _splits_in(request: str) -> list[str]:
    """Returns the splits of a complete request, each once, in order."""
    return list(dict.fromkeys(part.partition("[")[0] for part in request.split("+")))


def _chosen_rows(splits: Mapping[str, datasets.Dataset], request: str, where: str) -> datasets.Dataset:
    """Returns the rows of a complete request, in its order."""
    try:
        lengths = {name: len(rows) for name, rows in splits.items()}
        pieces = datasets.ReadInstruction.from_spec(request).to_absolute(lengths)
    except (ValueError, AssertionError) as error:
        raise DataError(f"{where}:{request}: is not a slice: write [:100], [100:200] or [:10%]") from error
    # An empty range at the end is out of range to `select`, an empty list is not.
    rows = [range(piece.from_, piece.to) if piece.from_ < piece.to else [] for piece in pieces]
    chosen = [splits[piece.splitname].select(some) for piece, some in zip(pieces, rows, strict=True)]
    return chosen[0] if len(chosen) == 1 else datasets.concatenate_datasets(chosen)
