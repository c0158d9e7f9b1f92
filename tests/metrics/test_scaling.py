import math

import numpy as np
import pytest
from scipy.special import softmax

from hydractl.metrics import scaling
from hydractl.metrics.classification import classification_metrics, tabulate
from hydractl.metrics.scaling import ClassSets, fit_temperature, least_probability, prediction_sets


def test_by_hand():
    # Right three times in four at logits 2 to 0: p = 3/4 needs 2 / T = log 3.
    logits = np.tile([2.0, 0.0], (1, 4, 1))
    fitted = fit_temperature(logits, np.array([0, 0, 0, 1]))
    assert fitted.temperature == pytest.approx(2 / math.log(3), rel=1e-6)
    assert fitted.nll_after == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25), abs=1e-12)
    assert not fitted.at_bound


@pytest.mark.parametrize("members", [1, 2, 3])
def test_no_temperature_nearby_or_far_is_better(ensemble, members):
    logits, labels = ensemble[0][:members] * 3, ensemble[1]
    fitted = fit_temperature(logits, labels)

    def nll(temperature):
        return classification_metrics(tabulate(logits, labels, temperature)).nll

    assert fitted.nll_before == pytest.approx(nll(1.0), abs=1e-12)
    assert fitted.nll_after == pytest.approx(nll(fitted.temperature), abs=1e-12)
    assert fitted.nll_after < fitted.nll_before
    others = [*np.geomspace(*scaling.BOUNDS, 60), *(fitted.temperature * np.array([0.999, 1.001]))]
    assert min(nll(other) for other in others) > fitted.nll_after


@pytest.mark.parametrize(
    ("right", "wrong", "small", "large", "valley"),
    [(4, 1, 0.1, 1000.0, 1157.6), (9, 2, 0.01, 100.0, 0.0113), (9, 2, 1.0, 10.0, 1.105)],
)
def test_the_deepest_of_several_valleys_is_found(right, wrong, small, large, valley):
    # A member of small margins and one of large margins, each with errors of its own: one valley for each.
    timid = np.array([[small, 0.0]] * (right + wrong))
    bold = np.array([[large, 0.0]] * right + [[0.0, large]] * wrong)
    logits, labels = np.array([timid, bold]), np.array([1] * wrong + [0] * right)
    fitted = fit_temperature(logits, labels)
    losses = [classification_metrics(tabulate(logits, labels, t)).nll for t in np.geomspace(*scaling.BOUNDS, 600)]
    assert sum(a > b < c for a, b, c in zip(losses, losses[1:], losses[2:], strict=False)) == 2
    assert fitted.nll_after <= min(losses)
    assert fitted.temperature == pytest.approx(valley, rel=0.05)


def test_separable_data_leave_the_temperature_alone_and_say_so():
    logits = np.array([[[0.01, 0.0], [0.0, 0.01]]])
    fitted = fit_temperature(logits, np.array([0, 1]))
    assert fitted.at_bound
    assert fitted.temperature == 1
    assert fitted.nll_after == fitted.nll_before > 0


def test_how_many_predictions_it_changes() -> None:
    generator = np.random.default_rng(0)
    logits = 5 * generator.normal(size=(3, 400, 4)).astype(np.float32)
    labels = generator.integers(0, 4, 400)
    found = fit_temperature(logits, labels)
    wide = logits.astype(np.float64)
    before, after = (softmax(wide / t, axis=-1).mean(0).argmax(-1) for t in (1.0, found.temperature))
    assert found.argmax_changed == (before != after).mean() > 0
    assert fit_temperature(logits[:1], labels).argmax_changed == 0


@pytest.mark.parametrize("coverage", [0.5, 0.75, 0.9, 0.95, 0.99, 0.999])
def test_a_promise_takes_so_many_samples_and_no_fewer(coverage: float) -> None:
    enough = scaling.least_samples(coverage)
    assert least_probability(np.ones(enough), coverage) == 1
    assert least_probability(np.ones(enough - 1), coverage) is None


def test_sets_by_hand() -> None:
    p = np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.1, 0.45, 0.45], [0.4, 0.35, 0.25]])
    labels = np.array([0, 1, 2, 2])
    found = prediction_sets(p, labels, [0.3], 0.9, "abc")
    # Sets: ab, ab, bc, ab.
    by_class = {"a": ClassSets(1, 1.0, 2.0), "b": ClassSets(1, 1.0, 2.0), "c": ClassSets(2, 0.5, 2.0)}
    assert found == scaling.ConformalMetrics(0.75, 2.0, 0.9, worst_class=0.5, by_class=by_class)
    # With a probability for each class: the predicted one is in the set whatever its own.
    each = prediction_sets(p, labels, [0.6, 0.3, 0.2], 0.9, "abc")
    assert (each.coverage, each.mean_size) == (1.0, 2.75)  # abc, abc, bc, abc
