from collections.abc import Mapping
from dataclasses import replace

import pytest

from hydractl.analysis.overlap import HeadList, first_dropped, heads_of, layer_divergence, overlaps, sizes
from hydractl.checkpoint.heads import Head
from hydractl.circuit.ranking import Restriction
from hydractl.errors import ArtifactError, OptionError


def heads(*places: tuple[int, int], tower: str = "vision") -> tuple[Head, ...]:
    return tuple(Head(tower, layer, head) for layer, head in places)


def circuit(
    name: str, ranking: tuple[Head, ...], sha256: str | None = None, towers: Mapping[str, tuple[int, int]] | None = None
) -> HeadList:
    first = ranking.__getitem__
    return HeadList(name, "circuit", None, len(ranking), lambda n: first(slice(n)), sha256=sha256, towers=towers or {})


def test_divergence_in_bits() -> None:
    halves, first = heads((0, 0), (1, 0)), heads((0, 1), (0, 2))
    # Halves against all in layer 0; the middle is (3/4, 1/4), so ½(½ log2 ⅔ + ½ log2 2) + ½ log2 4/3.
    assert layer_divergence(halves, first) == pytest.approx(0.311278124459, abs=1e-12)
    assert layer_divergence(first, halves) == layer_divergence(halves, first)
    # Which head of a layer goes does not matter, nor how many heads there are.
    assert layer_divergence(first, heads((0, 3))) == 0.0
    assert layer_divergence(heads((0, 0)), heads((1, 0))) == 1.0
    # Layer 0 of another tower is another layer.
    assert layer_divergence(heads((0, 0)), heads((0, 0), tower="text")) == 1.0


def test_what_random_choices_from_the_same_heads_share() -> None:
    dropped = {"whole": heads((0, 0), (1, 0)), "low": heads((0, 0), (0, 1)), "high": heads((2, 0), (2, 1))}
    every = heads_of({"vision": (3, 4)})
    low = replace(circuit("low", dropped["low"]), restriction=Restriction("vision", "0-1"))
    high = replace(circuit("high", dropped["high"]), restriction=Restriction(layers="2"))
    whole = circuit("whole", dropped["whole"])
    pools = {one.name: one.restriction.among(every) for one in (whole, low, high)}
    assert [len(pool) for pool in pools.values()] == [12, 8, 4]
    # Each of the 8 heads that the first two choose from is in 2 of 12 and in 2 of 8; the last two choose from none.
    found = {pair.names: pair.by_chance for pair in overlaps(dropped, pools)}
    expected = {("whole", "low"): 8 * 2 / 12 * 2 / 8, ("whole", "high"): 4 * 2 / 12 * 2 / 4, ("low", "high"): 0.0}
    assert found == pytest.approx(expected)


def test_as_many_steps_as_all_have_unless_fewer_are_asked_for() -> None:
    long, short = circuit("long", heads((0, 0), (1, 1), (2, 2))), circuit("short", heads((2, 0), (0, 1)))
    assert first_dropped([long, short], None) == [long.first(2), short.first(2)]
    assert first_dropped([long, short], 1) == [long.first(1), short.first(1)]
    with pytest.raises(OptionError, match="`budget` 3: short ranks 2 heads"):
        first_dropped([long, short], 3)
    with pytest.raises(OptionError, match="an overlap needs"):
        first_dropped([long], None)
    with pytest.raises(ArtifactError, match="^none: drops no head"):
        first_dropped([long, circuit("none", ())], None)


def test_a_model_lacks_as_many_as_it_does_and_scores_rank_all() -> None:
    ranked = circuit("ranked", heads((0, 0), (1, 1), (2, 2)))
    model, scores = replace(circuit("m", heads((2, 0), (0, 1))), kind="model"), replace(ranked, kind="scores")
    assert first_dropped([scores, ranked, model], None) == [ranked.first(2), ranked.first(2), model.first(2)]
    with pytest.raises(OptionError, match="`budget` 1: m lacks 2 heads"):
        first_dropped([ranked, model], 1)
    with pytest.raises(OptionError, match="head scores rank every head"):
        first_dropped([scores, scores], None)


def test_circuits_of_different_models_have_nothing_in_common() -> None:
    by_hand = circuit("hand", heads((0, 0)))
    vit = circuit("vit", heads((0, 0)), "a" * 64, {"vision": (12, 16)})
    bert = circuit("bert", heads((0, 0)), "b" * 64)
    assert first_dropped([by_hand, vit], None) == [by_hand.first(1), vit.first(1)]
    with pytest.raises(ArtifactError, match="^bert: is of another model .* than vit"):
        first_dropped([by_hand, vit, bert], None)
    assert sizes([by_hand, vit]) == {"vision": (12, 16)}
    assert sizes([by_hand, circuit("text", heads((3, 5), tower="text"))]) == {"vision": (1, 1), "text": (4, 6)}
