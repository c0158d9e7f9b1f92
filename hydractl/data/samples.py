"""A data set as a model meets it: inputs, labels, names, a hash of each sample, and notes on what is odd about it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import getitem
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hydractl.data.hashes import Hashes, hash_inputs, sketch
from hydractl.data.images import EncodedImages, Lazy
from hydractl.data.reading import Modality
from hydractl.errors import DataError, OptionError, UnreadableError
from hydractl.text import composed, counted

if TYPE_CHECKING:
    import datasets

Labels = NDArray[Any]  # int64 of classes, float64 of numbers


@dataclass(frozen=True, eq=False)
class Samples:
    """N samples of one data set.

    `inputs` are PIL images (decoded when read), texts or pairs of texts. `labels` `[N]` are indices into `label_names`,
    or `[N,K]` 0 or 1 for each of several names or numbers, or None with the reason in `label_problem`. Where they are
    `tagged`, inputs are `Words` and labels `[N,W]`, one for each word and -100 beyond the last. `notes` are shown to
    the user. `table` holds the rows that they are from; None for values of Python. An evaluation recognises them later
    by `image_hashes`, if pairs have some, else by `hashes`.
    """

    name: str
    modality: Modality
    inputs: Sequence[Any]
    labels: Labels | None = None
    label_names: tuple[str, ...] | None = None
    label_problem: str | None = None
    label_column: str | None = None
    columns: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    hashes: Hashes | None = None
    image_hashes: Hashes | None = None
    table: datasets.Dataset | None = None
    tagged: bool = False

    def __len__(self) -> int:
        return len(self.inputs)

    def called(self, place: int) -> str:
        """Returns the name of a sample in messages: a text, the file of an image, or its place in the data."""
        if self.modality == "image":
            return _file_of(self.inputs, place) or f"{self.name} {place}"
        text = self.inputs[place]
        return text if isinstance(text, str) else " | ".join(text)

    def names(self, places: range) -> list[str]:
        """Returns the names of samples that follow one another; see `called`."""
        if isinstance(self.inputs, EncodedImages):
            files = self.inputs.files(places)
            return [file or f"{self.name} {place}" for place, file in zip(places, files, strict=True)]
        return [self.called(place) for place in places]

    def content_hashes(self) -> Hashes:
        """Returns 64 bits for each sample, `[N]`, from decoded pixels or words; equal in any file format.

        Raises:
            DataError: an image that cannot be read.
        """
        if self.hashes is not None:
            return self.hashes
        hashes, bad = hash_inputs(self.inputs)
        if bad:
            first = next(iter(bad.values()))
            raise UnreadableError(first if len(bad) == 1 else f"{first} (and {len(bad) - 1} more)")
        object.__setattr__(self, "hashes", hashes)  # a memo: it follows from fields that are frozen
        return hashes

    def sketch(self) -> dict[str, Any]:
        """Returns what a file remembers of the samples, so that an evaluation can refuse them; see `sketch`."""
        return sketch(self.content_hashes() if self.image_hashes is None else self.image_hashes)

    def identity(self) -> str:
        """Returns SHA-256 over content hashes and labels, in order."""
        digest = hashlib.sha256(self.content_hashes().astype("<u8").tobytes())
        if self.labels is not None:
            digest.update(label_bytes(self.labels))
        return digest.hexdigest()

    def subset(self, positions: NDArray[np.int64]) -> Samples:
        """Returns the samples at some positions, in that order."""
        return replace(
            self,
            inputs=Lazy(positions, partial(getitem, self.inputs), self.inputs),
            labels=None if self.labels is None else self.labels[positions],
            hashes=None if self.hashes is None else self.hashes[positions],
            image_hashes=None if self.image_hashes is None else self.image_hashes[positions],
            table=None if self.table is None else self.table.select(positions),
        )

    def column(self, name: str, option: str) -> list[Any]:
        """Returns a column of the table, `[N]` plain values, those of a text file as they are written there.

        Numbers that stand for classes are given by their names.

        Args:
            option: the option that names the column, for messages.

        Raises:
            OptionError: no such column, or one of images.
        """
        table, name = self.table, composed(name)
        if table is None or name not in table.column_names:
            there = "no columns" if table is None else f"the columns {', '.join(table.column_names)}"
            raise OptionError(f"`{option}` {name}: {self.name} has {there}: name a column of a table")
        kind = table.features[name]
        if type(kind).__name__ in ("Image", "Audio", "Video"):
            raise OptionError(f"`{option}` {name}: holds {type(kind).__name__}: name a column of texts or numbers")
        values = table.select_columns([name]).with_format("arrow")[:][name].to_pylist()
        decoded = [kind.int2str(value) if value is not None and hasattr(kind, "int2str") else value for value in values]
        return [_plain(value) for value in decoded]

    def draw(self, count: int, seed: int) -> Samples:
        """Returns `count` of the samples, drawn at random and kept in order; the same ones for the same seed.

        Raises:
            DataError: the data set has fewer samples.
        """
        if count > len(self):
            raise DataError(f"{self.name}: has {len(self)} samples, {count} are needed: give more data")
        return self.subset(np.sort(np.random.default_rng(seed).choice(len(self), count, replace=False)))


def _plain(value: Any) -> str | int | float | None:
    """Returns a value of a column as a cell holds it: lists and objects as JSON, dates and others as Python prints."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value if isinstance(value, str | int | float | None) else str(value)


def _file_of(inputs: Sequence[Any], place: int) -> str | None:
    if isinstance(inputs, Lazy) and inputs.source is not None:
        return _file_of(inputs.source, int(inputs.places[place]))
    return inputs.files(range(place, place + 1))[0] if isinstance(inputs, EncodedImages) else None


