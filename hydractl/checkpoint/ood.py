"""The OOD score of a network: fitted once, and stored beside its weights as float32 tensors named `ood.*`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from hydractl.checkpoint.tensors import DTYPES, TensorMap, float32_numbers
from hydractl.errors import CheckpointError
from hydractl.schema import Checked

PREFIX = "ood."
QUANTILES = "quantiles"
MOST_QUANTILES = 1000
NEIGHBOURS = 50  # knn looks at that many rows of its bank

_DISTANCE = {"center": "MD", "whiten": "MDD", "means": "MCD"}
#: The tensors of each score by name, their axes as letters: M members, C classes, D features, and sizes that are free
#: within bounds, N rows of a bank, R directions, Q quantiles. A digit is a size. Every score has `quantiles`.
STATISTICS: Mapping[str, Mapping[str, str]] = {
    **{name: {} for name in ("msp", "entropy", "mutual-information", "max-logit", "energy", "gen")},
    "react": {"threshold": "M1", "weight": "MCD", "bias": "MC"},
    "mahalanobis": _DISTANCE,
    "relative-mahalanobis": {**_DISTANCE, "background": "MDD"},
    "vim": {"origin": "MD", "rest": "MDR", "alpha": "M1"},
    "knn": {"bank": "MND"},
    "combined": {**_DISTANCE, "location": "M2", "scale": "M2"},
}


@dataclass(frozen=True)
class OodFit:
    """Names the score that tells OOD and says what it was fitted on, and how sure an answer must be."""

    score: Annotated[str, Checked(min_length=1, max_length=100)]  # its name, a row of `OOD_SCORES`
    samples: Annotated[int, Checked(ge=1)]  # how many ID samples it was fitted on
    # The share of ID samples that should not be flagged, above 0 and up to 1.
    accept: Annotated[float, Checked(gt=0, le=1)]
    # The share of sure answers that should be right, below 1; None if nobody asked.
    accuracy: Annotated[float, Checked(gt=0, lt=1)] | None = None
    # The MSP from which an answer is sure; None likewise.
    confidence: Annotated[float, Checked(ge=0, le=1)] | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns what is known as plain JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class FittedOod:
    """A fitted score and its numbers by name, without the prefix that they have in a file."""

    fit: OodFit
    tensors: TensorMap

    def verify(self, name: str, members: int, classes: int | None, width: int) -> None:
        """Raises CheckpointError unless the tensors are those of the score, for this network.

        Args:
            name: what messages call the file.
            width: of the features.
        """
        if (letters := STATISTICS.get(self.fit.score)) is None:
            raise CheckpointError(f"{name}: its OOD score {self.fit.score!r} is unknown: update hydractl")
        expected = {**letters, QUANTILES: "Q"}
        for wrong in sorted(expected.keys() ^ self.tensors.keys()):
            problem = "is missing" if wrong in expected else f"is no part of the OOD score {self.fit.score}"
            raise CheckpointError(f"{name}: {PREFIX}{wrong} {problem}: calibrate the model again")
        sizes = {"M": members, "C": classes or 0, "D": width, "1": 1, "2": 2}
        bounds = {"N": (NEIGHBOURS, 2**24), "R": (1, width), "Q": (1, MOST_QUANTILES)}
        for key, axes in expected.items():
            tensor = self.tensors[key]
            spans = [bounds[axis] if axis in bounds else (sizes[axis], sizes[axis]) for axis in axes]
            fits = len(tensor.shape) == len(spans) and all(
                low <= size <= high for size, (low, high) in zip(tensor.shape, spans, strict=True)
            )
            if not fits or tensor.kind != "F32":
                wanted = " x ".join(str(low) if low == high else f"{low} to {high}" for low, high in spans)
                raise CheckpointError(
                    f"{name}: {PREFIX}{key} is {list(tensor.shape)} of {DTYPES[tensor.kind]}, expected {wanted} of "
                    "float32: calibrate the model again"
                )
        quantiles = float32_numbers(self.tensors[QUANTILES])
        if (quantiles[1:] < quantiles[:-1]).any():
            raise CheckpointError(f"{name}: {PREFIX}{QUANTILES} should ascend: calibrate the model again")
