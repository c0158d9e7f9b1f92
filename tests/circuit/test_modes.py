from collections.abc import Sequence

import pytest

from hydractl.checkpoint.heads import member_heads
from hydractl.circuit.head_files import circuit_json
from hydractl.circuit.modes import Exact, Shortlist
from hydractl.circuit.objective import OBJECTIVES
from hydractl.circuit.ranking import Mode, Ranking, Search, Shortcut
from hydractl.circuit.saliency import gate_scores
from hydractl.circuit.search import ablate, extract_circuits
from hydractl.model.hydra import without_heads
from tests.circuit.conftest import Case

BUDGET = 4


def search_of(case: Case, mode: Mode) -> Search:
    return Search(tuple(member_heads(case.model.heads, 0)), BUDGET, mode)


def found_by(
    case: Case, search: Search, objectives: Sequence[str] = OBJECTIVES, batch_size: int = 100
) -> list[Ranking]:
    empty = [Ranking(objective) for objective in objectives]
    return extract_circuits(case.model, [case.data(batch_size)], search, empty)


@pytest.mark.parametrize("mode", [Exact(), Shortlist(shortlist=3)], ids=lambda mode: mode.name)
def test_objectives_find_the_same_alone_and_together(vit: Case, mode: Mode) -> None:
    search = search_of(vit, mode)
    assert found_by(vit, search) == [found_by(vit, search, [objective])[0] for objective in OBJECTIVES]


def test_a_shortlist_holds_the_lowest_gate_scores(case: Case) -> None:
    data = case.data(batch_size=3)
    for found in found_by(case, search_of(case, Shortlist(shortlist=3)), batch_size=3):
        network, objective = case.model, found.objective
        for number, step in enumerate(found.steps):
            heads = member_heads(network.heads, 0)
            scores = {h: s for tower in network.heads for h, s in gate_scores(network, data, tower).items()}
            few = sorted(heads, key=scores.__getitem__)[:3]
            measures = ablate(network, [data], heads)
            ranks = {head: measures[head].rank(objective) for head in heads}
            choice = heads if number == 0 else [head for head in heads if head in few]
            assert step.head == max(choice, key=ranks.__getitem__)
            if number == 0:
                gap = max(ranks.values()) - max(ranks[head] for head in few)
                assert found.shortcut == Shortcut(gap, (len(heads), 3, 3, 3))
                assert circuit_json(found, {}, "accuracy")["search"] == {
                    "gap": found.gap,
                    "checked": [len(heads), 3, 3, 3],
                }
            network = without_heads(network, {step.head})