def label_bytes(labels: Labels) -> bytes:
    """Returns the bytes of labels, the same on every machine."""
    return labels.astype(f"<{labels.dtype.kind}8").tobytes()


def join(sets: Sequence[Samples]) -> Samples:
    """Returns the samples of one or more data sets of one modality, one set after the other, without labels."""
    from torch.utils.data import ConcatDataset

    joined: Any = ConcatDataset([samples.inputs for samples in sets])  # type: ignore[misc]
    inputs = Lazy(range(len(joined)), joined.__getitem__)
    hashes = [samples.hashes for samples in sets if samples.hashes is not None]
    joined_hashes = np.concatenate(hashes) if len(hashes) == len(sets) else None
    return Samples(" and ".join(samples.name for samples in sets), sets[0].modality, inputs, hashes=joined_hashes)


def spread_places(size: int, limit: int | None) -> Sequence[int]:
    """Returns the places of at most `limit` samples, evenly over `size`.

    Data are often sorted by class, so that the first samples would be of one class only.
    """
    return range(size) if limit is None or limit >= size else [i * size // limit for i in range(limit)]


#: What follows where something is fitted to samples without some classes.
UNFITTED = "inputs of these classes may look odd to a fit without them: add samples of each"


def missing_classes(samples: Samples, remedy: str = UNFITTED) -> str | None:
    """Returns a sentence that names the classes without a sample; None if there are none.

    Args:
        samples: labelled with the classes of a model, see `match_labels`.
        remedy: what follows, and what to do.
    """
    labels, names = samples.labels, samples.label_names or ()
    if labels is None or labels.dtype.kind == "f":
        return None
    several = labels.ndim == 2 and not samples.tagged
    present = set(np.flatnonzero(labels.any(axis=0)) if several else np.unique(labels))
    missing = [name for place, name in enumerate(names) if place not in present]
    if not missing:
        return None
    return f"{samples.name}: holds no sample of {counted(missing)} (of {len(names)} classes): {remedy}"


def few_for_chance(samples: Samples, where: str) -> tuple[str, ...]:
    """Returns a note if the samples have far fewer classes than a random draw, as a slice of sorted data has.

    Far fewer means four standard deviations below the expectation for classes of equal size.
    """
    if samples.labels is None or not samples.label_names or samples.labels.ndim > 1:
        return ()
    labels = samples.labels[samples.labels >= 0]
    size, of, have = len(labels), len(samples.label_names), np.unique(labels).size
    missed = (1 - 1 / of) ** size
    variance = of * missed * (1 - missed) + of * (of - 1) * ((1 - 2 / of) ** size - missed**2)
    if have >= of * (1 - missed) - 4 * max(variance, 0) ** 0.5:
        return ()
    remedy = ": if the data are sorted by class, take a part (%1/10), not a slice" if "[" in where else ""
    return (f"{where}: the {size} samples taken hold {have} of {of} classes{remedy}",)


LOOKED_AT = 200  # images of each set
ALONE = 0.95  # AUROC from which a measure alone tells sets apart


class FormMeasure(NamedTuple):
    """One property of an image's form, and the words for it."""

    name: str
    of: Callable[[Image.Image], float]
    unit: str
    remedy: str


def _coarseness(image: Image.Image) -> float:
    """Returns the mean step of a JPEG's first quantization table, 0 for images without one."""
    tables = getattr(image, "quantization", None)
    return float(np.mean(next(iter(tables.values())))) if tables else 0.0


MEASURES = (
    FormMeasure("size", lambda image: max(image.size), "pixels", "resize them alike"),
    FormMeasure("compression", _coarseness, "mean JPEG step, 0 without", "save them alike"),
)


def form_notes(id_data: Samples, ood_data: Iterable[Samples]) -> Iterator[str]:
    """Yields a note for each OOD set that a measure of form alone tells from the ID images."""
    if id_data.modality != "image":
        return
    usual = _measured(id_data)
    for samples in ood_data:
        for measure, id_values, other in zip(MEASURES, usual, _measured(samples), strict=True):
            if len(id_values) and len(other) and _separation(id_values, other) >= ALONE:
                yield (
                    f"{samples.name}: the {measure.name} of its images alone ({np.median(other):.3g} against "
                    f"{np.median(id_values):.3g} of ID images; {measure.unit}) gives them away, and early layers see "
                    f"it: {measure.remedy} to measure content"
                )


def form_of(samples: Samples) -> Iterator[str]:
    """Yields a note where the images of a set differ much in form, as those of two sources do."""
    if samples.modality == "image":
        sizes, steps = _measured(samples)
        if sizes.max(initial=0) >= 2 * sizes.min(initial=np.inf):
            yield f"images are {sizes.min():g} to {sizes.max():g} pixels large: a network sees the small ones blurred"
        if 0 < (steps > 0).sum() < len(steps):
            yield f"{(steps > 0).sum()} of {len(steps)} images are compressed as JPEG, the others are not"


def _separation(usual: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Returns the AUROC of a measure, in the direction in which it is larger."""
    larger = float((other[:, None] > usual).mean() + (other[:, None] == usual).mean() / 2)
    return max(larger, 1 - larger)


def _measured(samples: Samples) -> list[NDArray[np.float64]]:
    """Returns each measure of some of the images, of those that can be read."""
    rows: list[list[float]] = []
    for place in spread_places(len(samples), LOOKED_AT):
        try:
            image = samples.inputs[place]
        except DataError:
            continue  # whoever reads all of them says which
        rows.append([measure.of(image) for measure in MEASURES])
    return list(np.array(rows, dtype=np.float64).reshape(-1, len(MEASURES)).T)
