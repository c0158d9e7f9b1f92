"""What a file promises of its answers holds on fresh samples, in all and by class."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hydractl.calibration.promises import Sure, WantedPromises, fit_sets, fit_sure, measure_sure
from hydractl.checkpoint.calibration import OodFit
from hydractl.errors import DataError
from hydractl.metrics.scaling import prediction_sets
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers

NAMES = ("cat", "dog", "owl")
DRAWS, FRESH = 400, 200


def answered(p: NDArray[Any], labels: NDArray[np.int64], sentences: NDArray[np.int64] | None = None) -> Answers:
    """Answers with these probabilities; to words, where they have sentences."""
    if sentences is None:
        return Answers(
            task=find_task("image-classification"), member_logits=np.log(p)[None], truth=labels, classes=NAMES
        )
    places = np.stack([sentences, np.arange(len(p))], -1)
    task, names = find_task("token-classification"), ("O", "B-PER")
    return Answers(task=task, member_logits=np.log(p)[None], truth=labels, classes=names, places=places)


def drawn(count: int, seed: int) -> Answers:
    """Answers of a network that knows dogs well and owls hardly, to samples of which few are owls."""
    random = np.random.default_rng(seed)
    labels = random.choice(3, count, p=[0.5, 0.3, 0.2])
    logits = random.normal(size=(count, 3))
    logits[np.arange(count), labels] += np.array([1.5, 3.0, 1.0])[labels]
    p = np.exp(logits)
    return answered((p / p.sum(-1, keepdims=True)).astype(np.float32), labels)


def pairs(count: int) -> Iterator[tuple[Answers, Answers]]:
    for seed in range(DRAWS):
        yield drawn(count, seed), drawn(FRESH, 10_000 + seed)


@pytest.mark.parametrize("coverage", [0.9, 0.95])
@pytest.mark.parametrize("by_class", [False, True])
def test_sets_cover_fresh_samples_as_promised(coverage: float, by_class: bool) -> None:
    shares = []
    for known, fresh in pairs(200):
        sets = fit_sets(known, WantedPromises(sets=coverage, by_class=by_class))
        assert sets is not None and (sets.samples, len(sets.least)) == (200, 3 if by_class else 1)
        found = prediction_sets(fresh.mean_p, fresh.labelled[1], sets.least, coverage, NAMES)
        shares.append([found.coverage, *(found.by_class[name].coverage for name in NAMES)])
    means, errors = np.mean(shares, axis=0), np.std(shares, axis=0) / DRAWS**0.5
    kept = means > coverage - 4 * errors
    assert kept[0] and kept[1:].all() == by_class  # without it, owls are covered less than promised
    if not by_class:
        assert means[0] < coverage + 1 / 201 + 4 * errors[0]


@pytest.mark.parametrize("by_class", [False, True])
def test_sure_answers_are_right_as_promised(by_class: bool) -> None:
    broken, fresh = list[bool](), drawn(20_000, 10_000)
    msp, right, best, _ = fresh.task.claims(fresh)
    for seed in range(DRAWS):
        sure = fit_sure(drawn(900, seed), WantedPromises(accuracy=0.6, by_class=by_class))
        assert sure is not None
        for one, least in enumerate(sure):
            chosen = (msp >= least) & (best == one if by_class else True)
            broken.append(right[chosen].mean() < 0.6)
    # One in twenty by the bound, a little more as the confidence is chosen among many.
    assert np.mean(broken) < 0.08


def test_four_spans_of_a_text_that_are_right_together_count_as_one() -> None:
    # 380 of 400 show nine in ten, 95 of 100 do not.
    p, right = np.full((400, 2), [0.1, 0.9]), np.repeat(np.arange(100) >= 5, 4)
    labels, wanted = right.astype(np.int64), WantedPromises(accuracy=0.9)
    assert fit_sure(answered(p, labels, np.arange(400)), wanted) == pytest.approx((0.9,))
    with pytest.raises(DataError, match="no confidence threshold"):
        fit_sure(answered(p, labels, np.repeat(np.arange(100), 4)), wanted)


def test_too_few_samples_are_refused_with_the_number_it_takes() -> None:
    known = drawn(60, 0)
    owls = int((known.labelled[1] == 2).sum())
    assert owls < 19
    assert fit_sets(known, WantedPromises(sets=0.95)) is not None
    with pytest.raises(DataError, match=rf"at least 19 .* of each class, but there are {owls} of class 'owl'"):
        fit_sets(known, WantedPromises(sets=0.95, by_class=True))
    with pytest.raises(DataError, match="at least 99 calibration samples, but there are 60: give"):
        fit_sets(known, WantedPromises(sets=0.99))
    with pytest.raises(DataError, match="at least 299 answers, but there are 60"):
        fit_sure(known, WantedPromises(accuracy=0.99))
    with pytest.raises(DataError, match=r"at least \d+ answers of each class, but there are \d+ of class 'owl'"):
        fit_sure(known, WantedPromises(accuracy=0.9, by_class=True))
    with pytest.raises(DataError, match="no confidence threshold makes answers of class 'owl' right 90 % of the time"):
        fit_sure(drawn(900, 0), WantedPromises(accuracy=0.9, by_class=True))


def test_words_without_a_span_have_no_share_of_sure_ones() -> None:
    fit = OodFit("msp", 9, 0.95, accuracy=0.9, confidence=0.6)
    outside, span = np.float32([[0.7, 0.3]] * 3), np.float32([[0.7, 0.3], [0.2, 0.8], [0.4, 0.6]])
    labels = sentences = np.array([0, 1, 1])
    assert measure_sure(answered(outside, labels, sentences), fit) is None
    assert measure_sure(answered(span, labels, sentences), fit) == Sure(0.9, 1.0, 1.0)
