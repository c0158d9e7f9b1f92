"""Opens data: whatever a user gives, as `Samples`.

    open_samples("cifar10:test[:1000]", "image")
    open_samples(datasets.Dataset.from_dict({"text": ["good", "bad"], "label": [1, 0]}), "text")
    open_samples(torchvision.datasets.CIFAR10(folder), "image")   # any torch `Dataset` of (image or text, label)
    open_samples([(image, "cat"), (other, "dog")], "image")       # or of inputs alone
    open_samples({"reviews": ["good", "bad"]}, "text")            # texts by a name: a bare `str` is a source

`hydractl.data.reading.parse_data_sets` divides several data sets in one value, as OOD data often are.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hydractl.data.hashes import hash_inputs, positions
from hydractl.data.images import EncodedImages, Lazy, is_one_image, read_image
from hydractl.data.labels import MISSING, TRUTH, label_lists, label_words, read_labels
from hydractl.data.number_labels import as_numbers
from hydractl.data.reading import (
    EVERYTHING,
    DataLike,
    DataSpec,
    DataValues,
    Indexed,
    Modality,
    Reading,
    Text,
    parse_data,
)
from hydractl.data.samples import Samples, few_for_chance, spread_places
from hydractl.data.table_columns import (
    choose_columns,
    holds_words,
    nested_columns,
    reads_as_text,
    type_name,
    types_as_read,
    with_composed_columns,
    with_composed_names,
)
from hydractl.data.words import Words, read_tags, read_words
from hydractl.errors import DataError, OptionError, UnreadableError
from hydractl.text import composed_all

if TYPE_CHECKING:
    import datasets


def open_samples(
    data: DataLike | DataSpec | DataValues,
    modality: Modality,
    reading: Reading = EVERYTHING,
    *,
    strict: bool = True,
    skip_bad: bool = False,
    keep_bad: bool = False,
    name: str = "data",
) -> Samples:
    """Returns the samples of one data set.

    Args:
        data: a source, a `datasets.Dataset`, or samples by their place: inputs, or `(input, label)`. Images are
            whatever `read_image` reads, texts are strings or pairs of strings, labels whole numbers or class names.
            Class names of numbers are taken from a `datasets.Dataset` and from `classes`, as torchvision's data sets
            have them.
        modality: what the model takes, `image` or `text`.
        reading: the columns and the limit, which spreads the samples evenly over the data.
        strict: whether a named column must be there; otherwise detection takes over.
        skip_bad: leave out unreadable images and empty texts (decodes every image once now) and list them in a note.
        keep_bad: leave unreadable images and empty texts in their places; reading such an image raises DataError. No
            label is read, so that two strings could be a pair of texts as well as a text and its class: DataError.
        name: of values that have none of their own.

    Raises:
        DataError: no such source, split or column, no samples, a sample that is neither image nor text, or empty
            texts without `skip_bad` or `keep_bad`.
        OptionError: a column of the other modality is named.
    """
    other = "text_column" if modality == "image" else "image_column"
    if strict and (column := getattr(reading, other)) is not None:
        raise OptionError(f"`{other}` {column}: the model takes {modality}s: leave it out")
    request = _Request(parse_data(data, name), modality, reading, strict=strict, skip_bad=skip_bad, keep_bad=keep_bad)
    if isinstance(request.data, DataSpec):
        left_out: list[str] = []
        samples = _of_source(request.data, request, left_out)
        samples = replace(samples, notes=(*left_out, *samples.notes))
    elif "datasets" in sys.modules and isinstance(request.data.values, sys.modules["datasets"].Dataset):
        # A library that is not loaded made none of the values, and this one takes two seconds to load.
        samples = _of_table(request.data.values, request)
    else:
        samples = _of_values(request.data.values, request)
    return replace(samples, notes=(*few_for_chance(samples, str(request)), *samples.notes))


@dataclass(frozen=True)
class _Request:
    data: DataSpec | DataValues
    modality: Modality
    reading: Reading
    strict: bool
    skip_bad: bool
    keep_bad: bool

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


def _of_source(spec: DataSpec, request: _Request, left_out: list[str]) -> Samples:
    from hydractl.data.tables import open_table

    if spec.columns:  # those of this data set come before those named for all sets
        reading = request.reading
        if not request.strict:
            reading = replace(reading, image_column=None, text_column=None, label_column=None)
        columns: dict[str, Any] = {f"{kind}_column": column for kind, column in spec.columns}
        request = replace(request, reading=replace(reading, **columns), strict=True)
    table, limit = open_table(spec, left_out.append), request.reading.limit
    if spec.part is None:
        return _of_table(table, request)
    samples = _of_table(table, replace(request, reading=replace(request.reading, limit=None)))
    # What cannot be read has a hash too, so that it keeps its place in one of the parts.
    hashes = hash_inputs(samples.inputs)[0] if request.keep_bad else samples.content_hashes()
    taken = positions(spec.part, hashes)
    if not len(taken):
        raise DataError(
            f"{samples.name}{spec.part}: is empty, since the data has {len(samples)} samples: take fewer parts"
        )
    return samples.subset(taken[list(spread_places(len(taken), limit))])


def _of_table(table: datasets.Dataset, request: _Request) -> Samples:
    table, request = with_composed_columns(table), replace(request, reading=with_composed_names(request.reading))
    table = table.flatten() if nested_columns(table.features, request.reading) else table
    if request.reading.limit is not None:
        table = table.select(spread_places(len(table), request.reading.limit))
    if not len(table):
        raise DataError(f"{request}: holds no samples: give at least one")
    chosen = choose_columns(
        types_as_read(table), request.modality, request.reading, str(request), strict=request.strict
    )
    if request.modality == "text":
        inputs: Sequence[Any] = _texts(table, chosen.inputs, str(request))
    else:
        inputs = EncodedImages(table, chosen.inputs[0], str(request), request.folder)
    samples = Samples(request.data.name, request.modality, inputs, columns=chosen.inputs, table=table)
    samples = replace(samples, label_column=chosen.label)
    tagged = request.modality == "text" and isinstance(inputs[0], Words) and chosen.label in table.features
    if chosen.label is None:
        read: Any = chosen.label_problem or ""
    else:
        read = read_tags(table, chosen.label, inputs) if tagged else read_labels(table, chosen.label)
    if isinstance(read, str):
        samples = replace(samples, label_problem=read)
    else:
        samples = replace(samples, labels=read[0], label_names=read[1], tagged=tagged)
    return _without_bad(samples, request)


def _texts(table: datasets.Dataset, columns: Sequence[str], where: str) -> Sequence[Text]:
    """Returns the text of each sample, or the pair of texts from two columns, empty ones included.

    Numbers and dates are written as Python writes them.
    """
    if len(columns) == 1 and holds_words(table.features[columns[0]]):
        return read_words(table, columns[0])
    for column in columns:
        if not reads_as_text(table.features[column]):
            kind = type_name(table.features[column])
            raise DataError(f"{where}: column {column} holds {kind}, not text; name another with `text_column`")
    rows = table.select_columns(list(columns)).with_format("arrow")[:]
    # An empty cell among floating-point numbers is no number.
    read: list[list[Any]] = [
        ["" if x is None or x != x else str(x) for x in rows[column].to_pylist()] for column in columns
    ]
    return read[0] if len(read) == 1 else list(zip(*read, strict=True))


def _without_bad(samples: Samples, request: _Request) -> Samples:
    """Returns the samples less unreadable images and empty texts, if these are to be skipped."""
    if request.keep_bad:
        return samples
    empty = [at for at, text in enumerate(samples.inputs) if is_empty(text)] if request.modality == "text" else []
    if empty and not request.skip_bad:
        counted = f"{len(empty)} of {len(samples)} texts are empty, the first is sample {empty[0]}"
        raise UnreadableError(f"{request}: {counted}: remove them")
    if not request.skip_bad:
        return samples
    hashes, bad = hash_inputs(samples.inputs)
    bad |= {at: f"{request}: sample {at}: empty text" for at in empty}
    good = np.array([at for at in range(len(samples)) if at not in bad], dtype=np.int64)
    if not len(good):
        raise DataError(f"{request}: not one of {len(samples)} samples can be read: {bad[0]}")
    left_out = "\n      ".join(bad.values())
    notes = (f"{samples.name}: {len(bad)} samples left out: {left_out}",) if bad else ()
    return replace(replace(samples, hashes=hashes).subset(good), notes=notes)


def is_empty(text: Text) -> bool:
    """Returns whether a text, or one of a pair, is blank."""
    return not all(part.strip() for part in ((text,) if isinstance(text, str) else text))


def _of_values(values: Indexed, request: _Request) -> Samples:
    """Returns the samples among some values; images are read again each time they are used."""
    where = request.data.name
    library = type(values).__module__.partition(".")[0]
    if library in ("pandas", "polars"):
        raise DataError(f"{where}: is a table of {library}: give datasets.Dataset.from_{library}(table)")
    if is_one_image(values):
        raise DataError(f"{where}: is one image: give a list of images")
    if not hasattr(values, "__len__"):
        kind = type(values).__name__
        raise DataError(f"{where}: {kind} has no length: give a list, or a data set with `__getitem__`")
    if not len(values):
        raise DataError(f"{where}: holds no samples: give at least one")
    first = _read(values, 0, where)
    if request.keep_bad and request.modality == "text" and _is_pair(first) and all(isinstance(x, str) for x in first):
        two = "is two texts, a pair or a text and its label"
        raise DataError(f"{where}: sample 0 {two}: give ((text, text), None) for a pair, (text, None) for one text")
    read = _Values(values, _is_pair(first), request)
    places = spread_places(len(values), request.reading.limit)
    inputs: Sequence[Any] = Lazy(places, read.input)
    samples = Samples(where, request.modality, inputs if request.modality == "image" else list(inputs))
    if not read.paired:
        samples = replace(samples, label_problem="holds only inputs, not (input, label) pairs")
    else:
        samples = _with_labels(samples, [read.label(place) for place in places], getattr(values, "classes", None))
    return _without_bad(samples, request)


def _with_labels(samples: Samples, values: Sequence[Any], classes: Sequence[str] | None) -> Samples:
    """Returns the samples with numbers as labels, or with a `label_problem`. None is a missing label.

    Args:
        classes: the names of numbers, as torchvision's data sets have them.
    """
    if all(label is None for label in values):
        return replace(samples, label_problem="holds no labels")
    if any(isinstance(label, list | tuple) for label in values):
        read = label_lists([label if isinstance(label, list | tuple) else None for label in values], classes)
        if isinstance(read, str):
            return _or_numbers(samples, values, read)
        return replace(samples, labels=read[0], label_names=read[1])
    if all(label is None or isinstance(label, str) for label in values):
        labels, names = label_words(values)
        return replace(samples, labels=labels, label_names=names)
    if all(label is None or isinstance(label, bool | np.bool_) for label in values):
        classes, values = TRUTH, [None if label is None else int(label) for label in values]
    try:
        numbers = [MISSING if label is None else operator.index(label) for label in values]
    except TypeError:
        kinds = sorted({type(label).__name__ for label in values})
        return _or_numbers(samples, values, f"its labels are {', '.join(kinds)}, not whole numbers or class names")
    numbered = np.array(numbers, dtype=np.int64)
    return replace(samples, labels=numbered, label_names=composed_all(classes or None))


def _or_numbers(samples: Samples, values: Sequence[Any], problem: str) -> Samples:
    """Returns the samples with numbers as labels, if these are some; to who needs classes, the problem stays."""
    numbers = as_numbers(values)
    return replace(samples, labels=None if isinstance(numbers, str) else numbers, label_problem=problem)


@dataclass(frozen=True, eq=False)
class _Values:
    """Values of Python, checked when they are read; with `paired` each is (input, label)."""

    values: Indexed
    paired: bool
    request: _Request

    def input(self, place: int) -> Any:
        where = f"{self.request.data.name}: sample {place}"
        value = self._pair(place)[0] if self.paired else _read(self.values, place, self.request.data.name)
        return read_image(value, where) if self.request.modality == "image" else _text(value, where)

    def label(self, place: int) -> Any:
        try:
            return self._pair(place)[1]
        except DataError:
            if not (self.request.skip_bad or self.request.keep_bad):
                raise
            return None  # of a sample that is left out

    def _pair(self, place: int) -> Any:
        value = _read(self.values, place, self.request.data.name)
        if not _is_pair(value):
            raise DataError(
                f"{self.request.data.name}: sample {place} is not an (input, label) pair, but the first one is: give "
                "pairs throughout"
            )
        return value


def _read(values: Indexed, place: int, where: str) -> Any:
    try:
        return values[place]
    except Exception as error:  # a data set of the user's own may raise anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{where}: sample {place}: cannot be read: {reason}") from error


def _is_pair(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def _text(value: Any, where: str) -> Text:
    parts = value if isinstance(value, list | tuple) else (value,)
    if len(parts) > 2 or not all(isinstance(part, str) for part in parts):
        kind = type(value).__name__
        raise DataError(f"{where} is {kind}: give texts or pairs of texts, alone or as (text, label)")
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])


def open_pairs(data: DataLike, reading: Reading = EVERYTHING) -> Samples:
    """Opens the image-text pairs of a data set.

    Args:
        data: a source (an image folder with captions in its metadata, a table, webdataset shards), or pairs in a
            list or a torch `Dataset`.

    Raises:
        DataError: a column of images or of texts is missing, or empty somewhere.
    """
    import datasets
    from torch.utils.data import StackDataset

    # One source is read twice; pairs in memory are (image, text), of which each side is.
    spec = parse_data(data)
    images = open_samples(spec, "image", replace(reading, text_column=None))
    if isinstance(spec, DataValues) and not isinstance(spec.values, datasets.Dataset):
        spec = replace(spec, values=Lazy(range(len(spec.values)), partial(_second, spec.values)))
    texts = open_samples(spec, "text", replace(reading, image_column=None))
    # Both halves decide whether two pairs are the same.
    of_images = images.content_hashes()
    hashes = of_images ^ texts.content_hashes()
    both: Any = StackDataset(images.inputs, texts.inputs)  # type: ignore[arg-type]
    inputs = Lazy(range(len(images)), both.__getitem__)
    return replace(images, inputs=inputs, labels=None, label_names=None, hashes=hashes, image_hashes=of_images)


def _second(pairs: Indexed, place: int) -> Any:
    return pairs[place][1]
