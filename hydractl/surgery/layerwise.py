"""Pruning layer by layer: Taylor scores are computed anew on the network that the layers before have left.

Source: [HE] D.1.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from hydractl.checkpoint.heads import Head, layer_budgets
from hydractl.circuit.data import ScoringData
from hydractl.circuit.taylor import taylor_scores
from hydractl.model.hydra import Hydra
from hydractl.model.without import without_heads
from hydractl.surgery.choose import Scope, by_scores, check_budget


def by_taylor(
    model: Hydra, data: ScoringData, heads: Sequence[Head], budget: int, scope: Scope = "layer"
) -> list[Head]:
    """The heads to drop, in the order of dropping, the first in candidate order among equals.

    Args:
        model: of one member, with all `heads`.
        heads: those to choose from.
        scope: an even share of each layer, scored without what lower layers have lost already; or the lowest scores
            of the whole network, all scored at once.

    Raises:
        DataError: samples without labels.
        OptionError: the budget is larger than the number of heads.
    """
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
