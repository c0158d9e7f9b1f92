"""What a progress bar expects of a search is what the search does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hydractl.checkpoint.heads import Head
from hydractl.circuit.modes import Exact, HeadMap, Mode, Screened, Shortlist
from hydractl.circuit.ranking import Search
from hydractl.circuit.search_cost import candidate_costs, round_cost, search_cost
from tests.circuit.conftest import build_case


def test_the_cost_left_of_each_search(tmp_path: Path) -> None:
    model = build_case("vit", tmp_path).model
    heads = tuple(Head("vision", layer, head) for layer in range(3) for head in range(4))
    costs = candidate_costs(model.spec, model.heads, heads)
    whole = sum(costs.values())

    def rounds(mode: Mode) -> list[float]:
        search = Search(heads, 4, mode)
        return [search_cost(model.spec, model.heads, search, done) for done in range(4)]

    def once(done: int) -> float:
        return round_cost(model.spec, model.heads, Search(heads, 4, Exact()), done)

    assert once(0) == pytest.approx(whole)
    assert rounds(Exact()) == pytest.approx([sum(map(once, range(done, 4))) for done in range(4)])
    assert rounds(Exact(heads_per_step=3))[0] == pytest.approx(once(0) + once(3))
    assert rounds(Screened())[0] == pytest.approx(rounds(Exact())[0] + whole)
    listed = once(1) * 3 / 11 + once(2) * 3 / 10 + once(3) * 3 / 9
    assert rounds(Shortlist(shortlist=3)) == pytest.approx(
        [whole + listed, listed, listed - once(1) * 3 / 11, once(3) * 3 / 9]
    )
    # Layer 0 gives up two heads, 1 and 2 one each: each head is measured once, in a network a little smaller.
    layered = rounds(HeadMap())[0]
    assert whole * 8 / 12 < layered < whole
