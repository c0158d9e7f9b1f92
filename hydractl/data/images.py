"""Image files as pixels: decoding, orientation and colour modes. Each error names its sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from hydractl.data.files import named_file
from hydractl.errors import DataError

if TYPE_CHECKING:
    import datasets

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
TRANSPARENT = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})


def decode_image(encoded: Mapping[str, Any] | None, where: str, folder: Path | None = Path()) -> Image.Image:
    """Returns the decoded image, upright by its EXIF orientation; the first frame of several.

    Args:
        encoded: `bytes` and `path` as the `datasets` library stores an image; the bytes win.
        where: the sample, for messages.
        folder: where a relative path starts; see `named_file`.

    Raises:
        DataError: no image, one that is truncated, unreadable or in another format, or a path that is not allowed.
    """
    if not encoded or (encoded.get("bytes") is None and encoded.get("path") is None):
        raise DataError(f"{where}: holds no image: remove the sample")
    data, path = encoded.get("bytes"), encoded.get("path")
    named = f"{where} ({path})" if path else where
    try:
        return _decoded(BytesIO(data) if data is not None else named_file(str(path), folder))
    except UnidentifiedImageError as error:
        raise DataError(f"{named}: unreadable image: not one of {', '.join(FORMATS)}: convert or remove it") from error
    except Exception as error:  # Pillow's readers raise any exception on damaged bytes
        reason = (str(error).strip(" .") or type(error).__name__).splitlines()[0]
        raise DataError(f"{named}: unreadable image: {reason}: repair or remove it") from error


def _decoded(file: Path | BytesIO) -> Image.Image:
    # Other formats may start programs: Pillow draws EPS, even in a file called .png, with the first gs on the path.
    with Image.open(file, formats=FORMATS) as image:
        image.load()
        if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
            return _eight_bit(ImageOps.exif_transpose(image))
        return _eight_bit(image)


def with_channels(image: Image.Image, channels: int) -> Image.Image:
    """Returns the image as 8-bit grey (1 channel) or RGB (3), with transparency over white as in transformers.

    Raises:
        DataError: pixels without an agreed range (floating point, or wider than 16 bits).
    """
    image = _eight_bit(image)
    mode = "L" if channels == 1 else "RGB"
    if image.mode in TRANSPARENT or "transparency" in image.info:
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image.convert("RGBA")).convert(mode)
    return image if image.mode == mode else image.convert(mode)


def _eight_bit(image: Image.Image) -> Image.Image:
    """Keeps the upper byte of 16-bit grey; Pillow's own conversion clips at 255, so such images turn white."""
    if image.mode != "F" and not image.mode.startswith("I"):
        return image
    pixels = np.asarray(image)
    if image.mode == "F" or (pixels.size and (pixels.min() < 0 or pixels.max() > 0xFFFF)):
        raise DataError(f"pixels of mode {image.mode} have no agreed range: convert the image to 8 or 16 bits")
    return Image.fromarray((pixels >> 8).astype(np.uint8))


@dataclass(frozen=True, eq=False)
class Lazy(Sequence[Any]):
    """Inputs that `read` returns by their places when they are used, so that only those in use are in memory."""

    places: Sequence[int]
    read: Callable[[int], Any]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Lazy(self.places[index], self.read)
        return self.read(self.places[index])


class EncodedImages(Sequence[Image.Image]):
    """The images of a table's column, decoded when read; a slice reads all its rows but decodes none."""

    def __init__(self, table: datasets.Dataset, column: str, name: str, folder: Path | None = Path()) -> None:
        """
        Args:
            column: images as the `datasets` library stores them, or names of files.
            name: of the data set, for messages.
            folder: where relative names of files start; see `named_file`.
        """
        import datasets  # here, because it loads slowly and images in memory do not need it

        undecoded = table.select_columns([column]).cast_column(column, datasets.Image(decode=False))
        self._rows, self._column, self._name = undecoded.with_format("arrow"), column, name
        self._folder = folder

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        places = range(len(self))[index]
        if isinstance(places, int):
            return self[places : places + 1][0]
        encoded = self._rows[index][self._column].to_pylist()
        return Lazy(range(len(places)), partial(self._decoded, encoded, places))

    def _decoded(self, encoded: Sequence[Any], places: range, at: int) -> Image.Image:
        return decode_image(encoded[at], f"{self._name}: sample {places[at]}", self._folder)

    def file(self, index: int) -> str | None:
        """Returns the file of an image, from the current folder; None if the table holds the image itself."""
        from pyarrow.compute import struct_field

        row = self._rows[index : index + 1][self._column]
        path = struct_field(row, "path")[0].as_py()
        if path is None or struct_field(row, "bytes")[0].is_valid:
            return None
        here = Path.cwd()
        return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else str(path)
