"""Chooses heads to drop for a budget: by a circuit, by scores, or at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Literal

from hydractl.checkpoint.heads import Head, in_candidate_order, layer_budgets, member_heads, number_of_heads
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.circuit.objective import ScoringData
    from hydractl.model.hydra import Hydra

Scope = Literal["global", "layer"]


def heads_leaving(budget: int | str, checkpoint: Checkpoint) -> int:
    """Returns the number of heads in a budget.

    Raises:
        OptionError: neither a number nor a share, or more than there are.
    """
    heads = len(member_heads(checkpoint.heads, 0))
    count = number_of_heads(budget, heads)
    if count is None:
        raise OptionError(f"`budget` {budget}: expected 0 to {heads}, the number of heads, or a share as in 33%")
    return count


def by_ranking(ranking: Sequence[Head], budget: int, pool: int | None = None, seed: int = 0) -> list[Head]:
    """Returns the first `budget` heads of a circuit, or as many drawn at random from its first `pool` ([HE] B.5).

    Raises:
        OptionError: the ranking is shorter than the budget or the pool, or the pool smaller than the budget.
    """
    if pool is not None and pool < budget:
        raise OptionError(f"`pool` {pool} is smaller than `budget` {budget}: draw from more heads, or drop fewer")
    wanted = budget if pool is None else pool
    if len(ranking) < wanted:
        raise OptionError(
            f"the circuit ranks {len(ranking)} heads, but {wanted} are needed: extract it with a larger budget"
        )
    if pool is None:
        return list(ranking[:budget])
    return in_candidate_order(Random(seed).sample(list(ranking[:pool]), budget))


def by_scores(scores: Mapping[Head, float], budget: int, scope: Scope = "global") -> list[Head]:
    """Returns the `budget` heads with the lowest scores, the first in candidate order among equals.

    Args:
        scores: higher = keep, of every head that may be dropped.
        scope: one ranking over the whole model, or one per layer with the budget spread evenly over layers.
    """
    groups = _shares(list(scores), budget, scope)
    return [head for heads, share in groups for head in sorted(heads, key=scores.__getitem__)[:share]]


def at_random(heads: Sequence[Head], budget: int, seed: int, scope: Scope = "global") -> list[Head]:
    """Draws `budget` of the heads uniformly, the same ones for the same seed."""
    random = Random(seed)
    groups = _shares(heads, budget, scope)
    return [head for group, share in groups for head in in_candidate_order(random.sample(group, share))]


def by_taylor(
    model: Hydra, data: ScoringData, heads: Sequence[Head], budget: int, scope: Scope = "layer"
) -> list[Head]:
    """Returns the heads with the lowest Taylor scores, first dropped first.

    In scope `layer`, scores are computed anew on the network that the layers before have left ([HE] D.1.1).

    Args:
        model: of one member, with all `heads`.
        heads: those to choose from.
        scope: an even share of each layer, scored without what lower layers have lost already; or the lowest scores
            of the whole network, all scored at once.

    Raises:
        DataError: samples without labels.
        OptionError: the budget is larger than the number of heads.
    """
    from hydractl.circuit.saliency import taylor_scores
    from hydractl.model.assembly import without_heads

    if scope == "global":
        return by_scores(taylor_scores(model, data, heads), budget, "global")
    dropped: list[Head] = []
    for candidates, share in _shares(heads, budget, "layer"):
        if share:
            scores = taylor_scores(without_heads(model, frozenset(dropped)), data, candidates)
            dropped += by_scores(scores, share)
    return dropped


def _shares(heads: Sequence[Head], budget: int, scope: Scope) -> list[tuple[list[Head], int]]:
    """Returns groups of heads in candidate order, the whole model or its layers, and how many each gives up."""
    if not 0 <= budget <= len(heads):
        raise OptionError(f"`budget` {budget}: the model has {len(heads)} heads to drop: ask for fewer")
    order = in_candidate_order(heads)
    if scope == "global":
        return [(order, budget)]
    shares = layer_budgets(order, budget).items()
    return [([head for head in order if (head.tower, head.layer) == layer], share) for layer, share in shares]
