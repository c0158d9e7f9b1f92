"""An embedding a sample: the members' mean, and its distance to a teacher's."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hydractl.errors import OptionError
from hydractl.metrics.checks import FloatArray
from hydractl.tasks.prediction import AnyPrediction
from hydractl.tasks.task import FINE, Judged, TaskRow

SHOWN = 3  # numbers of an embedding that a readable prediction shows


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EmbeddingPrediction(AnyPrediction):
    """A model's embeddings for N samples; `member_logits` holds those of the members, `[M,N,P]`.

    Attributes:
        embeddings: `[N,P]`, the members' mean direction at their mean length.
    """

    embeddings: Tensor

    def cells(self) -> Iterator[tuple[str, ...]]:
        yield ("embedding",)
        for row in self.embeddings[:, :SHOWN].tolist():
            yield (", ".join(f"{number:.4f}" for number in row) + ", ...",)

    def _title(self) -> str:
        width = self.embeddings.shape[-1]
        return f"Prediction: {len(self)} samples, {len(self.member_logits)} members, embeddings of {width} numbers"


def mean_embedding(embeddings: Tensor, _temperature: float = 1.0) -> Tensor:
    """Returns `[N,P]`, the members' mean direction at their mean length; a single member's embedding is unchanged.

    Args:
        embeddings: `[M,N,P]`.
    """
    if len(embeddings) == 1:
        return embeddings[0]
    lengths = embeddings.norm(dim=-1, keepdim=True).mean(0)
    return F.normalize(embeddings.mean(0), dim=-1) * lengths


def sign_projections(embeddings: Tensor, _labels: Tensor, _smoothing: float = 0.0) -> Tensor:
    """Returns the product `[G*B]` of each embedding at unit length with the same random signs; no label is read.

    How much it changes with a head is an estimate of how far the head moves the embedding, so that scores by a loss's
    gradient have a meaning where nothing can be right or wrong.

    Args:
        embeddings: `[G,B,P]`.

    Source: Hutchinson 1989: over random signs u, the mean of (u^T J)^2 is the squared length of J.
    """
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(2, embeddings.shape[-1:], generator=generator).to(embeddings) * 2 - 1
    return (F.normalize(embeddings, dim=-1) * signs).sum(-1).flatten()


def taught_distances(embeddings: Tensor, taught: Tensor) -> Tensor:
    """Returns the parts of 1 - cosine to a teacher's embeddings `[B,P]`, `[G,B,P]` to be summed."""
    products = F.normalize(embeddings, dim=-1) * F.normalize(taught.to(embeddings.dtype), dim=-1)
    return 1 / embeddings.shape[-1] - products


def no_outlier_losses(_logits: Tensor) -> Tensor:
    """Raises OptionError: embeddings have no confidence to lower on outliers."""
    raise OptionError("a model that embeds has no confidence that OOD data could lower: leave it out")


def embedded(embeddings: Tensor, _temperature: float, _classes: Sequence[str] | None) -> EmbeddingPrediction:
    """Returns the prediction for embeddings `[M,N,P]`."""
    return EmbeddingPrediction(classes=(), member_logits=embeddings, embeddings=mean_embedding(embeddings))


def judge_embeddings(
    members: FloatArray, labels: NDArray[np.floating] | None, _variance: FloatArray | None = None
) -> Judged:
    """Returns the cosine of each embedding to that in its label, and 1 - cosine."""
    assert labels is not None  # OOD samples are refused: embeddings have no confidence
    found = F.cosine_similarity(mean_embedding(torch.from_numpy(members)), torch.from_numpy(labels).double(), dim=-1)
    return Judged(found.numpy(), None, 1 - found.numpy())


embedding = partial(
    TaskRow,
    answer=mean_embedding,
    probabilities=lambda embeddings: embeddings,
    predict=embedded,
    losses=sign_projections,
    taught_losses=taught_distances,
    outlier_losses=no_outlier_losses,
    judge=judge_embeddings,
    measured="similarity",
    parts=FINE,
    confident=False,
    labelled=False,
)
