"""The data that a run learns from, and the order in which it meets them: every draw follows from a seed and a place.

The order is one shuffled epoch after the other, without end. What a step computes depends on nothing but the seed
and the step's number, so a run can stop anywhere and go on, on any number of devices.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hydractl.data.number_labels import with_numbers
from hydractl.data.open import open_pairs, open_samples
from hydractl.data.reading import EVERYTHING, DataLike, DataSetsLike, Reading, parse_data_sets
from hydractl.data.samples import Samples, join, label_bytes
from hydractl.errors import DataError, OptionError
from hydractl.training.request import Seeds, TrainingSources

REMEMBERED = 20_000  # samples whose hashes a file holds, at most
SPLIT_SEED = 0  # not the run's, so that members of one ensemble are validated on the same samples
Kind = Literal["image", "text", "pair"]
Match = Literal["name", "index"]
Pair = tuple[Image.Image, Any]
# Independent draws from one seed: the numbers only have to differ. 4 is of draws that are gone.
ORDER, AUGMENTATION, DROPOUT, NEW_CLASSIFIER, OUTLIERS = 0, 1, 2, 3, 5


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Labelled samples to train on, and some to validate with."""

    train: Samples
    validation: Samples | None = None
    outliers: Samples | None = None  # samples of no class, on which the network learns to be unsure
    outlier_sets: tuple[str, ...] = ()  # the names of the sets that these are from

    @property
    def notes(self) -> Iterator[str]:
        """Notes for the user on how the samples were read."""
        for samples in (self.train, self.validation):
            if samples is not None:
                yield from samples.notes


def repeated(data: TrainingData) -> str | None:
    """Returns a warning that counts the validation samples that are trained on too; None if there are none."""
    if data.validation is None:
        return None
    both = _shared(data.validation, data.train)
    return (
        f"{both} of {len(data.validation)} validation samples are training samples of {data.train.name}: name other "
        "`val_data`, as the best step is chosen by what is memorised"
        if both
        else None
    )


def open_training_data(
    kind: Kind, data: DataLike, sources: TrainingSources, reading: Reading = EVERYTHING
) -> TrainingData:
    """Opens the training data a user names, and validation data: a source of its own, or samples held out of training.

    Args:
        kind: of the samples; "pair" for pairs of an image and a text.
        sources: what there is beside the training data; labels of outliers are ignored.

    Raises:
        DataError: see `open_samples`; or an outlier is trained on with a label.
        OptionError: both kinds of validation data, nothing left to train on, or outliers of pairs.
    """
    val_split = sources.val_split
    if sources.val_data is not None and val_split is not None:
        raise OptionError("`val_data` and `val_split` both name validation data: leave one out")
    opened = open_pairs if kind == "pair" else partial(open_samples, modality=kind)
    held = None if sources.val_data is None else opened(sources.val_data, reading=reading)
    beside = _open_outliers(sources.outlier_data, kind, reading.limit) if sources.outlier_data else None
    samples = opened(data, reading=reading)
    if val_split is not None:
        samples, held = split_off(samples, val_split)
    if beside is not None:
        _refuse_outliers(samples, beside)
    names = (spec.name for spec in parse_data_sets(sources.outlier_data, "outliers")) if beside is not None else ()
    return TrainingData(samples, held, beside, outlier_sets=tuple(dict.fromkeys(names)))


def _open_outliers(outliers: DataSetsLike, kind: Kind, limit: int | None) -> Samples:
    if kind == "pair":
        raise OptionError("`outlier_data`: a contrastive loss has no classes to be unsure of: leave it out")
    # The columns that the user names are those of the training data.
    return join([open_samples(spec, kind, Reading(limit=limit)) for spec in parse_data_sets(outliers, "outliers")])


def _refuse_outliers(labelled: Samples, outliers: Samples) -> None:
    """Raises DataError if a labelled sample is an outlier too."""
    if both := _shared(outliers, labelled):
        raise DataError(
            f"{outliers.name}: {both} of {len(outliers)} outliers are training samples of {labelled.name}, which have "
            "a class: name other `outlier_data`"
        )


def _shared(samples: Samples, others: Samples) -> int:
    """Returns how many samples are among others too; of many, some are compared."""
    return int(np.isin(_drawn(samples).content_hashes(), _drawn(others).content_hashes()).sum())


