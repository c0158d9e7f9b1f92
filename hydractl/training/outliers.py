"""Outlier exposure: beside each step's labelled samples some of no class, of which a network learns to be unsure.

Source: Hendrycks et al. 2019, arXiv 1812.04606.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from torch import Tensor

from hydractl.data.batches import Batch
from hydractl.training.order import TrainingBatches
from hydractl.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class BesideOutliers:
    """The training batches of one process, each step's labelled ones first, then those of outliers."""

    labelled: TrainingBatches
    outliers: TrainingBatches

    @property
    def passes(self) -> int:
        """See `TrainingBatches`."""
        return self.labelled.passes + self.outliers.passes

    def from_step(self, step: int, end: int) -> Iterator[Batch]:
        """See `TrainingBatches`."""
        labelled, outliers = self.labelled.from_step(step, end), self.outliers.from_step(step, end)
        for _ in range(step, end):
            yield from islice(labelled, self.labelled.passes)
            yield from islice(outliers, self.outliers.passes)


def outliers_of_a_step(recipe: Recipe) -> int:
    """How many outliers a step takes, over all devices and forward passes."""
    return max(1, round(recipe.batch * recipe.outlier_share))


def unsureness_loss(logits: Tensor) -> Tensor:
    """The cross-entropy of `[M,B,C]` logits to every class being as likely: the members' mean, summed over samples."""
    return -logits.log_softmax(-1).mean(-1).sum() / len(logits)
