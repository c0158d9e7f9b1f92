"""Samples that a program holds already: in a list, in a torch `Dataset`, in whatever has a length and places."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from PIL import Image

from hydractl.data.hashes import hash_inputs
from hydractl.data.labels import MISSING, label_words
from hydractl.data.like import Indexed, Modality, Text
from hydractl.data.samples import Samples, fewer_classes, spread
from hydractl.data.spec import DataValues
from hydractl.errors import DataError

IMAGES = "images of Pillow or uint8 arrays [height,width,3]"


def read_values(asked: DataValues, modality: Modality, limit: int | None, skip_bad: bool) -> Samples:
    """The samples among some values; see `hydractl.data.open.open_samples`.

    Images are taken from the values each time they are asked for; where they come with labels, all once before that.

    Raises:
        DataError: no samples, or one that cannot be read or is no input of such a model.
    """
    where = asked.name
    if not (length := _length(asked)):
        raise DataError(f"{where}: holds no samples")
    paired = _is_pair(_read(asked.values, 0, where))
    values = _Values(asked.values, range(length), paired, modality, where)
    taken = values.at(spread(len(values), limit))
    skipped: tuple[str, ...] = ()
    hashes = None
    if skip_bad:
        hashes, bad = hash_inputs(taken)
        skipped = tuple(bad.values())
        if len(bad) == len(taken):
            raise DataError(f"{where}: not one of {len(taken)} samples can be read: {skipped[0]}")
        good = [at for at in range(len(taken)) if at not in bad]
        taken, hashes = taken.at([taken.places[at] for at in good]), hashes[good]
    inputs = taken if modality == "image" else taken[:]
    samples = Samples(where, modality, inputs, skipped=skipped, hashes=hashes)
    if not values.paired:
        return replace(samples, label_problem="holds inputs alone, no (input, label) pairs")
    samples = _with_labels(samples, taken.labels(), _class_names(asked.values))
    if samples.labels is None or len(taken) == len(values) or not isinstance(asked.values, list | tuple):
        return samples  # to read all of a torch data set for a note could take hours
    whole = _with_labels(samples, values.labels(), None)
    notes = () if whole.labels is None else fewer_classes(samples.labels, whole.labels, where)
    return replace(samples, notes=notes)


def _length(asked: DataValues) -> int:
    try:
        return len(asked.values)
    except TypeError as error:
        kind = type(asked.values).__name__
        raise DataError(f"{asked}: {kind} has no length: give a list, or a data set with `__getitem__`") from error


def _with_labels(samples: Samples, found: Sequence[Any], names: tuple[str, ...] | None) -> Samples:
    """The samples with labels in numbers, or with what is wrong with them; None stands for a missing one."""
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
    """What torchvision's data sets call their classes."""
    names = getattr(values, "classes", None)
    return tuple(names) if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names) else None


@dataclass(frozen=True, eq=False)
class _Values(Sequence[Any]):
    """The inputs at some places of the values, checked when they are asked for.

    `paired` says whether each value is (input, label), as the first one is.
    """

    values: Indexed
    places: Sequence[int]
    paired: bool
    modality: Modality
    where: str

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        place = self.places[index]
        value, where = self._value(place), f"{self.where}: sample {place}"
        one = value[0] if self.paired else value
        return _image(one, where) if self.modality == "image" else _text(one, where)

    def at(self, places: Sequence[int]) -> _Values:
        return replace(self, places=places)

    def labels(self) -> list[Any]:
        return [self._value(place)[1] for place in self.places]

    def _value(self, place: int) -> Any:
        value = _read(self.values, place, self.where)
        if self.paired and not _is_pair(value):
            raise DataError(f"{self.where}: sample {place} is no (input, label) pair, as the first one is")
        return value


def _read(values: Indexed, place: int, where: str) -> Any:
    try:
        return values[place]
    except Exception as error:  # a data set of the user's own raises whatever it likes
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