def split_off(samples: Samples, count: int) -> tuple[Samples, Samples]:
    """Splits `count` samples off, drawn evenly, the same ones whatever the seed of a run; returns the rest and them."""
    if count >= len(samples):
        raise OptionError(
            f"`val_split` {count}: {samples.name} has {len(samples)} samples, and training needs some of them: hold "
            "out fewer"
        )
    order = np.random.default_rng(SPLIT_SEED).permutation(len(samples))
    return samples.subset(np.sort(order[count:])), samples.subset(np.sort(order[:count]))


def remembered_training(data: Samples) -> dict[str, Any]:
    """Returns a sketch of the samples' hashes (of some samples, if there are many) for an evaluation to compare."""
    return {**_drawn(data).sketch(), "samples": len(data), "complete": len(data) <= REMEMBERED}


def _drawn(data: Samples) -> Samples:
    """Returns all samples, or always the same REMEMBERED of a large set: hashing millions of images takes too long."""
    if len(data) <= REMEMBERED:
        return data
    return data.subset(np.sort(np.random.default_rng(0).permutation(len(data))[:REMEMBERED]))


def digest(data: Samples) -> str:
    """Returns a fingerprint of a training set: size, samples in order, labels."""
    content = f"{len(data)} {data.label_names} {_drawn(data).content_hashes().tolist()}"
    labelled = data if data.labels is not None else with_numbers(data)
    labels = b"" if labelled.labels is None else label_bytes(labelled.labels)
    return hashlib.sha256(content.encode() + labels).hexdigest()


def outlier_seeds(seeds: Seeds) -> Seeds:
    """Returns the seeds of the samples beside the labelled ones, unrelated to theirs."""
    return replace(
        seeds, order_seed=derived_seed(seeds.order, OUTLIERS), noise_seed=derived_seed(seeds.noise, OUTLIERS)
    )


def derived_seed(seed: int, purpose: int, *place: int) -> int:
    """Returns a seed for one draw, unrelated to that of any other purpose or place."""
    return int(np.random.SeedSequence([seed, purpose, *place]).generate_state(1)[0])


@dataclass(frozen=True, eq=False)
class Grouping:
    """Puts samples of similar length into one step, so that less of a step is padding."""

    lengths: NDArray[np.int64]  # `[N]`, of every sample, in any unit
    batch: int  # samples of a step
    window: int  # steps whose samples are sorted together; the order beyond a window is random

    def apply(self, order: NDArray[np.int64], draws: np.random.Generator) -> NDArray[np.int64]:
        """Returns the order with similar lengths side by side within each window; its steps follow at random."""
        parts: list[NDArray[np.int64]] = []
        for start in range(0, len(order), self.batch * self.window):
            part = order[start : start + self.batch * self.window]
            part = part[self.lengths[part].argsort(kind="stable")]
            full = len(part) // self.batch * self.batch
            parts += [draws.permutation(part[:full].reshape(-1, self.batch)).ravel(), part[full:]]
        return np.concatenate(parts)


@lru_cache(maxsize=2)  # a batch may lie across two epochs
def epoch_order(seed: int, epoch: int, samples: int, grouping: Grouping | None = None) -> NDArray[np.int64]:
    """Returns the order of one epoch, `[N]`."""
    draws = np.random.default_rng([seed, ORDER, epoch])
    order = draws.permutation(samples)
    return grouping.apply(order, draws) if grouping else order


def sample_at(seed: int, place: int, samples: int, grouping: Grouping | None = None) -> int:
    """Returns the position in the data set of the sample at a place of the order."""
    return int(epoch_order(seed, place // samples, samples, grouping)[place % samples])


@dataclass(frozen=True)
class SplitOrder:
    """Deals the samples of a step out to `world_size` processes in `passes` forward passes each."""

    batch: int
    world_size: int
    passes: int

    def places_of(self, number: int, rank: int) -> range:
        """Returns the places in the order that a forward pass of one process takes.

        Args:
            number: of the forward pass, counted from the first step on.
        """
        step, forward = divmod(number, self.passes)
        parts = self.passes * self.world_size
        part = forward * self.world_size + rank
        start, end = (step * self.batch + self.batch * i // parts for i in (part, part + 1))
        return range(start, end)
