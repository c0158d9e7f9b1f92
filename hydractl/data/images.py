"""Images as pixels, whatever they came as: decoding, orientation and colour modes. Each error names its sample."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from hydractl.data.files import named_file
from hydractl.errors import DataError, UnreadableError

if TYPE_CHECKING:
    import datasets

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
TRANSPARENT = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
CHANNELS = (1, 3, 4)  # of an array
IMAGES = "images of Pillow, files' contents or paths, or uint8 arrays [height,width,3]"


def read_image(value: object, where: str = "", folder: Path | None = Path()) -> Image.Image:
    """Returns an image decoded and upright by its EXIF orientation, whatever it came as; the first frame of several.

    Args:
        value: an image of Pillow, a file's content or path, `bytes` and `path` as the `datasets` library stores them
            (the bytes win), or pixels: an array or tensor `[height,width]`, `[height,width,channels]` or
            `[channels,height,width]` of whole numbers.
        where: the sample, for messages. Default: its path, if it has one.
        folder: where a relative path starts; see `named_file`.

    Raises:
        DataError: no image, one that is truncated, unreadable or in another format, pixels without an agreed range, or
            a path that is not allowed.
    """
    where = where or (str(value) if isinstance(value, str | Path) else "an image")
    if isinstance(value, Mapping):
        where = f"{where} ({value['path']})" if value.get("path") else where
        value = value["path"] if value.get("bytes") is None else value["bytes"]
    if value is None:
        raise UnreadableError(f"{where}: holds no image: remove the sample")
    with _failing_as(where):
        if isinstance(value, bytes | bytearray):
            return _opened(BytesIO(value))
        if isinstance(value, str | Path):
            # Not by its name: Pillow would map the file, and a TIFF on its side in the wrong shape.
            with open(named_file(str(value), folder), "rb") as content:
                return _opened(content)
        return _upright(value) if isinstance(value, Image.Image) else _of_array(value)


def is_one_image(value: object) -> bool:
    """Returns whether a value is an image and not several; a text may be a path, or not.

    Channels come first or last: `[3,H,W]` is one image in colour, not three in grey.
    """
    if isinstance(value, np.ndarray) or ("torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)):
        pixels = np.asarray(value)
        of_one = pixels.ndim == 2 or (pixels.ndim == 3 and (pixels.shape[2] in CHANNELS or pixels.shape[0] in CHANNELS))
        return of_one and pixels.dtype.kind in "biuf"
    return isinstance(value, Image.Image | bytes | bytearray | Path)


def is_image_file(file: Path) -> bool:
    """Returns whether a file's content is an image in a format that is read; its pixels may be damaged.

    Raises:
        DataError: the file may not be read.
    """
    try:
        with open(file, "rb") as content, Image.open(content, formats=FORMATS):
            return True
    except OSError as error:
        if error.errno is None:  # of Pillow
            return False
        raise UnreadableError(f"{file}: cannot read: {error.strerror}: repair or remove it") from error
    except Exception:  # Pillow's readers raise any exception on other bytes
        return False


@contextmanager
def _failing_as(where: str) -> Iterator[None]:
    """Turns any error of Pillow, whose readers raise any exception on damaged bytes, into UnreadableError."""
    try:
        yield
    except DataError as error:
        raise UnreadableError(f"{where}: {error}") from error
    except UnidentifiedImageError as error:
        raise UnreadableError(
            f"{where}: unreadable image: not one of {', '.join(FORMATS)}: convert or remove it"
        ) from error
    except Exception as error:
        reason = (str(error).strip(" .") or type(error).__name__).splitlines()[0]
        raise UnreadableError(f"{where}: unreadable image: {reason}: repair or remove it") from error


def _opened(file: IO[bytes]) -> Image.Image:
    # Other formats may start programs: Pillow draws EPS, even in a file called .png, with the first gs on the path.
    with Image.open(file, formats=FORMATS) as image:
        return _upright(image)


def _upright(image: Image.Image) -> Image.Image:
    image.load()  # first: Pillow turns a TIFF upright itself
    if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode != "F" and not image.mode.startswith("I"):
        return image
    eight_bits = _of_array(image)
    if (level := image.info.get("transparency")) is not None:
        eight_bits.putalpha(Image.fromarray(np.where(np.asarray(image) == level, 0, 255).astype(np.uint8)))
    return eight_bits


def _of_array(value: object) -> Image.Image:
    """Returns pixels of whole numbers as 8 bits: as they are up to 255, and the upper byte of 16 bits beyond.

    Pillow's own conversion clips at 255, so that images of 16 bits turn white.
    """
    pixels = np.asarray(value)
    if pixels.ndim == 3 and pixels.shape[2] not in CHANNELS and pixels.shape[0] in CHANNELS:
        pixels = np.moveaxis(pixels, 0, 2)
    if pixels.dtype.kind not in "biuf" or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in CHANNELS)):
        shape = f" of shape {list(pixels.shape)}" if pixels.ndim else ""
        raise DataError(f"{type(value).__name__}{shape} is not an image: give {IMAGES}")
    pixels = pixels[:, :, 0] if pixels.shape[2:] == (1,) else pixels
    least, most = (pixels.min(), pixels.max()) if pixels.size else (0, 0)
    if pixels.dtype.kind == "f" or least < 0 or most > 0xFFFF:
        raise DataError(f"pixels of {pixels.dtype} have no agreed range: convert them to whole numbers of 8 or 16 bits")
    scaled = pixels * 255 if pixels.dtype.kind == "b" else pixels >> 8 if most > 0xFF else pixels
    return Image.fromarray(scaled.astype(np.uint8))


def with_channels(value: object, channels: int) -> Image.Image:
    """Returns an image as 8-bit grey (1 channel) or RGB (3), with transparency over white as in transformers.

    Args:
        value: whatever `read_image` reads.

    Raises:
        DataError: see `read_image`.
    """
    image = read_image(value)
    mode = "L" if channels == 1 else "RGB"
    with _failing_as("an image"):
        if image.mode in TRANSPARENT or "transparency" in image.info:
            white = Image.new("RGBA", image.size, (255, 255, 255, 255))
            return Image.alpha_composite(white, image.convert("RGBA")).convert(mode)
        return image if image.mode == mode else image.convert(mode)


@dataclass(frozen=True, eq=False)
class Lazy(Sequence[Any]):
    """Inputs that `read` returns by their places when they are used, so that only those in use are in memory.

    `source` holds the inputs themselves at these places, if they are some of a data set.
    """

    places: Sequence[int] | NDArray[np.int64]
    read: Callable[[int], Any]
    source: Sequence[Any] | None = None

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Lazy(self.places[index], self.read, self.source)
        return self.read(int(self.places[index]))


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
        return read_image(encoded[at], f"{self._name}: sample {places[at]}", self._folder)

    def files(self, places: range) -> list[str | None]:
        """Returns the files of images that follow one another, from the current folder; None for any in the table."""
        from pyarrow.compute import is_valid, struct_field

        rows, here = self._rows[places.start : places.stop][self._column], Path.cwd()
        paths, held = struct_field(rows, "path").to_pylist(), is_valid(struct_field(rows, "bytes")).to_pylist()
        return [
            None if path is None or has_bytes else _from(path, here)
            for path, has_bytes in zip(paths, held, strict=True)
        ]


def _from(path: str, here: Path) -> str:
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
