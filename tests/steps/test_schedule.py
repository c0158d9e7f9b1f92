from dataclasses import replace

import pytest

from hydractl.pipeline.schedule import FIT, OVERHEAD, RESAMPLED, Sizes, fitting, seconds_of
from hydractl.pipeline.trial import Speed, TrainingTime

#: ViT-B's heads, on as many samples as CIFAR-10's validation split has.
SIZES = Sizes(
    heads=144,
    features=12 * 768,
    members=3,
    systems=2,
    budgets=3,
    inside=1250,
    outside=[1000],
    measured=[1250, 1000],
    speed=Speed(0.0, 0.0, 0.0, 0.0),
)


def of_speed(sample: float) -> Sizes:
    return replace(SIZES, speed=Speed(0.0, sample, sample, 0.5 * sample))


def plan(sample: float, minutes: float | None = 30, **given: object) -> dict[str, object]:
    sizes = of_speed(sample)
    found = fitting(sizes, given, None if minutes is None else 60 * minutes)
    if minutes is not None and sample < 0.1 and not given:
        assert sizes.seconds(found) <= 60 * minutes
    return found


def test_the_richest_plan_that_fits() -> None:
    assert plan(1e-6) == {"limit": None, "random": 12, "search": "exact", "search_samples": 500, "draws": 4}
    assert plan(1.0, None) == plan(1e-6)
    searches = [plan(sample)["search"] for sample in (1e-6, 5e-4, 5e-3)]
    assert searches == ["exact", "shortlist", "none"]
    assert plan(0.05) == {"limit": 500, "random": 6, "search": "none", "search_samples": 200, "draws": 4}


@pytest.mark.parametrize("busy", [1.0, 3.0])
def test_the_estimate_is_what_the_plan_implies_and_not_the_time_it_may_take(busy: float) -> None:
    sizes = Sizes(
        heads=4,
        features=100,
        members=3,
        systems=2,
        budgets=2,
        inside=1000,
        outside=[100],
        measured=[50],
        speed=Speed(read=1.0, candidate=10.0, member=100.0, searched=1000.0, busy=busy),
    )
    fixed = OVERHEAD + FIT * 100 * 4 * 300 + RESAMPLED * 2 * 50  # of 300 samples of each step and 50 of the last
    unsearched = {"limit": 200, "random": 5, "search": "none", "search_samples": 30, "draws": 4}
    expected = fixed + 1 * (300 + 2 * 350) + 10 * 11 * 300 + 100 * 4 * 350
    assert sizes.seconds(unsearched) == pytest.approx(busy * expected)
    # Three objectives drop 2 of 4 heads: all measure the same 4 networks first, then each 3 others, on 30 + 30 samples.
    searched = unsearched | {"search": "exact"}
    more = 1 * 60 + 10 * (2 * 3 * 9) * 300 + 1000 * (4 + 3 * 3) * 60
    assert sizes.seconds(searched) == pytest.approx(busy * (expected + more))


def test_more_time_never_takes_less() -> None:
    costs = [of_speed(1.0).seconds(plan(0.004, minutes)) for minutes in (5, 30, 120, 600)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def test_what_is_given_stands_and_without_ood_data_there_are_no_circuits() -> None:
    found = plan(1.0, search="exact", random=3, limit=77)
    assert (found["search"], found["random"], found["limit"]) == ("exact", 3, 77)
    assert fitting(replace(SIZES, outside=[]), {}, None)["search"] == "none"


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("none", None)])
def test_times(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


#: Three trainings of networks that take a tenth of a second a step.
TRAINING = TrainingTime(start=2.0, step=0.1, trainings=3, networks=3.0, most=20_000, samples=50_000)


@pytest.mark.parametrize("minutes", [5, 30, 120])
def test_training_is_in_the_time_and_its_length_follows_from_it(minutes: float) -> None:
    sizes = replace(of_speed(0.002), training=TRAINING)
    found = fitting(sizes, {}, 60 * minutes)
    assert 0.95 * 60 * minutes <= sizes.seconds(found) <= 60 * minutes
    assert TRAINING.seconds(found["steps"]) >= 0.5 * 60 * minutes


def test_training_is_as_long_as_is_given_or_as_a_few_epochs_take() -> None:
    given = replace(of_speed(0.002), training=replace(TRAINING, steps=2500))
    found = fitting(given, {}, 1800)
    assert found["steps"] == 2500 and given.seconds(found) <= 1800
    open_ended = replace(given, training=TRAINING)
    assert fitting(open_ended, {}, None)["steps"] == fitting(open_ended, {}, 10**7)["steps"] == TRAINING.most
