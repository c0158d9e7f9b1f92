"""The rows of a table, and the values that a program holds, as samples."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from hydractl.data.hashes import hash_inputs
from hydractl.data.images import EncodedImages, Lazy
from hydractl.data.labels import MISSING, label_words, read_labels
from hydractl.data.reading import EVERYTHING, Indexed, Modality, Reading, Text
from hydractl.data.samples import Samples, fewer_classes, spread
from hydractl.data.sources import DataSpec, DataValues
from hydractl.data.table_columns import ChosenColumns, choose_columns, is_text, nested_columns, type_name
from hydractl.errors import DataError

if TYPE_CHECKING:
    import datasets

IMAGES = "images of Pillow or uint8 arrays [height,width,3]"


@dataclass(frozen=True)
class Request:
    """A request to read samples of a modality from some data; see `hydractl.data.open.open_samples`."""

    data: DataSpec | DataValues
    modality: Modality
    reading: Reading = EVERYTHING
    strict: bool = True
    skip_bad: bool = False

    def __str__(self) -> str:
        return str(self.data)

    @property
    def folder(self) -> Path | None:
        """The folder of relative names of image files; None for a data set of the hub."""
        if isinstance(self.data, DataValues):
            return Path()
        place = Path(self.data.source).absolute()
        if place.exists():
            return place if place.is_dir() else place.parent
        return None

    def choose(self, features: datasets.Features) -> ChosenColumns:
        """Returns the columns to read among those of a table; see `choose_columns`."""
        return choose_columns(features, self.modality, self.reading, str(self), strict=self.strict)


def read_table(whole: datasets.Dataset, request: Request) -> Samples:
    """Returns the samples in a table; see `hydractl.data.open.open_samples`.

    Raises:
        DataError: no samples, no such column, or empty texts without `skip_bad`.
    """
    whole = whole.flatten() if nested_columns(whole.features, request.reading) else whole
    limit = request.reading.limit
    table = whole if limit is None else whole.select(spread(len(whole), limit))
    if not len(table):
        raise DataError(f"{request}: holds no samples")
    chosen = request.choose(table.features)
    samples = read_samples(table, request, chosen)
    if not len(samples):
        raise DataError(f"{request}: not one of {len(table)} samples can be read: {samples.skipped[0]}")
    if chosen.label is None or len(table) == len(whole):
        return samples
    all_labels, labels = read_labels(whole, chosen.label), read_labels(table, chosen.label)
    if isinstance(all_labels, str) or isinstance(labels, str):
        return samples
    return replace(samples, notes=fewer_classes(labels[0], all_labels[0], str(request)))


def read_samples(table: datasets.Dataset, request: Request, chosen: ChosenColumns, first: int = 0) -> Samples:
    """Returns the samples in the rows of a table, which may all be left out.

    Args:
        first: the place of the table's first row in the data set, for messages.

    Raises:
        DataError: empty texts without `skip_bad`.
    """
    skipped: tuple[str, ...] = ()
    hashes = None
    inputs = _inputs(table, request, chosen, first)
    empty = _empty(inputs) if request.modality == "text" else []
    if request.skip_bad:
        hashes, bad = hash_inputs(inputs)
        bad |= {at: f"{request}: sample {first + at}: empty text" for at in empty}
        good = [at for at in range(len(table)) if at not in bad]
        table, hashes, skipped = table.select(good), hashes[good], tuple(bad.values())
        inputs = _inputs(table, request, chosen, first)
    elif empty:
        where = f"sample {first + empty[0]}"
        raise DataError(f"{request}: {len(empty)} of {len(table)} texts are empty, the first is {where}: remove them")
    samples = Samples(
        request.data.name, request.modality, inputs, chosen_columns=chosen, skipped=skipped, hashes=hashes
    )
    if chosen.label is None:
        return replace(samples, label_problem=chosen.label_problem)
    read = read_labels(table, chosen.label)
    if isinstance(read, str):
        return replace(samples, label_problem=read)
    return replace(samples, labels=read[0], label_names=read[1])


def _inputs(table: datasets.Dataset, request: Request, chosen: ChosenColumns, first: int) -> Sequence[Any]:
    if request.modality == "text":
        return _texts(table, chosen.inputs, str(request))
    return EncodedImages(table, chosen.inputs[0], str(request), first=first, folder=request.folder)


def _texts(table: datasets.Dataset, columns: Sequence[str], where: str) -> list[Text]:
    """Returns the text of each sample, or the pair of texts from two columns, empty ones included.

    Raises:
        DataError: a column holds something other than strings.
    """
    for column in columns:
        if not is_text(table.features[column]):
            kind = type_name(table.features[column])
            raise DataError(f"{where}: column {column} holds {kind}, not text; name another with `text_column`")
    rows = table.select_columns(list(columns)).with_format("arrow")[:]
    read = [[text or "" for text in rows[column].to_pylist()] for column in columns]
    return read[0] if len(read) == 1 else list(zip(*read, strict=True))


def _empty(texts: Sequence[Text]) -> list[int]:
    """Returns the positions of texts that are blank, or a part of which is."""
    parts = [(text,) if isinstance(text, str) else text for text in texts]
    return [at for at, some in enumerate(parts) if not all(part.strip() for part in some)]


def read_values(request: Request) -> Samples:
    """Returns the samples among some values; see `hydractl.data.open.open_samples`.

    Images are read again each time they are used; labelled ones also once here, for their labels.

    Raises:
        DataError: no samples, one that cannot be read, or one of the wrong type.
    """
    assert isinstance(request.data, DataValues)
    given, where = request.data.values, request.data.name
    try:
        length = len(given)
    except TypeError as error:
        kind = type(given).__name__
        raise DataError(f"{where}: {kind} has no length: give a list, or a data set with `__getitem__`") from error
    if not length:
        raise DataError(f"{where}: holds no samples")
    values = _Values(given, _is_pair(_read(given, 0, where)), request.modality, where)
    places = spread(length, request.reading.limit)
    inputs: Sequence[Any] = Lazy(places, values.input)
    skipped: tuple[str, ...] = ()
    hashes = None
    if request.skip_bad:
        hashes, bad = hash_inputs(inputs)
        skipped = tuple(bad.values())
        if len(bad) == len(places):
            raise DataError(f"{where}: not one of {len(places)} samples can be read: {skipped[0]}")
        good = [at for at in range(len(places)) if at not in bad]
        places, hashes = [places[at] for at in good], hashes[good]
        inputs = Lazy(places, values.input)
    inputs = inputs if request.modality == "image" else list(inputs)
    samples = Samples(where, request.modality, inputs, skipped=skipped, hashes=hashes)
    if not values.paired:
        return replace(samples, label_problem="holds inputs alone, no (input, label) pairs")
    samples = _with_labels(samples, [values.label(place) for place in places], _class_names(given))
    if samples.labels is None or len(places) == length or not isinstance(given, list | tuple):
        return samples  # reading a whole torch data set for a note could take hours
    whole = _with_labels(samples, [values.label(place) for place in range(length)], None)
    notes = () if whole.labels is None else fewer_classes(samples.labels, whole.labels, where)
    return replace(samples, notes=notes)


def _with_labels(samples: Samples, found: Sequence[Any], names: tuple[str, ...] | None) -> Samples:
    """Returns the samples with numbers as labels, or with a `label_problem`. None is a missing label."""
    if all(label is None for label in found):
        return replace(samples, label_problem="holds no labels")
    if all(label is None or isinstance(label, str) for label in found):
        labels, names = label_words(found)
        return replace(samples, labels=labels, label_names=names)
    try:
        numbers = [MISSING if label is None else operator.index(label) for label in found]
    except TypeError:
        kinds = sorted({type(label).__name__ for label in found})
        return replace(samples, label_problem=f"its labels are {', '.join(kinds)}, not whole numbers or class names")
    return replace(samples, labels=np.array(numbers, dtype=np.int64), label_names=names)


def _class_names(values: Indexed) -> tuple[str, ...] | None:
    """Returns the class names of a torchvision data set, or None."""
    names = getattr(values, "classes", None)
    return tuple(names) if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names) else None


@dataclass(frozen=True, eq=False)
class _Values:
    """Values of Python, checked when they are read; with `paired` each is (input, label)."""

    values: Indexed
    paired: bool
    modality: Modality
    where: str

    def input(self, place: int) -> Any:
        value, where = self._value(place), f"{self.where}: sample {place}"
        one = value[0] if self.paired else value
        return _image(one, where) if self.modality == "image" else _text(one, where)

    def label(self, place: int) -> Any:
        return self._value(place)[1]

    def _value(self, place: int) -> Any:
        value = _read(self.values, place, self.where)
        if self.paired and not _is_pair(value):
            raise DataError(f"{self.where}: sample {place} is no (input, label) pair, as the first one is")
        return value


def _read(values: Indexed, place: int, where: str) -> Any:
    try:
        return values[place]
    except Exception as error:  # a data set of the user's own may raise anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{where}: sample {place}: cannot be read: {reason}") from error


def _is_pair(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def _image(value: Any, where: str) -> Image.Image:
    if isinstance(value, Image.Image):
        return value
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.size:
        channels = value.shape[2] if value.ndim == 3 else 1
        if value.ndim in (2, 3) and channels in (1, 3, 4):
            return Image.fromarray(value.squeeze(2) if value.ndim == 3 and channels == 1 else value)
    raise DataError(f"{where} is {_described(value)}: give {IMAGES}, alone or as (image, label)")


def _text(value: Any, where: str) -> Text:
    parts = value if isinstance(value, list | tuple) else (value,)
    if len(parts) > 2 or not all(isinstance(part, str) for part in parts):
        raise DataError(f"{where} is {_described(value)}: give texts or pairs of texts, alone or as (text, label)")
    if not all(part.strip() for part in parts):
        raise DataError(f"{where}: empty text: remove it")
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    return kind if shape is None else f"{kind} of {getattr(value, 'dtype', 'unknown type')} {list(shape)}"
