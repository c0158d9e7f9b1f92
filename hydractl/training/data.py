"""The data a run trains on and validates with: opened, divided, labelled in the model's numbering, remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data import seen
from hydractl.data.columns import Columns
from hydractl.data.hashes import Hashes
from hydractl.data.joined import join
from hydractl.data.labels import match_labels
from hydractl.data.like import DataLike, DataSetsLike
from hydractl.data.open import notes_of, open_samples, open_stream
from hydractl.data.samples import Samples
from hydractl.data.spec import parse_data_sets
from hydractl.data.streams import SampleStream
from hydractl.errors import DataError, OptionError
from hydractl.training.classifier import with_new_classifier
from hydractl.training.pairs import PairStream, open_pairs, stream_pairs
from hydractl.training.recipe import Recipe

REMEMBERED = 20_000  # of how many samples a file says the hashes, at most
SPLIT_SEED = 0  # not the run's, so that members of one ensemble are validated on the same samples


Kind = Literal["image", "text", "pair"]
Match = Literal["name", "index"]
Streamed = SampleStream | PairStream


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Labelled samples to train on, at hand or read as they come, and some to validate with.

    Attributes:
        outliers: of no class, to be unsure of.
    """

    train: Samples | Streamed
    validation: Samples | None = None
    outliers: Samples | None = None

    @property
    def notes(self) -> Iterator[str]:
        """What a user should know of how the samples were read."""
        for samples in (self.train, self.validation):
            if isinstance(samples, Samples | SampleStream):
                yield from notes_of(samples)

    @property
    def size(self) -> int | None:
        """How many samples there are to train on; None where a stream does not say."""
        return self.train.length if isinstance(self.train, Streamed) else len(self.train)


def open_training_data(
    kind: Kind,
    train: DataLike,
    validation: DataLike | None,
    val_split: int | None,
    columns: Columns | None = None,
    limit: int | None = None,
    streaming: bool = False,
    outliers: DataSetsLike | None = None,
) -> TrainingData:
    """The training data a user names, and validation data: a source of its own, or samples held out of training.

    Args:
        kind: of the samples; "pair" for pairs of an image and a text.
        streaming: whether training data is read as it comes and kept nowhere.
        outliers: one set or several; whatever labels they have say nothing here.

    Raises:
        DataError: see `open_samples`; outliers that are trained on with a label.
        OptionError: both kinds of validation data, nothing left to train on, samples held out of a stream, or
            outliers of pairs.
    """
    if validation is not None and val_split is not None:
        raise OptionError("`val_data` and `val_split` both name validation data: leave one out")
    if streaming and val_split is not None:
        raise OptionError(
            f"`val_split` {val_split}: a stream is not divided: name two slices, as in "
            f"`data` SOURCE:train[{val_split}:] `val_data` SOURCE:train[:{val_split}]"
        )
    held = None if validation is None else _open(validation, kind, columns, limit)
    beside = None if outliers is None else _open_outliers(outliers, kind, limit)
    samples = _open_stream(train, kind, columns, limit) if streaming else _open(train, kind, columns, limit)
    if val_split is not None:
        assert isinstance(samples, Samples)
        samples, held = split_off(samples, val_split)
    if beside is not None and not isinstance(samples, PairStream):
        check = partial(_without_outliers, outliers=beside, known=_drawn(beside).content_hashes())
        # A stream is looked through as it is read, so that a run may end in the midst of it.
        samples = samples.through(check) if isinstance(samples, SampleStream) else check(samples)
    return TrainingData(samples, held, beside)


def _open_outliers(outliers: DataSetsLike, kind: Kind, limit: int | None) -> Samples:
    if kind == "pair":
        raise OptionError("`outlier_data`: a contrastive loss knows no classes to be unsure of")
    # Their columns are found by themselves: they come from elsewhere.
    return join([open_samples(one, kind, limit=limit) for one in parse_data_sets(outliers, "outliers")])


def _without_outliers(labelled: Samples, outliers: Samples, known: Hashes) -> Samples:
    """The labelled samples; raises DataError where one of them is an outlier, `known` by its hash, as well."""
    both = int(np.isin(known, _drawn(labelled).content_hashes()).sum())
    if both:
        raise DataError(
            f"{outliers.name}: {both} of {len(outliers)} outliers are training samples of {labelled.name}, which have "
            "a class: name other `outlier_data`"
        )
    return labelled


def _open(data: DataLike, kind: Kind, columns: Columns | None, limit: int | None) -> Samples:
    if kind == "pair":
        return open_pairs(data, columns, limit)
    return open_samples(data, kind, columns=columns, limit=limit)


def _open_stream(data: DataLike, kind: Kind, columns: Columns | None, limit: int | None) -> Samples | Streamed:
    if kind == "pair":
        return stream_pairs(data, columns, limit)
    return open_stream(data, kind, columns=columns, limit=limit)


