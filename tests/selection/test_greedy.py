from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.metrics import f1_score, log_loss, r2_score

from hydractl.metrics.arrays import FloatArray
from hydractl.selection.greedy import CandidateLogits, quality, select
from hydractl.tasks.all_tasks import find_task
from tests.circuit.naive import quality as naive_quality

N, CLASSES, CANDIDATES = 40, 3, 6


def random_answers(seed: int) -> CandidateLogits:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(CANDIDATES, N, CLASSES)).astype(np.float32)
    logits[4] = logits[1]  # candidates 1 and 4 tie
    return CandidateLogits(find_task("zero-shot"), logits, generator.integers(0, CLASSES, N))


def naive(answers: CandidateLogits, chosen: Sequence[int]) -> float:
    return naive_quality("nll", answers.labels, softmax(answers.logits[list(chosen)].astype(float), axis=-1).mean(0))


def costs(chosen: Sequence[int]) -> int:
    return sum(100 - k for k in chosen)


def naive_greedy(answers: CandidateLogits, members: int) -> list[int]:
    chosen: list[int] = []
    while len(chosen) < members:
        trials = [k for k in range(CANDIDATES) if k not in chosen]
        scores = {k: naive(answers, [*chosen, k]) for k in trials}
        best = max(scores.values())
        tied = [k for k in trials if scores[k] > best - 1e-9]
        chosen.append(min(tied, key=lambda k: costs([*chosen, k])))
    return chosen


@pytest.mark.parametrize("seed", range(3))
def test_choices_are_those_of_a_naive_greedy_search(seed: int) -> None:
    answers = random_answers(seed)
    found = select(answers, (4, 4), costs)
    assert list(found.chosen) == naive_greedy(answers, 4)
    for count, step in enumerate(found.points, 1):
        assert -step.quality.nll == pytest.approx(naive(answers, found.chosen[:count]), abs=1e-9)
        assert step.multiply_adds == costs(found.chosen[:count])


def test_between_two_numbers_of_members_the_best_is_taken() -> None:
    answers = random_answers(3)
    found = select(answers, (1, CANDIDATES), costs)
    assert len(found.points) == CANDIDATES
    losses = [step.quality.nll for step in found.points]
    assert losses[found.members - 1] == min(losses)
    assert all(a != b for a, b in pairwise(losses))


def test_members_together_are_measured_as_their_task_is() -> None:
    """The mean of the members' probabilities or numbers; of words, the mean over sentences."""
    draw = np.random.default_rng(5)
    logits, chosen = draw.normal(size=(4, N, CLASSES)), [0, 2, 3]
    hot, numbers, classes = draw.integers(0, 2, (N, CLASSES)), draw.normal(size=(N, CLASSES)), draw.integers(0, 3, N)
    p = expit(logits[chosen]).mean(0)
    found = quality(CandidateLogits(find_task("multi-label-image-classification"), logits, hot), chosen)
    assert found.accuracy == pytest.approx(f1_score(hot, p >= 0.5, average="samples", zero_division=1), abs=1e-6)
    assert found.nll == pytest.approx(log_loss(hot.ravel(), p.ravel()), abs=1e-10)
    found = quality(CandidateLogits(find_task("text-regression"), logits, numbers), chosen)
    assert found.accuracy == pytest.approx(r2_score(numbers, logits[chosen].mean(0)), abs=1e-6)
    assert found.nll == pytest.approx(np.square(numbers - logits[chosen].mean(0)).mean(), abs=1e-10)
    found = quality(CandidateLogits(find_task("text-probability"), logits, expit(numbers)), chosen)
    assert found.accuracy == pytest.approx(r2_score(expit(numbers), p), abs=1e-6)
    lengths = np.array([1, 7, 12, N - 20])
    found = quality(CandidateLogits(find_task("token-classification"), logits, classes, words=lengths), chosen)
    p = softmax(logits[chosen], -1).mean(0)
    parts = np.split(np.arange(N), lengths.cumsum()[:-1])
    assert found.accuracy == pytest.approx(np.mean([(p.argmax(1) == classes)[own].mean() for own in parts]), abs=1e-6)
    loss = [-np.log(p[own, classes[own]]).mean() for own in parts]
    assert found.nll == pytest.approx(np.mean(loss), abs=1e-10)


def test_hydras_are_compared_each_at_the_temperature_that_fits_it() -> None:
    answers = replace(random_answers(1), temperature=None, members=[1, 2, 3])
    answers.logits[0, np.arange(N), answers.labels] += 2  # the network is sure, and mostly right
    for chosen, rows in [([0], [0]), ([1], [1, 2]), ([2, 0], [3, 4, 5, 0])]:
        logits = answers.logits[rows].astype(float)

        def nll(temperature: float, logits: FloatArray = logits) -> float:
            p = softmax(logits / temperature, axis=-1).mean(0)
            return float(log_loss(answers.labels, p, labels=range(CLASSES)))

        found = quality(answers, chosen)
        best = min(np.geomspace(0.05, 100, 800), key=nll)
        assert found.nll == pytest.approx(nll(best), abs=1e-4)
        right = softmax(logits / best, axis=-1).mean(0).argmax(-1) == answers.labels
        assert found.accuracy == pytest.approx(right.mean(), abs=1 / N)
    curve = select(answers, (1, 1), costs)
    assert curve.chosen == (0,)
