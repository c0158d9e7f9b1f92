"""HeadMap's search: layer by layer, each giving up its share of the budget at once.

Source: Wang et al. 2025.
"""

from __future__ import annotations

from hydractl.checkpoint.heads import layer_budgets
from hydractl.circuit.ranking import Round, Search


def layer_round(search: Search, done: int) -> Round:
    """The round of the layer whose turn it is after so many heads have left."""
    for place, share in layer_budgets(search.candidates, search.budget).items():
        if done < share:
            heads = tuple(head for head in search.candidates if (head.tower, head.layer) == place)
            return Round(heads, len(heads), share)
        done -= share
    raise ValueError(f"all {search.budget} heads have left already")
