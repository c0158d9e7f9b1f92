"""An embedding a sample: the members' mean, its distance to a teacher's, and the neighbours that it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hydractl.checkpoint.calibration import INTERVAL
from hydractl.checkpoint.spec import ModelSpec, TaskName
from hydractl.errors import DataError, OptionError
from hydractl.metrics.arrays import FloatArray
from hydractl.metrics.bootstrap import draw_places
from hydractl.metrics.scaling import FittedTemperature
from hydractl.tasks.task import FINE, Answers, Judged, Maps, Matcher, Names, Task

if TYPE_CHECKING:
    from torch import Tensor

NEAREST = 10
BLOCK = 1024  # rows whose similarities are in memory at a time


@dataclass(frozen=True, eq=False)
class EmbeddingTable:
    """Embeddings `[N,P]`, and the share `[N]` of each one's neighbours by another system that it keeps."""

    embeddings: FloatArray
    kept: FloatArray | None = None


@dataclass(frozen=True)
class Embeddings(Task):
    """An embedding of P numbers; there are no classes and no labels."""

    name: TaskName
    names: Names

    answers: ClassVar[str] = "embeddings"
    measured: ClassVar[str] = "similarity"
    parts: ClassVar[int] = FINE
    objective: ClassVar[Literal["acc", "avg"]] = "acc"
    tells_ood: ClassVar[Literal["scores", "confidence", "nothing"]] = "nothing"
    taught_only: ClassVar[bool] = True
    outliers_teach: ClassVar[bool] = False
    output: ClassVar[str] = "embedding"

    def unnamed(self, count: int) -> tuple[str, ...]:
        return ()

    def card(self) -> str:
        return "Its output is the members' mean direction at their mean length;"

    def match(self, matcher: Matcher) -> Any:
        return matcher.nothing()

    def has_accuracy(self, labels: NDArray[Any] | None) -> bool:
        return False

    def read(self, network: Maps, pooled: Tensor, texts: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        embedding = network.classify(pooled)
        return embedding, embedding

    def link(self, member_logits: Tensor, temperature: float) -> Tensor:
        """Returns `[N,P]`, the members' mean direction at their mean length; a single member's is unchanged."""
        from torch.nn.functional import normalize

        if len(member_logits) == 1:
            return member_logits[0]
        lengths = member_logits.norm(dim=-1, keepdim=True).mean(0)
        return normalize(member_logits.mean(0), dim=-1) * lengths

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits

    def losses(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """Returns the product `[G*B]` of each embedding at unit length with the same random signs; no label is read.

        How much it changes with a head is an estimate of how far the head moves the embedding, so that scores by a
        loss's gradient have a meaning where nothing can be right or wrong.

        Source: Hutchinson 1989: over random signs u, the mean of (u^T J)^2 is the squared length of J.
        """
        import torch

        generator = torch.Generator().manual_seed(0)
        signs = torch.randint(2, logits.shape[-1:], generator=generator).to(logits) * 2 - 1
        return (torch.nn.functional.normalize(logits, dim=-1) * signs).sum(-1).flatten()

    def taught_losses(self, logits: Tensor, taught: Tensor) -> Tensor:
        """Returns the parts of 1 - cosine to a teacher's embeddings `[B,P]`, `[G,B,P]` to be summed."""
        from torch.nn.functional import normalize

        return 1 / logits.shape[-1] - normalize(logits, dim=-1) * normalize(taught.to(logits.dtype), dim=-1)

    def outlier_losses(self, logits: Tensor) -> Tensor:
        raise OptionError("a model that embeds has no confidence that OOD data could lower: leave it out")

    def judge(self, members: FloatArray, labels: Any, variance: FloatArray | None = None) -> Judged:
        """Returns the cosine of each embedding to that in its label, and 1 - cosine."""
        cosines = (_units(mean_embedding(members)) * _units(np.asarray(labels))).sum(-1)
        return Judged(cosines, None, 1 - cosines)

    def table(self, answers: Answers) -> EmbeddingTable:
        return EmbeddingTable(answers.embeddings)

    def metrics(self, table: Any) -> dict[str, Any]:
        return {} if table.kept is None else {"neighbours": float(table.kept.mean())}

    def replicates(self, table: Any, draws: int, seed: int) -> dict[str, FloatArray]:
        places = draw_places([len(table.kept)], draws, seed)
        return {"neighbours": np.array([table.kept[drawn].mean() for [drawn] in places])}

    def fit(self, answers: Answers, interval: float = INTERVAL, precision: float | None = None) -> FittedTemperature:
        raise OptionError("embeddings have no labels to fit to: give inputs without labels")

    def unfitted(self, samples: int) -> str:
        return f"fitted on {samples} samples"

    def columns(self, answers: Answers) -> Mapping[str, Any]:
        """Returns the embeddings `[N,P]`."""
        return {"embeddings": mean_embedding(answers.logits).astype(answers.logits.dtype)}

    def count(self, spec: ModelSpec, classes: Sequence[str] | None) -> int:
        return spec.features

    def width(self, answers: Answers) -> str:
        return f"embeddings of {answers.logits.shape[-1]} numbers"

    def row(self, answers: Answers, at: int) -> dict[str, Any]:
        return {"embedding": answers.embeddings[at].tolist()}


def mean_embedding(members: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """Returns `[N,P]`, the members' mean direction at their mean length; a single member's is unchanged.

    Args:
        members: `[M,N,P]`.
    """
    if len(members) == 1:
        return members[0]
    wide = members.astype(np.float64)
    return _units(wide.mean(0)) * np.linalg.norm(wide, axis=-1, keepdims=True).mean(0)


def kept_neighbours(reference: NDArray[Any], embeddings: NDArray[Any], nearest: int = NEAREST) -> FloatArray:
    """Returns, for each sample, the share of its nearest neighbours by the reference that are so by the embeddings.

    Neighbours are those of the highest cosine; a sample is not its own.

    Args:
        reference: `[N,P]`.
        embeddings: `[N,P']`.
        nearest: how many of them, at most N - 1.

    Raises:
        DataError: fewer than two samples.

    >>> three = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> kept_neighbours(three, three[[1, 0, 2]], nearest=1).tolist()
    [1.0, 1.0, 0.0]
    """
    count = min(nearest, len(reference) - 1)
    if count < 1:
        raise DataError("one sample has no neighbours to keep: give two or more")
    shares = np.empty(len(reference))
    units = [_units(vectors) for vectors in (reference, embeddings)]
    for first in range(0, len(reference), BLOCK):
        rows = np.arange(first, min(first + BLOCK, len(reference)))
        theirs, ours = (_nearest(vectors, rows, count) for vectors in units)
        shares[rows] = [len(np.intersect1d(near, other)) / count for near, other in zip(theirs, ours, strict=True)]
    return shares


def _units(embeddings: NDArray[Any]) -> FloatArray:
    wide = embeddings.astype(np.float64)
    return np.asarray(wide / np.maximum(np.linalg.norm(wide, axis=-1, keepdims=True), 1e-300))


def _nearest(units: FloatArray, rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Returns the numbers `[B,count]` of the samples nearest to those of the rows."""
    similar = units[rows] @ units.T
    similar[np.arange(len(rows)), rows] = -np.inf
    return np.argpartition(-similar, count - 1, axis=1)[:, :count]
