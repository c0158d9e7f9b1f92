from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import softmax

from hydractl.selection.candidates import OBJECTIVES, SelectionObjective
from hydractl.selection.greedy import CandidateLogits, Goal, quality, select
from tests.circuit.naive import quality as naive_quality

N, OUTSIDE, CLASSES, CANDIDATES = 40, 25, 3, 6


def random_answers(seed: int, sets: int = 2) -> CandidateLogits:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(CANDIDATES, N, CLASSES)).astype(np.float32)
    logits[4] = logits[1]  # candidates 1 and 4 tie
    outside = [generator.normal(size=(CANDIDATES, OUTSIDE, CLASSES)).astype(np.float32) for _ in range(sets)]
    for scores in outside:
        scores[4] = scores[1]
    return CandidateLogits(logits, generator.integers(0, CLASSES, N), outside)


def naive(answers: CandidateLogits, chosen: Sequence[int], objective: str) -> float:
    sets = (answers.inside, *answers.outside)
    means = [softmax(logits[list(chosen)].astype(float), axis=-1).mean(0) for logits in sets]
    return naive_quality(objective, answers.labels, *means)


def costs(chosen: Sequence[int]) -> int:
    return sum(100 - k for k in chosen)


def naive_greedy(answers: CandidateLogits, objective: str, members: int) -> list[int]:
    chosen: list[int] = []
    while len(chosen) < members:
        trials = [k for k in range(CANDIDATES) if k not in chosen]
        scores = {k: naive(answers, [*chosen, k], objective) for k in trials}
        best = max(scores.values())
        tied = [k for k in trials if scores[k] > best - 1e-9]
        chosen.append(min(tied, key=lambda k: costs([*chosen, k])))
    return chosen


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(3))
def test_choices_are_those_of_a_naive_greedy_search(objective: SelectionObjective, seed: int) -> None:
    answers = random_answers(seed)
    found = select(answers, Goal(objective), (4, 4), costs)
    assert list(found.chosen) == naive_greedy(answers, objective, 4)
    for count, step in enumerate(found.points, 1):
        wanted = naive(answers, found.chosen[:count], objective)
        assert float(step.quality.score(objective)) == pytest.approx(wanted, abs=1e-9)
        assert step.multiply_adds == costs(found.chosen[:count])


def test_between_two_numbers_of_members_the_best_is_taken() -> None:
    answers = random_answers(3)
    found = select(answers, Goal("nll"), (1, CANDIDATES), costs)
    assert len(found.points) == CANDIDATES
    losses = [step.quality.nll for step in found.points]
    assert losses[found.members - 1] == min(losses)
    assert all(a != b for a, b in pairwise(losses))


def test_accuracy_is_kept_where_it_can_be() -> None:
    answers = random_answers(1)
    best = max(quality(answers, [k]).accuracy for k in range(CANDIDATES))
    found = select(answers, Goal("ood", Fraction(best).limit_denominator(N)), (1, 3), costs)
    assert found.quality.accuracy >= best
    out_of_reach = select(answers, Goal("ood", Fraction(1)), (1, 1), costs)
    assert out_of_reach.quality.accuracy == best
