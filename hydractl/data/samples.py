"""A data set as a model meets it: inputs, labels, names, and a hash of each sample."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hydractl.data.hashes import Hashes, hash_inputs
from hydractl.data.images import EncodedImages, Lazy
from hydractl.data.reading import Modality
from hydractl.errors import DataError

if TYPE_CHECKING:
    from hydractl.data.table_columns import ChosenColumns

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Samples:
    """N samples of one data set.

    `inputs` are PIL images (decoded when read), texts or pairs of texts. `labels` `[N]` count in `label_names`; None
    where there are none, and `label_problem` says why. `notes` are for the user's eyes; `skipped` says what is wrong
    with each sample left out.
    """

    name: str
    modality: Modality
    inputs: Sequence[Any]
    labels: Labels | None = None
    label_names: tuple[str, ...] | None = None
    label_problem: str | None = None
    chosen_columns: ChosenColumns | None = None
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    hashes: Hashes | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def called(self, place: int) -> str:
        """Returns what messages call a sample: a text itself, the file of an image, else its place in the data."""
        if self.modality == "image":
            return _file_of(self.inputs, place) or f"{self.name} {place}"
        text = self.inputs[place]
        return text if isinstance(text, str) else " | ".join(text)

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
            raise DataError(first if len(bad) == 1 else f"{first} (and {len(bad) - 1} more)")
        object.__setattr__(self, "hashes", hashes)  # a memo: it follows from fields that are frozen
        return hashes

    def identity(self) -> str:
        """Returns SHA-256 over content hashes and labels in order: of one identity, of one effect on a model."""
        digest = hashlib.sha256(self.content_hashes().astype("<u8").tobytes())
        if self.labels is not None:
            digest.update(self.labels.astype("<i8").tobytes())
        return digest.hexdigest()

    def subset(self, positions: NDArray[np.int64]) -> Samples:
        """Returns the samples at some positions, in that order."""
        return replace(
            self,
            inputs=Picked(self.inputs, positions),
            labels=None if self.labels is None else self.labels[positions],
            hashes=None if self.hashes is None else self.hashes[positions],
        )

    def draw(self, count: int, seed: int) -> Samples:
        """Returns so many of the samples, drawn at random and in their order; the same ones for the same seed.

        Raises:
            DataError: there are not so many.
        """
        if count > len(self):
            raise DataError(f"{self.name}: {count} samples are asked for, there are {len(self)}")
        return self.subset(np.sort(np.random.default_rng(seed).choice(len(self), count, replace=False)))


@dataclass(frozen=True)
class Picked(Sequence[Any]):
    """Some of the inputs of a data set, read when they are used."""

    inputs: Sequence[Any]
    positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Picked(self.inputs, self.positions[index])
        return self.inputs[int(self.positions[index])]


def _file_of(inputs: Sequence[Any], place: int) -> str | None:
    if isinstance(inputs, Picked):
        return _file_of(inputs.inputs, int(inputs.positions[place]))
    return inputs.file(place) if isinstance(inputs, EncodedImages) else None


def _chained(parts: Sequence[Sequence[Any]], ends: Sequence[int], place: int) -> Any:
    part = bisect_right(ends, place)
    return parts[part][place - (ends[part - 1] if part else 0)]


def join(sets: Sequence[Samples]) -> Samples:
    """Returns the samples of one or more data sets of one kind, one set after the other, without their labels."""
    if sets[0].modality == "text":  # what looks into texts looks into lists
        inputs: Sequence[Any] = list(chain.from_iterable(samples.inputs for samples in sets))
    else:
        ends = list(accumulate(map(len, sets)))
        inputs = Lazy(range(ends[-1]), partial(_chained, [samples.inputs for samples in sets], ends))
    hashes = [samples.hashes for samples in sets if samples.hashes is not None]
    known = np.concatenate(hashes) if len(hashes) == len(sets) else None
    return Samples(" and ".join(samples.name for samples in sets), sets[0].modality, inputs, hashes=known)


def spread(size: int, limit: int | None) -> Sequence[int]:
    """Returns the places of at most `limit` samples, evenly over `size`.

    Data often comes sorted by class: its first samples would be of one class only.
    """
    return range(size) if limit is None or limit >= size else [i * size // limit for i in range(limit)]


def fewer_classes(taken: Labels, all_labels: Labels, where: str) -> tuple[str, ...]:
    """Returns a note where the samples taken are of fewer classes than all are."""
    have, of = np.unique(taken).size, np.unique(all_labels).size
    return () if have == of else (_classes_held(where, len(taken), have, of),)


def few_for_chance(samples: Samples, where: str) -> tuple[str, ...]:
    """Returns a note where the samples are of fewer of their classes than so many drawn at random would be.

    That is what a slice gives of data that lie in order of class. Fewer means four standard deviations below what is
    expected of classes that are alike in size.
    """
    if samples.labels is None or not samples.label_names:
        return ()
    labels = samples.labels[samples.labels >= 0]
    size, of, have = len(labels), len(samples.label_names), np.unique(labels).size
    missed = (1 - 1 / of) ** size
    variance = of * missed * (1 - missed) + of * (of - 1) * ((1 - 2 / of) ** size - missed**2)
    if have >= of * (1 - missed) - 4 * max(variance, 0) ** 0.5:
        return ()
    return (_classes_held(where, size, have, of),)


def _classes_held(where: str, size: int, have: int, of: int) -> str:
    return f"{where}: the {size} samples taken hold {have} of {of} classes"


def find_bad(inputs: Sequence[Any], where: str, first: int = 0) -> tuple[Hashes, dict[int, str]]:
    """Returns the hash of each input, `[N]`, and the position of each bad image or empty text with what is wrong.

    Args:
        where: the data set, for messages.
        first: the place of the first input in that data set.
    """
    hashes, bad = hash_inputs(inputs)
    return hashes, bad | {at: f"{where}: sample {first + at}: empty text" for at in _empty_texts(inputs)}


def refuse_empty_texts(inputs: Sequence[Any], where: str, first: int = 0) -> None:
    """Raises DataError where a text, or a part of a pair, is blank; see `find_bad`."""
    if empty := _empty_texts(inputs):
        raise DataError(
            f"{where}: {len(empty)} of {len(inputs)} texts are empty, the first is sample {first + empty[0]}: "
            "remove them"
        )


def _empty_texts(inputs: Sequence[Any]) -> list[int]:
    if not isinstance(inputs, list):  # texts are lists, images are read when they are used
        return []
    texts = ((text,) if isinstance(text, str) else text for text in inputs)
    return [at for at, text in enumerate(texts) if not all(part.strip() for part in text)]
