import math

import numpy as np
import pytest
import sklearn
from packaging.version import Version
from scipy.optimize import approx_fprime
from scipy.special import logsumexp, softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from hydractl.metrics.arrays import mean_probabilities
from hydractl.metrics.classification import classification_metrics, tabulate
from hydractl.metrics.scaling import (
    BOUNDS,
    ClassSets,
    ConformalMetrics,
    fit_temperature,
    fit_vector,
    least_probability,
    least_samples,
    prediction_sets,
)


def test_by_hand():
    # Right three times in four at logits 2 to 0: p = 3/4 needs 2 / T = log 3.
    logits = np.tile([2.0, 0.0], (1, 4, 1))
    fitted = fit_temperature(logits, np.array([0, 0, 0, 1]))

    assert fitted.temperature == pytest.approx(2 / math.log(3), rel=1e-6)
    assert fitted.nll_after == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25), abs=1e-12)
    assert not fitted.at_bound


@pytest.mark.skipif(Version(sklearn.__version__) < Version("1.8"), reason="this scikit-learn fits no temperature")
def test_one_member_equals_scikit_learn(ensemble):
    logits, labels = ensemble[0][0].astype(np.float64), ensemble[1]
    # A linear classifier whose decision function is the logits it is given.
    identity = LogisticRegression()
    identity.classes_, identity.coef_, identity.intercept_ = np.arange(10), np.eye(10), np.zeros(10)
    theirs = CalibratedClassifierCV(FrozenEstimator(identity), method="temperature").fit(logits, labels)

    temperature = fit_temperature(logits[None], labels).temperature
    ours = mean_probabilities(logits[None], temperature)
    np.testing.assert_allclose(ours, theirs.predict_proba(logits), rtol=0, atol=1e-5)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_no_temperature_nearby_or_far_is_better(ensemble, members):
    logits, labels = ensemble[0][:members] * 3, ensemble[1]
    fitted = fit_temperature(logits, labels)

    def nll(temperature):
        return classification_metrics(tabulate(logits, labels, temperature)).nll

    assert fitted.nll_before == pytest.approx(nll(1.0), abs=1e-12)
    assert fitted.nll_after == pytest.approx(nll(fitted.temperature), abs=1e-12)
    assert fitted.nll_after < fitted.nll_before
    others = [*np.geomspace(*BOUNDS, 60), *(fitted.temperature * np.array([0.999, 1.001]))]
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

    losses = [classification_metrics(tabulate(logits, labels, t)).nll for t in np.geomspace(*BOUNDS, 600)]
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


def drawn(members: int, samples: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """Logits `[M,N,3]` that are too sure of the first class, and labels that they tell something of."""
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 3, samples)
    alike, own = generator.normal(size=(samples, 3)), generator.normal(size=(members, samples, 3))
    logits = 1.2 * np.eye(3)[labels] + alike + 0.3 * own
    return (logits * [3.0, 1.0, 0.5] + [1.0, 0.0, -0.5]).astype(np.float32), labels


def nll(point: np.ndarray, logits: np.ndarray, labels: np.ndarray) -> float:
    scaled = logits.astype(np.float64) * point[:3] + point[3:]
    log_p = scaled - logsumexp(scaled, axis=-1, keepdims=True)
    of_label = log_p[:, np.arange(len(labels)), labels]
    return float(-(logsumexp(of_label, axis=0) - np.log(len(logits))).mean())


