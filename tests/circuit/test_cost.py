"""What a progress bar expects of a search is what the search does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hydractl.checkpoint.heads import Head
from hydractl.circuit.cost import candidate_costs, round_cost, search_cost
from hydractl.circuit.ranking import Plan
from tests.circuit.conftest import build_case


def test_the_cost_left_of_each_search(tmp_path: Path) -> None:
    model = build_case("vit", tmp_path).model
    heads = tuple(Head("vision", layer, head) for layer in range(3) for head in range(4))
    costs = candidate_costs(model.spec, model.heads, heads)
    whole = sum(costs.values())

    def rounds(**options: object) -> list[float]:
        plan = Plan(heads, 4, **options)
        starts = [done for done in range(4) if search_cost(model.spec, model.heads, plan, done)]
        return [search_cost(model.spec, model.heads, plan, done) for done in starts]

    def once(done: int) -> float:
        return round_cost(model.spec, model.heads, Plan(heads, 4), done)

    assert once(0) == pytest.approx(whole)
    assert rounds() == pytest.approx([sum(map(once, range(done, 4))) for done in range(4)])
    assert rounds(heads_per_step=3)[0] == pytest.approx(once(0) + once(3))
    assert rounds(mode="screened")[0] == pytest.approx(rounds()[0] + whole)
    listed = once(1) * 3 / 11 + once(2) * 3 / 10 + once(3) * 3 / 9
    assert rounds(mode="shortlist", shortlist=3) == pytest.approx(
        [whole + listed, listed, listed - once(1) * 3 / 11, once(3) * 3 / 9]
    )
    # Layer 0 gives up two heads, 1 and 2 one each: each head is measured once, in a network a little smaller.
    layered = rounds(mode="headmap")[0]
    assert whole * 8 / 12 < layered < whole
