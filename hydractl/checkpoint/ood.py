"""The OOD score of a network: fitted once, and stored beside its weights as tensors named `ood.*`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.checkpoint.tensors import DTYPES, TensorMap, float32_numbers
from hydractl.errors import CheckpointError
from hydractl.ood.knn import NEIGHBOURS
from hydractl.ood.ood_scores import OOD_SCORES
from hydractl.ood.score import PROFILE, QUANTILES
from hydractl.schema import Checked, Items

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PREFIX = "ood."
MOST_QUANTILES = 1000


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
    # None without labels, with classes that may change, and in early files.
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
            raise CheckpointError(f"{name}: its confidences are of {counts}: calibrate the model again")
        for wrong in sorted(row.stored.keys() ^ self.tensors.keys()):
            problem = "is missing" if wrong in row.stored else f"is no part of the OOD score {self.fit.score}"
            raise CheckpointError(f"{name}: {PREFIX}{wrong} {problem}: calibrate the model again")
        bounds = {"N": (NEIGHBOURS, 2**24), "R": (1, sizes["D"]), "Q": (1, MOST_QUANTILES)}
        for key, axes in row.stored.items():
            tensor = self.tensors[key]
            exact = [int(axis) if axis.isdecimal() else sizes.get(axis, 0) for axis in axes]
            spans = [bounds.get(axis, (size, size)) for axis, size in zip(axes, exact, strict=True)]
            fits = len(tensor.shape) == len(spans) and all(
                low <= size <= high for size, (low, high) in zip(tensor.shape, spans, strict=True)
            )
            kinds = ("F16", "F32") if key in row.half else ("F32",)
            if not fits or tensor.kind not in kinds:
                wanted = " x ".join(str(low) if low == high else f"{low} to {high}" for low, high in spans)
                raise CheckpointError(
                    f"{name}: {PREFIX}{key} is {list(tensor.shape)} of {DTYPES[tensor.kind]}, expected {wanted} of "
                    f"{' or '.join(str(DTYPES[kind]) for kind in kinds)}: calibrate the model again"
                )
        for key in (QUANTILES, PROFILE):
            if key in self.tensors:
                quantiles = float32_numbers(self.tensors[key])
                if (quantiles[..., 1:] < quantiles[..., :-1]).any():
                    raise CheckpointError(f"{name}: {PREFIX}{key} should ascend: calibrate the model again")
