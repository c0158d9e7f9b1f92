import pytest

from hydractl.checkpoint.heads import Head
from hydractl.circuit.separation import Separation, separated, shown_heads
from hydractl.errors import OptionError

FOUND = {Head("vision", at, head): Separation(2.0 * at + head, float(head)) for at in (0, 1) for head in (0, 1)}


def test_means_over_kept_and_dropped_heads_by_hand() -> None:
    ranking = [Head("text", 1, 0), Head("vision", 1, 1), Head("vision", 0, 0)]
    result = separated(FOUND, ranking)
    assert result.dropped == (Head("vision", 1, 1), Head("vision", 0, 0))
    last, whole = result.last, result.all
    assert (last["kept"].heads, last["kept"].euclidean, last["kept"].mahalanobis) == (1, 2.0, 0.0)
    assert (last["dropped"].heads, last["dropped"].euclidean, last["dropped"].mahalanobis) == (1, 3.0, 1.0)
    assert (whole["kept"].heads, whole["kept"].euclidean, whole["kept"].mahalanobis) == (2, 1.5, 0.5)
    assert (whole["dropped"].euclidean, whole["dropped"].mahalanobis) == (1.5, 0.5)
    low = separated(FOUND, [Head("vision", 0, 0)]).last["dropped"]
    assert (low.heads, low.euclidean, low.mahalanobis) == (0, None, None)


def test_there_must_be_heads_on_both_sides() -> None:
    for ranking, which in (([Head("text", 0, 0)], "none"), (list(FOUND), "all")):
        with pytest.raises(OptionError, match=f"drops {which} of the 4 heads"):
            separated(FOUND, ranking)


@pytest.mark.parametrize(("count", "each"), [(1, (1, 0)), (5, (2, 2)), (30, (6, 6))])
def test_six_of_each_end_are_shown_and_none_twice(count: int, each: tuple[int, int]) -> None:
    heads = [Head("vision", 0, head) for head in range(count)]
    first, last = shown_heads(heads)
    assert (len(first), len(last)) == each
    assert first == heads[: each[0]] and last == heads[count - each[1] :]
