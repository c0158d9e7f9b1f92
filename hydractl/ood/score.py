"""The parts of an OOD score: what it reads, what it is fitted on, and what it stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from hydractl.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

#: What a score reads of a network's answers: logits alone, the classifier's inputs too, or every layer too.
Reads = Literal["logits", "features", "layers"]
#: What answers hold beside logits: what a score reads, or all numbers of the score in the model's own file.
Beside = Literal[Reads, "typicality"]
#: Fitted numbers by name, as tensors; those of several members have members first.
State = Mapping[str, "Tensor"]
#: Fitted numbers by name, float64.
Fitted = Mapping[str, "NDArray[np.float64]"]
#: Every score is stored with the scores of calibration samples, ascending.
QUANTILES = "quantiles"


#: Numbers of torch or of numpy.
Numbers = TypeVar("Numbers", "Tensor", "NDArray[Any]")


class Outputs(NamedTuple):
    """Outputs of an ensemble of M members to B samples, as tensors."""

    member_logits: Tensor  # `[M,B,C]`, before the temperature
    temperature: float = 1.0
    features: Tensor | None = None  # `[M,B,D']`, what each member's classifier reads
    # `[S,B,D]` of each hidden layer, the mean over its tokens; S is 1 where members share the layer, else M.
    hidden: Sequence[Tensor] = ()

    def read(self) -> Tensor:
        """Returns the features of a score that reads them."""
        assert self.features is not None
        return self.features


@dataclass(frozen=True, eq=False)
class FitSamples:
    """ID samples as an ensemble of M members sees them, in any precision; fits compute in float64."""

    member_logits: NDArray[Any]  # `[M,N,C]`
    features: NDArray[Any]  # `[M,N,D']`
    labels: NDArray[np.int64] | None = None  # `[N]` in 0..C-1; None for samples without
    hidden: Sequence[NDArray[Any]] = ()  # `[S,N,D]` of each hidden layer
    predicted: NDArray[np.int64] | None = None  # `[N]`, the class that the ensemble answers; None of other answers

    @property
    def samples(self) -> int:
        """N."""
        return self.member_logits.shape[1]

    @property
    def classes(self) -> NDArray[np.int64]:
        """The predicted class of each sample, numbered without gaps; one class where answers are others, `[N]`."""
        import numpy as np

        if self.predicted is None:
            return np.zeros(self.samples, np.int64)
        return np.unique(self.predicted, return_inverse=True)[1]

    def subset(self, places: NDArray[np.int64]) -> FitSamples:
        """Returns the samples at some places."""
        return replace(
            self,
            member_logits=self.member_logits[:, places],
            features=self.features[:, places],
            labels=None if self.labels is None else self.labels[places],
            hidden=[layer[:, places] for layer in self.hidden],
            predicted=None if self.predicted is None else self.predicted[places],
        )

    def by_class(self) -> NDArray[np.int64]:
        """Returns the labels of a fit that needs them."""
        if self.labels is None:
            raise DataError("this OOD score needs labelled samples to fit on: give labels, or choose layers")
        return self.labels


@dataclass(frozen=True)
class OodScore:
    """One way to tell OOD from ID samples; a score is higher for more OOD.

    Attributes:
        name: its name in options, files and reports.
        help: a description, to stand after the name.
        source: who published it.
        score: from fitted numbers and answers to `[B]`.
        reads: what it takes of the answers.
        fit: returns the numbers that it stores; None for a score without any.
        axes: the shape of each stored tensor as letters: M members, C classes, D' features as D, d the width of hidden
            states, L layers, P parts, S copies of hidden layers, and sizes that are free within bounds: K means, Q
            quantiles.
        labelled: whether its fit needs labels.
        parts: of a score that is a sum, its parts `[L+1,B]`: one for each layer, whose ID quantiles are stored too, and
            another.
        left_out: of a score with a fit, the scores `[N]` or `[L+1,N]` of the samples it is fitted on, each by a fit
            without it.
        half: the stored tensors that are written in float16, where rounding changes nothing that a user sees.
    """

    name: str
    help: str
    source: str
    score: Callable[[State, Outputs], Tensor]
    reads: Reads = "logits"
    fit: Callable[[FitSamples], Fitted] | None = None
    axes: Mapping[str, str] = field(default_factory=dict)
    labelled: bool = False
    parts: Callable[[State, Outputs], Tensor] | None = None
    left_out: Callable[[FitSamples], NDArray[np.float64]] | None = None
    half: frozenset[str] = frozenset()

    @property
    def stored(self) -> Mapping[str, str]:
        """The axes of all tensors in a file."""
        profile = {PROFILE: "LQ"} if self.parts is not None else {}
        return {**self.axes, **profile, QUANTILES: "Q"}


#: The tensor with the ID quantiles of each layer, of a score that is a sum.
PROFILE = "profile"


def as_state(fitted: Fitted) -> State:
    """Returns fitted numbers as tensors."""
    import torch

    return {name: torch.from_numpy(values) for name, values in fitted.items()}


def flagged(typical: Numbers, accept: float) -> Numbers:
    """Returns where samples are less typical than all but the share of ID samples to accept."""
    return typical < 1 - accept - 1e-6  # typicality has steps of 1/1001 or more


def typicality(score: Tensor, quantiles: Tensor) -> Tensor:
    """Returns (1 + #{calibration scores >= s}) / (n + 1), a conformal p-value, `[...,B]`.

    For exchangeable samples it is at most a with a probability of at most a.

    Args:
        score: s `[...,B]`.
        quantiles: `[...,n]` calibration scores, ascending.

    Source: Vovk et al. 2005.

    >>> import torch
    >>> typicality(torch.tensor([0.0, 2.5, 9.0]), torch.tensor([1.0, 2.0, 3.0])).tolist()
    [1.0, 0.5, 0.25]
    """
    import torch

    if torch.compiler.is_exporting():  # ONNX has no search in sorted numbers
        as_odd = (quantiles.unsqueeze(-2) >= score.unsqueeze(-1)).sum(-1)
    else:
        as_odd = quantiles.shape[-1] - torch.searchsorted(quantiles, score)
    return (1 + as_odd).to(score.dtype) / (1 + quantiles.shape[-1])
