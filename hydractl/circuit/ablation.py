"""Ablation: what the whole model achieves more than the model without one head, the first round of a search."""

from __future__ import annotations

from collections.abc import Sequence

from hydractl.checkpoint.heads import Head
from hydractl.circuit.objective import Objective
from hydractl.circuit.round import Progress, SearchData, run_round
from hydractl.model.hydra import Hydra


def ablation_scores(
    model: Hydra,
    data: SearchData,
    heads: Sequence[Head],
    objective: Objective,
    progress: Progress = lambda group, samples: None,
) -> dict[Head, float]:
    """The objective of the model minus that of the model with each head off, higher = keep.

    Raises:
        DataError: a logit is not finite, or ID samples have no labels.

    Source: [HE] D.1.2.
    """
    measures = run_round(model, data, heads, progress)
    whole = measures[None].score(objective)
    return {head: whole - measures[head].score(objective) for head in heads}