def change(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The scales over the temperature's, less 1, and the shifts, `[6]`."""
    found = fit_vector(logits, labels)
    return np.r_[np.array(found.scale) * fit_temperature(logits, labels).temperature - 1, found.shift]


@pytest.mark.parametrize("members", [1, 3])
def test_scales_and_shifts_lower_the_loss_and_a_ridge_holds_them(members: int) -> None:
    logits, labels = drawn(members, 400)
    found, cool = fit_vector(logits, labels), 1 / fit_temperature(logits, labels).temperature
    plain, point = np.r_[np.ones(3), np.zeros(3)], np.r_[found.scale, found.shift]
    assert found.nll_before == pytest.approx(nll(plain, logits, labels), abs=1e-12)
    assert found.nll_after == pytest.approx(nll(point, logits, labels), abs=1e-12)
    assert found.nll_after < fit_temperature(logits, labels).nll_after < found.nll_before
    # Where the penalised loss is least, its slope is minus the ridge times each change: one ridge for scales, one for
    # shifts, of 10 a sample at least. (Shifts are moved to a mean of 0, along which the loss is level.)
    slope = approx_fprime(point, nll, 1e-7, logits, labels)
    for part, factor in ((slice(0, 3), cool), (slice(3, 6), 1.0)):
        changes = change(logits, labels)[part]
        ridge = -(slope[part] * factor) @ changes / (changes @ changes)
        assert slope[part] * factor == pytest.approx(-ridge * changes, abs=1e-5)
        assert ridge > 0.99 * 10 / 400
    wide = logits.astype(np.float64)
    before, after = (softmax(z, axis=-1).mean(0).argmax(-1) for z in (wide, wide * found.scale + found.shift))
    assert found.argmax_changed == (before != after).mean() > 0


def test_the_ridge_falls_with_samples() -> None:
    few, many = (np.abs(change(*drawn(1, samples))).sum() for samples in (40, 4000))
    assert few < many


@pytest.mark.parametrize(("classes", "samples"), [(2, 10), (10, 50), (10, 500), (50, 500)])
def test_classes_that_are_alike_keep_the_temperature(classes: int, samples: int) -> None:
    generator, losses, alike = np.random.default_rng(0), [], 0
    for _ in range(20):
        labels = generator.integers(0, classes, samples + 1000)
        logits = 3 * (generator.normal(size=(1, len(labels), classes)) + 2 * np.eye(classes)[labels])
        found, warm = (fit(logits[:, :samples], labels[:samples]) for fit in (fit_vector, fit_temperature))
        scaled, cooled = found.apply(logits[:, samples:]), logits[:, samples:] / warm.temperature
        losses.append([log_loss(labels[samples:], one[0]) for one in (scaled, cooled)])
        alike += len(set(found.scale)) == 1 and not any(found.shift)
    assert alike >= 17
    vector, temperature = np.mean(losses, axis=0)
    assert vector < 1.01 * temperature


def log_loss(labels: np.ndarray, logits: np.ndarray) -> float:
    return float((logsumexp(logits, axis=-1) - logits[np.arange(len(labels)), labels]).mean())


def test_data_that_cannot_tell_change_nothing() -> None:
    logits = np.eye(3, dtype=np.float32)[None].repeat(2, axis=0)
    found = fit_vector(logits, np.arange(3))
    assert (found.scale, found.shift, found.at_bound) == ((1.0, 1.0, 1.0), (0.0, 0.0, 0.0), True)
    assert found.nll_after == found.nll_before


@pytest.mark.parametrize(
    ("count", "coverage", "rank"), [(9, 0.9, 9), (10, 0.9, 10), (19, 0.9, 18), (99, 0.95, 95), (4, 0.5, 3)]
)
def test_the_threshold_has_the_corrected_rank_from_above(count: int, coverage: float, rank: int) -> None:
    right = np.random.default_rng(0).random(count)
    assert least_probability(right, coverage) == np.sort(right)[::-1][rank - 1]


@pytest.mark.parametrize("coverage", [0.5, 0.75, 0.9, 0.95, 0.99, 0.999])
def test_a_promise_takes_so_many_samples_and_no_fewer(coverage: float) -> None:
    enough = least_samples(coverage)
    assert least_probability(np.ones(enough), coverage) == 1
    assert least_probability(np.ones(enough - 1), coverage) is None


def test_sets_by_hand() -> None:
    p = np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.1, 0.45, 0.45], [0.4, 0.35, 0.25]])
    labels = np.array([0, 1, 2, 2])
    found = prediction_sets(p, labels, [0.3], 0.9, "abc")
    # Sets: ab, ab, bc, ab.
    by_class = {"a": ClassSets(1, 1.0, 2.0), "b": ClassSets(1, 1.0, 2.0), "c": ClassSets(2, 0.5, 2.0)}
    assert found == ConformalMetrics(0.75, 2.0, 0.9, worst_class=0.5, by_class=by_class)
    # With a probability for each class: the predicted one is in the set whatever its own.
    each = prediction_sets(p, labels, [0.6, 0.3, 0.2], 0.9, "abc")
    assert (each.coverage, each.mean_size) == (1.0, 2.75)  # abc, abc, bc, abc
