"""Selection makes the choices of a greedy search written down naively, ties included."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from hydractl.selection.candidates import OBJECTIVES, SelectionObjective
from hydractl.selection.greedy import CandidateLogits, Goal, quality, select

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
    mean = softmax(answers.inside[list(chosen)].astype(float), axis=-1).mean(0)
    if objective == "nll":
        return -log_loss(answers.labels, mean, labels=range(CLASSES))
    if objective == "acc":
        return accuracy_score(answers.labels, mean.argmax(-1))
    if objective == "avg":
        return (naive(answers, chosen, "acc") + naive(answers, chosen, "ood")) / 2
    aurocs = []
    for logits in answers.outside:
        out = softmax(logits[list(chosen)].astype(float), axis=-1).mean(0)
        scores = np.concatenate([-mean.max(-1), -out.max(-1)])
        aurocs.append(roc_auc_score([0] * N + [1] * OUTSIDE, scores))
    return float(np.mean(aurocs))


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
