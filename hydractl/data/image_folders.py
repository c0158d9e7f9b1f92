"""Folders of images: which files are images, which class and split each folder stands for, what is left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hydractl.data.files import FILE_FORMATS, files_below, split_of_word
from hydractl.data.images import FORMATS, is_image_file
from hydractl.errors import DataError
from hydractl.text import composed

if TYPE_CHECKING:
    import datasets

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
    card = folder / "README.md"
    return any((folder / table).is_file() for table in TABLES) or (
        card.is_file() and card.read_bytes().startswith(b"---")
    )


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
    import datasets

    classes = [part.class_of(path) for path in part.images]
    names = sorted({name for name in classes if name is not None})
    labelled = None not in classes
    lost = Counter(name for path in part.left_out if (name := part.class_of(path)) is not None and name not in names)
    if labelled and lost:
        counted = ", ".join(f"{name} ({count} files)" for name, count in sorted(lost.items()))
        raise DataError(
            f"{folder}: no image in {counted}, only {', '.join(FORMATS)} are read: convert them, or move the folder"
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
    first, counts = dict[str, Path](), Counter[str]()
    for path in part.left_out:
        name = part.class_of(path) or "no class"
        counts[name] += 1
        first.setdefault(name, path)
    listed = ", ".join(f"{count} of {name} ({first[name].name})" for name, count in sorted(counts.items()))
    return f"{len(part.left_out)} files are none of {', '.join(FORMATS)} and left out: {listed}"
