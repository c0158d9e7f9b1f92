"""A system's answers to the samples of one set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from hydractl.errors import DataError
from hydractl.ood.score import FitSamples

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from hydractl.metrics.checks import BoolArray, FloatArray, IntArray, Logits


@dataclass(frozen=True, eq=False)
class SetAnswers:
    """A system's answers to the N samples of a set, in its order, in float32 or float64."""

    member_logits: Logits | None  # `[M,N,C]`, before any temperature; None if only a confidence was saved
    # `[N]` int64 in 0..C-1, `[N,C]` of several labels or float64 of numbers, or None for samples without
    labels: NDArray[Any] | None
    features: Logits | None = None  # `[M,N,D']`, the inputs of the members' classifiers; None unless wanted
    # `[N]`, how sure the system is that it is right, by its own account; None if logits say it.
    confidence: FloatArray | None = None
    # `[N]` booleans, whether it is right, beside a confidence without logits; None without labels.
    correct: BoolArray | None = None
    hidden: Sequence[Logits] = ()  # `[S,N,D]` of each hidden layer, S 1 or M; empty unless wanted
    ood_score: FloatArray | None = None  # `[N]`, by the score in the system's own file, where that reads every layer
    # `[n,2]`, sentence and number of each of n words in order; logits are then `[M,n,C]` and labels `[n]`.
    places: IntArray | None = None

    @property
    def samples(self) -> int:
        """N."""
        if self.places is not None:
            return int(self.places[:, 0].max()) + 1
        if self.member_logits is not None:
            return self.member_logits.shape[1]
        return 0 if self.confidence is None else len(self.confidence)

    def to_score(self, classifier: Classifier | None = None) -> FitSamples:
        """Returns the answers as OOD scores take them.

        Args:
            classifier: of the members, for fits that need it.
        """
        assert self.member_logits is not None
        logits = self.member_logits
        if self.places is not None and self.features is not None:
            logits = self.features[..., :0]  # those of words are no answers to samples
        features = logits[..., :0] if self.features is None else self.features
        affine = None if classifier is None else (classifier.weight.numpy(), classifier.bias.numpy())
        one = self.labels is not None and self.labels.ndim == 1 and self.places is None
        classes = self.labels if one else None
        return FitSamples(logits, features, classes, affine, hidden=self.hidden)

    def to_fit_on(self) -> tuple[Logits, NDArray[Any]]:
        """Returns logits and labels.

        Raises:
            DataError: there are none.
        """
        if self.member_logits is None:
            raise DataError("saved confidences hold no logits to fit anything on: save `logits` as well")
        if self.labels is None:
            raise DataError("the calibration data has no labels")
        return self.member_logits, self.labels


class Classifier(NamedTuple):
    """The affine maps by which members make logits of features: `[M,C,D']` and `[M,C]`."""

    weight: Tensor
    bias: Tensor
