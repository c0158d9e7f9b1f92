"""All that calibration fits to a network, stored beside its weights; the numbers of its OOD score are `ood.*`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tensors import DTYPES, TensorMap, float32_numbers
from hydractl.errors import CheckpointError
from hydractl.ood.ood_scores import OOD_SCORES
from hydractl.ood.score import PROFILE, QUANTILES
from hydractl.schema import Checked, Items, Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PREFIX = "ood."
MOST_QUANTILES = 1000


INTERVAL = 0.9  # the share of right numbers that intervals hold, unless another is asked for


@dataclass(frozen=True)
class Intervals:
    """The intervals around numbers, each fitted by itself: C of everything.

    The error of a number has the standard deviation `sqrt((scale * spread)^2 + floor^2)`, where the spread is that
    between members. `width` of these on each side hold the right number in the share `share` of samples.
    """

    share: Annotated[float, Checked(gt=0, lt=1)]
    scale: Items[Annotated[float, Checked(ge=0)]]
    floor: Items[Annotated[float, Checked(gt=0)]]
    width: Items[Annotated[float, Checked(ge=0)]]


@dataclass(frozen=True)
class PromisedSets:
    """Sets of classes that hold the right one of ID samples as often as promised."""

    coverage: Annotated[float, Checked(gt=0, lt=1)]
    samples: Annotated[int, Checked(ge=1)]  # how many it was fitted on
    # The probability from which a class is in the set: one for all, or `[C]`, each fitted on samples of its class.
    least: Items[Annotated[float, Checked(ge=0, le=1)]]


@dataclass(frozen=True)
class PromisedRecall:
    """Answers that hold the true labels, or offer the true spans, of ID samples as often as promised.

    The promise is of the mean, over samples that have a label or a span, of the share that is answered or offered. A
    span is offered where all of its words are, as words of its kind.
    """

    share: Annotated[float, Checked(gt=0, lt=1)]
    # How many samples with a label or span each of `least` was fitted on.
    samples: Items[Annotated[int, Checked(ge=1)]]
    # The probability from which a label is answered, or a word offered as part of a span: one for all, or `[C]`.
    least: Items[Annotated[float, Checked(ge=0, le=1)]]


@dataclass(frozen=True)
class Baseline:
    """The answers to labelled calibration samples, with which `monitor` compares those of a service."""

    samples: Annotated[int, Checked(ge=1)]
    accuracy: Annotated[float, Checked(ge=0, le=1)]
    confidence: Annotated[float, Checked(ge=0, le=1)]  # the mean MSP
    # The MSP that as many samples reach as are right; 1 at most.
    threshold: Annotated[float, Checked(ge=0, le=1)]
    # How many samples each class has; of several labels, how many are answered with each.
    labels: Items[Annotated[int, Checked(ge=0)]]
    # The share of samples that reach it, more than are right where MSPs tie; None for as many.
    above: Annotated[float, Checked(ge=0, le=1)] | None = None


@dataclass(frozen=True)
class OodFit:
    """Names the score that tells OOD and says what it was fitted on, and how sure an answer must be."""

    score: Annotated[str, Checked(min_length=1, max_length=100)]  # its name, a row of `OOD_SCORES`
    samples: Annotated[int, Checked(ge=1)]  # how many ID samples it was fitted on
    # The share of ID samples that should not be flagged, above 0 and up to 1.
    accept: Annotated[float, Checked(gt=0, le=1)]
    # The share of sure answers that should be right, below 1, or of each label answered; None if nobody asked.
    accuracy: Annotated[float, Checked(gt=0, lt=1)] | None = None
    # The MSP from which an answer is sure; None likewise, or if each class has its own.
    confidence: Annotated[float, Checked(ge=0, le=1)] | None = None
    # None without labels, and with classes that may change.
    baseline: Baseline | None = None
    # `[C]`, the MSP from which an answer of each class is sure; None unless it was asked for by class.
    confidences: Items[Annotated[float, Checked(ge=0, le=1)]] | None = None

    @property
    def least(self) -> tuple[float, ...]:
        """The confidences from which answers are sure, one for all or `[C]`; empty if none are called so."""
        return self.confidences or (() if self.confidence is None else (self.confidence,))

    def sure(self, msp: NDArray[Any], best: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Returns where answers are sure, `[N]`; None if nobody asked.

        Args:
            msp: `[N]`.
            best: `[N]`, the number of the class that is answered.
        """
        import numpy as np

        least = self.confidence if self.confidences is None else np.asarray(self.confidences, msp.dtype)[best]
        return None if least is None else np.asarray(msp >= least)

    def to_json(self) -> dict[str, Any]:
        """Returns what is known as plain JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class FittedOod:
    """A fitted score and its numbers by name, without the prefix that they have in a file."""

    fit: OodFit
    tensors: TensorMap

    def verify(self, name: str, sizes: Mapping[str, int]) -> None:
        """Raises CheckpointError unless the tensors are those of the score, for this network.

        Args:
            name: what messages call the file.
            sizes: of the axes, by letter (see `OodScore.axes`).
        """
        row = next((row for row in OOD_SCORES if row.name == self.fit.score), None)
        if row is None:
            raise CheckpointError(f"{name}: its OOD score {self.fit.score!r} is unknown: update hydractl")
        if (baseline := self.fit.baseline) is not None and len(baseline.labels) != sizes["C"]:
            counts = f"{len(baseline.labels)} classes, the network has {sizes['C']}"
            raise CheckpointError(f"{name}: its baseline counts {counts}: calibrate the model again")
        if (sure := self.fit.confidences) is not None and len(sure) != sizes["C"]:
            counts = f"{len(sure)} classes, the network has {sizes['C']}"
            raise CheckpointError(f"{name}: its confidences cover {counts}: calibrate the model again")
        for wrong in sorted(row.stored.keys() ^ self.tensors.keys()):
            problem = "is missing" if wrong in row.stored else f"does not belong to the OOD score {self.fit.score}"
            raise CheckpointError(f"{name}: {PREFIX}{wrong} {problem}: calibrate the model again")
        # A class that the network never predicted has no mean; those of a zero-shot network are not in its file.
        means = (1, sizes["C"] or 2**24)
        bounds = {"K": means, "Q": (1, MOST_QUANTILES)}
        for key, axes in row.stored.items():
            tensor = self.tensors[key]
            spans = [bounds.get(axis, (sizes.get(axis, 0),) * 2) for axis in axes]
            fits = len(tensor.shape) == len(spans) and all(
                low <= size <= high for size, (low, high) in zip(tensor.shape, spans, strict=True)
            )
            kinds = ("F16", "F32") if key in row.half else ("F32",)
            if not fits or tensor.kind not in kinds:
                expected = " x ".join(str(low) if low == high else f"{low} to {high}" for low, high in spans)
                raise CheckpointError(
                    f"{name}: {PREFIX}{key} is {list(tensor.shape)} of {DTYPES[tensor.kind]}, expected {expected} of "
                    f"{' or '.join(str(DTYPES[kind]) for kind in kinds)}: calibrate the model again"
                )
        for key in (QUANTILES, PROFILE):
            if key in self.tensors:
                quantiles = float32_numbers(self.tensors[key])
                if (quantiles[..., 1:] < quantiles[..., :-1]).any():
                    raise CheckpointError(f"{name}: {PREFIX}{key} should ascend: calibrate the model again")


@dataclass(frozen=True)
class Calibration:
    """All that calibration fits to the weights of one network; None for what it did not fit.

    Attributes:
        temperature: divides the logits of every member.
        thresholds: `[C]`, the probability from which each of several labels is answered.
        intervals: those around numbers.
        sets: of classes, one of which is right as often as promised.
        ood: the score that tells OOD.
        recall: of several labels, or spans of words; its thresholds stand in the place of `thresholds`.
    """

    temperature: float | None = None
    thresholds: tuple[float, ...] | None = None
    intervals: Intervals | None = None
    sets: PromisedSets | None = None
    ood: FittedOod | None = None
    recall: PromisedRecall | None = None

    @property
    def divisor(self) -> float:
        """The temperature, 1 if there is none."""
        return self.temperature or 1.0

    @property
    def answered_from(self) -> tuple[float, ...] | None:
        """The probability from which each of several labels is answered, one for all or `[C]`; None for 0.5."""
        return self.thresholds if self.recall is None else self.recall.least

    @property
    def fit(self) -> OodFit | None:
        """The conditions of the OOD score's fit; None without one."""
        return None if self.ood is None else self.ood.fit

    @property
    def promises(self) -> dict[str, float]:
        """The shares of answers that are promised to be right, by the option that asks for each."""
        shares = {
            "accuracy": None if self.fit is None else self.fit.accuracy,
            "sets": None if self.sets is None else self.sets.coverage,
            "interval": None if self.intervals is None else self.intervals.share,
            "recall": None if self.recall is None else self.recall.share,
        }
        return {name: share for name, share in shares.items() if share is not None}

    def lost(self, other: Calibration) -> str:
        """Returns the promises that another calibration does not keep, as options; empty for none."""
        gone = (name for name in self.promises if name not in other.promises)
        return " and ".join(f"`{name}` {100 * self.promises[name]:g}%" for name in gone)

    def to_json(self) -> dict[str, Any]:
        """Returns all but the numbers of the OOD score as plain JSON, without what was not fitted."""
        promised = {"intervals": self.intervals, "sets": self.sets, "recall": self.recall}
        parts: dict[str, Any] = {name: value and asdict(value) for name, value in promised.items()}
        parts |= {"temperature": self.temperature, "thresholds": self.thresholds}
        parts |= {"ood": self.fit and self.fit.to_json()}
        return {name: value for name, value in parts.items() if value is not None}


