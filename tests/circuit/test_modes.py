from collections.abc import Sequence

import pytest

from hydractl.checkpoint.heads import Head, member_heads
from hydractl.circuit.head_files import circuit_json
from hydractl.circuit.modes import Exact, HeadMap, Shortlist
from hydractl.circuit.objective import OBJECTIVES
from hydractl.circuit.ranking import Mode, Ranking, Search, Shortcut
from hydractl.circuit.saliency import gate_scores
from hydractl.circuit.search import ablate, extract_circuits
from hydractl.model.hydra import without_heads
from tests.circuit.conftest import Case
from tests.circuit.naive import Naive, score

BUDGET = 4


def search_of(case: Case, mode: Mode) -> Search:
    return Search(tuple(member_heads(case.model.heads, 0)), BUDGET, mode)


def found_by(
    case: Case, search: Search, objectives: Sequence[str] = OBJECTIVES, batch_size: int = 100
) -> list[Ranking]:
    empty = [Ranking(objective) for objective in objectives]
    return extract_circuits(case.model, [case.data(batch_size)], search, empty)


@pytest.mark.parametrize("mode", [Exact(), Shortlist(shortlist=3), HeadMap()], ids=lambda mode: mode.name)
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


def layer_by_layer(
    naive: Naive, objective: str, shares: Sequence[tuple[str, int, int]], case: Case
) -> tuple[list[tuple[Head, float]], int]:
    """Wang et al.'s search with transformers' forward: the heads and their scores, and how many networks ran."""
    steps, ran = [], 0
    for tower, layer, share in shares:
        found = []
        for head in [h for h in naive.heads if (h.tower, h.layer) == (tower, layer)]:
            with naive.without([head]):
                measured = naive.measure(case.id_inputs, case.labels, case.ood_inputs)
            found.append((head, round(score(objective, *measured), 9)))
            ran += 1
        best = sorted(found, key=lambda entry: -entry[1])[:share]
        for head, _ in best:
            naive.turn(head, on=False)
        steps += best
    for head, _ in steps:
        naive.turn(head, on=True)
    return steps, ran


def test_headmap_goes_layer_by_layer(case: Case) -> None:
    shares = [("vision", 0, 2), ("vision", 1, 1), ("vision", 2, 1)]
    if "text" in case.model.heads:
        shares = [("text", layer, share) for _, layer, share in shares]
    if len(case.model.heads) == 2:  # CLIP: four heads over six layers
        shares = [("vision", 0, 1), ("vision", 1, 1), ("vision", 2, 1), ("text", 0, 1)]
    networks = []
    search = search_of(case, HeadMap())
    found = extract_circuits(
        case.model,
        [case.data()],
        search,
        [Ranking(objective) for objective in OBJECTIVES],
        on_round=lambda growing: lambda group, count: networks.extend(group),
    )
    naive = case.naive()
    for ranking in found:
        expected, ran = layer_by_layer(naive, ranking.objective, shares, case)
        assert [step.head for step in ranking.steps] == [head for head, _ in expected]
        for step, (_, value) in zip(ranking.steps, expected, strict=True):
            assert step.measure.score(ranking.objective) == pytest.approx(value, abs=1e-8)
    # The ID and the OOD batch; objectives go apart after the first layer at the earliest.
    assert 2 * ran <= len(networks) <= 3 * 2 * ran