def split_off(samples: Samples, count: int) -> tuple[Samples, Samples]:
    """The samples without `count` of them drawn evenly, and those: the same ones whatever the seed of a run.

    Raises:
        OptionError: nothing would be left to train on.
    """
    if count >= len(samples):
        raise OptionError(
            f"`val_split` {count}: {samples.name} has {len(samples)} samples, some must be left to train on"
        )
    order = np.random.default_rng(SPLIT_SEED).permutation(len(samples))
    return samples.subset(np.sort(order[count:])), samples.subset(np.sort(order[:count]))


def fit_labels(
    checkpoint: Checkpoint, data: TrainingData, recipe: Recipe, match: Match, seed: int, taught: bool = False
) -> tuple[Checkpoint, TrainingData]:
    """The checkpoint, with a new classifier where the recipe says so, and the data with labels in its numbering.

    Args:
        taught: whether teachers say what to learn; labels of the training data are not read where that is all.

    Raises:
        DataError: labels are missing or do not match; says how a new classifier is asked for.
    """
    if recipe.loss == "contrastive":
        if checkpoint.spec.task != "zero-shot":
            raise OptionError(f"{checkpoint.name}: is no zero-shot model: a contrastive loss needs two towers")
        return checkpoint, data
    if recipe.new_classifier != "no":
        labels = _label_names(data.train)
        checkpoint = with_new_classifier(checkpoint, labels, recipe.new_classifier, seed)
    if checkpoint.labels is None:
        raise OptionError(f"{checkpoint.name}: is a zero-shot model: fine-tune it with `recipe` clip-lit")
    unread = taught and recipe.teacher_weight == 1
    train = _unlabelled(data.train, checkpoint.labels) if unread else _matched(data.train, checkpoint.labels, match)
    validation = None if data.validation is None else match_labels(data.validation, checkpoint.labels, match)
    return checkpoint, TrainingData(train, validation, data.outliers)


def _matched(data: Samples | Streamed, labels: tuple[str, ...], match: Match) -> Samples | Streamed:
    if isinstance(data, PairStream):
        return data
    step = partial(_match_or_advise, labels=labels, match=match)
    return data.through(step) if isinstance(data, SampleStream) else step(data)


def _unlabelled(data: Samples | Streamed, labels: tuple[str, ...]) -> Samples | Streamed:
    """The samples with some class or other, which nothing reads."""
    if isinstance(data, PairStream):
        return data
    step = partial(_with_some_class, labels=labels)
    return data.through(step) if isinstance(data, SampleStream) else step(data)


def _with_some_class(samples: Samples, labels: tuple[str, ...]) -> Samples:
    return replace(samples, labels=np.zeros(len(samples), dtype=np.int64), label_names=labels)


def _match_or_advise(samples: Samples, labels: tuple[str, ...], match: Match) -> Samples:
    try:
        return match_labels(samples, labels, match)
    except DataError as error:
        raise DataError(f"{error}; or train a new classifier with `new_classifier` zeros") from error


def remembered(data: Samples | Streamed) -> dict[str, Any]:
    """A sketch of the samples' hashes, of a large set of some of them, by which an evaluation knows them again.

    Of a stream it says name and size alone, since hashes would take reading it once more.
    """
    if isinstance(data, Streamed):
        return {"stream": data.name, "samples": data.length}
    return {**seen.sketch(_drawn(data).content_hashes()), "samples": len(data), "complete": len(data) <= REMEMBERED}


def _drawn(data: Samples) -> Samples:
    """All samples, or of a large set always the same REMEMBERED: no run waits for millions of images to be hashed."""
    if len(data) <= REMEMBERED:
        return data
    return data.subset(np.sort(np.random.default_rng(0).permutation(len(data))[:REMEMBERED]))


def _label_names(data: Samples | Streamed) -> tuple[str, ...]:
    if isinstance(data, PairStream):
        raise DataError(f"{data.name}: pairs of images and texts have no labels")
    if isinstance(data, SampleStream):
        if data.label_names is None:
            raise DataError(f"{data.name}: does not declare its classes, and a stream is not searched for them")
        return data.label_names
    if data.labels is None:
        raise DataError(f"{data.name}: {data.label_problem or 'holds no labels'}")
    return data.label_names or tuple(str(label) for label in range(int(data.labels.max()) + 1))


def digest(data: Samples | Streamed) -> str:
    """A fingerprint of a training set: size, samples in order (of a large set some), labels; of a stream its source."""
    if isinstance(data, Streamed):
        source = data.images if isinstance(data, PairStream) else data
        return f"stream of {source.asked} {source.length} {source.chosen_columns}"
    said = f"{len(data)} {data.label_names} {_drawn(data).content_hashes().tolist()}"
    labels = b"" if data.labels is None else data.labels.astype("<i8").tobytes()
    return hashlib.sha256(said.encode() + labels).hexdigest()
