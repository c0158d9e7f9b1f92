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
    check_budget(budget, len(scores))
    order = in_candidate_order(scores)
    if scope == "global":
        return sorted(order, key=scores.__getitem__)[:budget]
    chosen = []
    for layer, share in layer_budgets(order, budget).items():
        heads = [head for head in order if (head.tower, head.layer) == layer]
        chosen += sorted(heads, key=scores.__getitem__)[:share]
    return chosen


def at_random(heads: Sequence[Head], budget: int, seed: int, scope: Scope = "global") -> list[Head]:
    """Draws `budget` of the heads uniformly, the same ones for the same seed."""
    check_budget(budget, len(heads))
    order, random = in_candidate_order(heads), Random(seed)
    if scope == "global":
        return in_candidate_order(random.sample(order, budget))
    return [
        head
        for layer, share in layer_budgets(order, budget).items()
        for head in in_candidate_order(random.sample([h for h in order if (h.tower, h.layer) == layer], share))
    ]


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
    check_budget(budget, len(heads))
    shares = layer_budgets(heads, budget)
    dropped: list[Head] = []
    for (tower, layer), share in shares.items():
        if share:
            candidates = [head for head in heads if (head.tower, head.layer) == (tower, layer)]
            scores = taylor_scores(without_heads(model, frozenset(dropped)), data, candidates)
            dropped += by_scores(scores, share)
    return dropped


def check_budget(budget: int, available: int) -> None:
    """Raises OptionError unless so many heads can be dropped."""
    if not 0 <= budget <= available:
        raise OptionError(f"`budget` {budget}: the model has {available} heads to drop: ask for fewer")
