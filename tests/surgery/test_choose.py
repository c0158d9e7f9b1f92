import pytest

from hydractl.checkpoint.heads import Head, Unit, layer_budgets, number_of_heads
from hydractl.errors import OptionError
from hydractl.surgery.choose import at_random, by_ranking, by_scores, dealt

HEADS = [Head("vision", layer, head) for layer in range(3) for head in range(4)]


def test_lowest_scores_go_first_and_ties_in_candidate_order_vision_before_text() -> None:
    scores = {head: float(head.head) for head in HEADS}
    assert by_scores(scores, 4) == [Head("vision", *place) for place in ((0, 0), (1, 0), (2, 0), (0, 1))]
    heads = [Head("text", 0, 0), Head("vision", 0, 0)]
    assert by_scores(dict.fromkeys(heads, 1.0), 1) == [Head("vision", 0, 0)]


def test_scope_layer_spreads_the_budget() -> None:
    scores = {head: float(head.layer * 4 - head.head) for head in HEADS}
    dropped = by_scores(scores, 7, "layer")
    assert [sum(head.layer == layer for head in dropped) for layer in range(3)] == [3, 2, 2]
    assert Head("vision", 2, 3) in dropped and Head("vision", 2, 0) not in dropped


def test_layers_that_run_out_leave_their_share_to_others() -> None:
    heads = [head for head in HEADS if head.layer != 1 or head.head == 0]
    assert layer_budgets(heads, 7) == {("vision", 0): 3, ("vision", 1): 1, ("vision", 2): 3}


def test_a_pool_is_the_first_of_the_ranking() -> None:
    ranking = HEADS[::-1]
    assert by_ranking(ranking, 3) == ranking[:3]
    for seed in range(20):
        drawn = by_ranking(ranking, 3, pool=5, seed=seed)
        assert len(set(drawn)) == 3 and set(drawn) <= set(ranking[:5])
    assert by_ranking(ranking, 3, pool=5, seed=1) == by_ranking(ranking, 3, pool=5, seed=1)
    assert len({tuple(by_ranking(ranking, 3, pool=5, seed=seed)) for seed in range(20)}) > 5


def test_budgets_that_cannot_be_met_are_refused() -> None:
    with pytest.raises(OptionError, match="`budget` 13"):
        at_random(HEADS, 13, 0)
    with pytest.raises(OptionError, match="ranks 12 heads"):
        by_ranking(HEADS, 4, pool=20)
    with pytest.raises(OptionError, match="`pool`.*`budget`"):
        by_ranking(HEADS, 4, pool=3)


def test_members_share_the_best_units_and_divide_the_others() -> None:
    units = [Unit("vision", layer, unit) for layer in range(2) for unit in range(12)]
    scores = {unit: float(unit.unit) for unit in units}

    def kept(keep: int) -> list[list[int]]:
        gone = dealt(scores, by_scores(scores, 24 - 2 * keep, "layer"), 3)
        return [[unit.unit for unit in units if unit not in set(lost) and unit.layer == 1] for lost in gone]

    assert kept(4) == [[6, 9, 10, 11], [5, 8, 10, 11], [4, 7, 10, 11]]
    # Those that are left do not last for all: the best of them are in several members.
    assert kept(8) == [[1, 4, 6, 7, 8, 9, 10, 11], [0, 3, 6, 7, 8, 9, 10, 11], [2, 5, 6, 7, 8, 9, 10, 11]]


def test_shares_have_decimals() -> None:
    assert [number_of_heads(share, 1000) for share in ("26.7%", "33%", "0.04%", "100%")] == [267, 330, 0, 1000]
    assert {number_of_heads(share, 1000) for share in ("100.1%", "1.5", ".5%", "5.%")} == {None}


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_random_draws_follow_the_seed(scope: str) -> None:
    draws = [at_random(HEADS, 5, seed, scope) for seed in (0, 0, 1)]  # type: ignore[arg-type]
    assert draws[0] == draws[1] != draws[2]
    assert all(len(set(draw)) == 5 for draw in draws)