NOT_CALIBRATED = Calibration()


class WrittenCalibration(Schema):
    """A calibration as a manifest holds it; the numbers of its OOD score are tensors of the file."""

    temperature: Annotated[float, Checked(gt=0, le=1e6)] | None = None
    thresholds: Items[Annotated[float, Checked(ge=0, le=1)]] | None = None
    intervals: Intervals | None = None
    sets: PromisedSets | None = None
    recall: PromisedRecall | None = None
    ood: OodFit | None = None

    def read(self, spec: ModelSpec, tensors: TensorMap) -> Calibration:
        """Returns the calibration, with the numbers of its OOD score.

        Raises:
            ValueError: something is of other classes or numbers than the network's.
        """
        classes = spec.classes or 0
        if self.thresholds is not None and len(self.thresholds) != classes:
            raise ValueError(f"thresholds are {len(self.thresholds)}, the network has {classes} classes")
        if self.intervals is not None:
            sizes = {len(self.intervals.scale), len(self.intervals.floor), len(self.intervals.width)}
            if sizes != {spec.classes}:
                raise ValueError(f"intervals are of {max(sizes)} numbers, the network has {classes}")
        if self.sets is not None:
            if not spec.one_class:
                raise ValueError("sets are of a network that chooses one of fixed classes, this one does not")
            if len(self.sets.least) not in (1, classes):
                raise ValueError(f"sets.least are {len(self.sets.least)}, the network has {classes} classes")
        if (recall := self.recall) is not None:
            most = 1 if spec.problem_type is None else classes  # words have one for all kinds of spans
            if len(recall.least) not in (1, most) or len(recall.least) != len(recall.samples):
                counts = f"{len(recall.least)}, of {len(recall.samples)} counts of samples"
                raise ValueError(f"recall.least are {counts}, should be 1 or {most}")
        ood = None if self.ood is None else FittedOod(self.ood, tensors)
        return Calibration(self.temperature, self.thresholds, self.intervals, self.sets, ood=ood, recall=recall)
