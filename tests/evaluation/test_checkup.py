from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import binom

from hydractl.calibration.promises import WantedPromises, fit_sets, fit_sure
from hydractl.checkpoint.calibration import Calibration, FittedOod, OodFit
from hydractl.evaluation.checkup import CheckedPromise, accepted, promises_of
from hydractl.metrics.arrays import FloatArray
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers, Trials

SPLITS = 200


def drawn(count: int, seed: int, noise: float = 0.0) -> tuple[Answers, FloatArray]:
    """Answers whose probabilities are right, but for labels that are none of the network's, and OOD scores."""
    generator = np.random.default_rng(seed)
    logits = 8 * generator.normal(size=(count, 5))
    gumbel = generator.gumbel(size=logits.shape)
    labels = np.where(generator.random(count) < noise, generator.integers(5, size=count), (logits + gumbel).argmax(-1))
    logits = log_softmax(logits, -1)
    answers = Answers(task=find_task("text-classification"), member_logits=logits[None], truth=labels)
    return answers, generator.normal(size=count)


def judged(
    seed: int, by_class: bool, fitted: int = 300, fresh: int = 400, noise: float = 0.0
) -> tuple[CheckedPromise, ...]:
    """The promises of a calibration set on fresh answers."""
    answers, scores = drawn(fitted, seed)
    wanted = WantedPromises(accuracy=0.9, sets=0.9, by_class=by_class)
    least = fit_sure(answers, wanted)
    assert least is not None
    fit = OodFit("msp", fitted, 0.95, 0.9, *((None, None, least) if by_class else (least[0],)))
    calibration = Calibration(sets=fit_sets(answers, wanted), ood=FittedOod(fit, {}))
    answers, others = drawn(fresh, seed + 10**6, noise)
    typical = (1 + (scores >= others[:, None]).sum(-1)) / (fitted + 1)
    flags = typical < 0.05 - 1e-6
    return promises_of(replace(answers, calibration=calibration), [accepted(fit, fitted, flags)])


@pytest.mark.parametrize("by_class", [False, True])
def test_at_most_one_good_split_in_twenty_gives_a_false_alarm(by_class: bool) -> None:
    fitted = 2000 if by_class else 300
    alarms = [any(each.state == "broken" for each in judged(seed, by_class, fitted)) for seed in range(SPLITS)]
    assert sum(alarms) <= SPLITS // 20


def test_promises_that_fail_often_are_found_broken() -> None:
    found = [each for seed in range(20) for each in judged(seed, by_class=False, fitted=1000, fresh=2000, noise=0.25)]
    states = {name: [each.state for each in found if each.name == name] for name in ("accept", "accuracy", "sets")}
    assert states["sets"].count("broken") >= 18 and states["accuracy"].count("broken") >= 18
    assert states["accept"].count("broken") <= 1


def test_intervals_of_good_numbers_are_kept() -> None:
    task, alarms = find_task("text-regression"), 0
    for seed in range(SPLITS):
        generator = np.random.default_rng(seed)
        values, errors = generator.normal(size=(2, 600, 1))
        truth = values + errors
        answers = Answers(task=task, member_logits=values[None, :200], truth=truth[:200])
        calibration = replace(task.fit(answers).calibration(Calibration()), ood=FittedOod(OodFit("msp", 200, 0.95), {}))
        fresh = replace(answers, member_logits=values[None, 200:], truth=truth[200:], calibration=calibration)
        alarms += any(each.state == "broken" for each in promises_of(fresh, []))
    assert alarms <= SPLITS // 20


def test_cases_that_come_in_fours_count_as_one() -> None:
    answers, _ = drawn(400, seed=0)
    trials = Trials("accuracy", 0.9, np.arange(400) >= 56, fitted=4000, effect=4.0)
    alike = Trials("accuracy", 0.9, np.arange(100) >= 14, fitted=1000)
    [each], [alone] = (promises_of(replace(answers, truth=None), [cases]) for cases in (trials, alike))
    assert alone == replace(each, cases=100)
    assert promises_of(replace(answers, truth=None), [trials._replace(effect=1.0)])[0].state == "broken" != each.state


def test_with_endless_calibration_samples_chance_is_binomial() -> None:
    answers, _ = drawn(400, seed=0)
    kept = np.arange(400) >= 29
    [promise] = promises_of(replace(answers, truth=None), [Trials("accept", 0.95, kept, chance=(5e8, 9.5e9))])
    allowed = binom.isf(0.025, 400, 0.05)  # the most failures whose tail is beyond 2.5 %
    assert promise.least == pytest.approx(1 - allowed / 400) and promise.state == "kept"
    [promise] = promises_of(replace(answers, truth=None), [Trials("accept", 0.95, kept, chance=(3.0, 58.0))])
    assert promise.needed is None and promise.state == "too few to tell"  # 60 calibration samples show nothing
