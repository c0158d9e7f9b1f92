"""Fitting an OOD score: ID samples are scored by fits without them, so that the flagged share is the one promised."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hydractl.calibration.ood_fit import FoundOod, Held, Wanted, fit_ood, thinned
from hydractl.checkpoint.calibration import Calibration
from hydractl.errors import DataError
from hydractl.metrics.arrays import FloatArray, IntArray
from hydractl.model.answering import OodHead
from hydractl.ood.fit import Fitting
from hydractl.ood.ood_scores import OOD_SCORES, find_ood_score
from hydractl.ood.score import Outputs
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers

CLASSES, WIDTH = 3, 12


def answers(count: int, seed: int, members: int = 1) -> Answers:
    """Features in clusters by class, and logits that a random classifier makes of them."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    centres = 2 * np.random.default_rng(0).normal(size=(members, CLASSES, WIDTH))
    features = centres[:, labels] + generator.normal(size=(members, count, WIDTH))
    hidden = [features[:1] @ np.random.default_rng(2).normal(size=(WIDTH, WIDTH)), np.tanh(features)]
    return answered(features @ weight().T, labels, features, hidden)


def answered(logits: FloatArray, truth: IntArray | None, features: FloatArray, hidden: Any = ()) -> Answers:
    task, warm = find_task("image-classification"), Calibration(1.3)
    return Answers(task=task, member_logits=logits, truth=truth, features=features, hidden=hidden, calibration=warm)


def torch_answers(given: Answers) -> Outputs:
    """The same answers as a network's own head meets them."""
    logits, features, *hidden = map(torch.from_numpy, (given.member_logits, given.features, *given.hidden))
    return Outputs(logits, 1.3, features, hidden)


def weight() -> FloatArray:
    return np.random.default_rng(1).normal(size=(CLASSES, WIDTH))


def held(count: int, seed: int, members: int = 1, outside: dict[str, Answers] | None = None) -> Held:
    return Held(answers(count, seed, members), outside or {}, {})


def head(fitted: Held, score: str, accept: float = 0.9) -> OodHead:
    return OodHead.of(fit_ood(fitted, Wanted(score, accept), lambda text: None).fitted, "cpu", torch.float64)


@pytest.mark.parametrize("score", [score.name for score in OOD_SCORES if score.name != "mutual-information"])
def test_no_more_id_samples_are_flagged_than_promised(score: str) -> None:
    flagged = []
    for seed in range(8):
        fresh = answers(400, 100 + seed)
        found = head(held(240, seed), score)
        typical = found(torch_answers(fresh)).typicality
        flagged.append(found.flags(typical).double().mean().item())
    # 10 % are promised; three times the error of the quantiles of eight sets of 240 samples.
    assert abs(np.mean(flagged) - 0.1) < 3 * (0.1 * 0.9 / (8 * 240)) ** 0.5


def test_auto_takes_the_score_that_tells_the_given_sets() -> None:
    # OOD features lie on the classes' own directions, so that answers tell nothing, but with other lengths.
    away = answers(200, 3)
    null = np.linalg.svd(weight())[2][CLASSES:]
    outside = {"a": answered(away.member_logits, away.truth, away.features + 6 * null[0], away.hidden)}

    def found(score: str, labels: bool = True) -> FoundOod:
        known = held(200, 0, outside=outside)
        inside = known.inside if labels else replace(known.inside, truth=None)
        return fit_ood(replace(known, inside=inside), Wanted(score, 0.95), lambda text: None)

    auto, named, unlabelled = found("auto"), found("mahalanobis"), found("auto", labels=False)
    assert auto.choice is not None and auto.fitted.fit.score == auto.choice.score
    rated = {one.score: one.mean_auroc for one in auto.choice.rated}
    assert rated["mahalanobis"] > 0.95 and rated["msp"] < 0.6 and rated[auto.choice.score] > 0.9
    assert "mutual-information" not in rated
    assert (named.fitted.fit.score, named.choice.score) == ("mahalanobis", "mahalanobis")
    assert {one.score: one.mean_auroc for one in named.choice.rated} == {
        name: rated[name] for name in ("msp", "mahalanobis")
    }
    assert not {one.score for one in unlabelled.choice.rated} & {row.name for row in OOD_SCORES if row.labelled}
    alone = fit_ood(held(60, 0), Wanted("auto", 0.95), lambda text: None)
    assert (alone.fitted.fit.score, alone.choice) == ("layers", None)


def test_a_network_whose_classes_may_change_keeps_no_score_of_classes() -> None:
    away = answers(200, 3)
    sure = replace(away, member_logits=0 * away.member_logits)  # the MSP tells them apart, no layer does
    wanted = Wanted("auto", 0.95, fixed=False)
    found = fit_ood(held(200, 0, outside={"a": sure}), wanted, lambda text: None)
    assert found.fitted.fit.score == "layers" and found.choice is not None
    assert {one.score for one in found.choice.rated} == {"msp", "layers"}


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("score", ["msp", "layers", "mahalanobis"])
def test_a_handful_of_samples_is_fitted_or_refused(score: str, count: int) -> None:
    try:
        found = fit_ood(held(count, 0), Wanted(score, 0.95), lambda text: None)
    except DataError:
        return  # in one line, as every error that a user can cause
    assert found.accepted.samples == count


@pytest.mark.parametrize("score", ["msp", "layers"])
def test_classes_of_one_sample_each_spread_over_the_folds(score: str) -> None:
    many = replace(answers(120, 0), truth=np.random.default_rng(0).permutation(120))
    assert 100 < fit_ood(Held(many, {}, {}), Wanted(score, 0.95), lambda text: None).accepted.kept < 120


@pytest.mark.parametrize("classes", [1, 7, 90, 400])
def test_folds_are_balanced_in_all_and_in_each_class(classes: int) -> None:
    labels = np.random.default_rng(1).integers(0, classes, 333)
    fitting = Fitting(find_ood_score("msp"), replace(answers(333, 0), truth=labels).to_score())
    for part in (fitting.fold, *(fitting.fold[labels == label] for label in range(classes))):
        counts = np.bincount(part, minlength=20)
        assert len(counts) == 20 and np.ptp(counts) <= 1


def test_a_profile_says_which_layer_is_odd() -> None:
    fitted, fresh = head(held(200, 0), "layers"), answers(300, 9)
    usual = fitted(torch_answers(fresh)).profile
    assert usual is not None and usual.shape == (3, 300)
    assert all(0.01 < share < 0.2 for share in (usual < 0.1).double().mean(-1))
    moved = replace(fresh, hidden=[fresh.hidden[0] + 40, fresh.hidden[1]])
    odd = fitted(torch_answers(moved)).profile
    assert odd is not None and (odd[0] < 0.05).all() and torch.equal(odd[1:], usual[1:])


def test_shifted_samples_count_as_usual() -> None:
    new = answers(100, 4)
    shifted = {"b": replace(new, hidden=[layer + 3 for layer in new.hidden])}
    found = fit_ood(replace(held(200, 0), shifted=shifted), Wanted("layers", 0.9), lambda text: None)
    before, after = found.shift["b"]
    assert before > 0.9 and after < 0.35
    # Fewer ID samples are flagged by these quantiles: the share that is printed is what the file does.
    fresh = torch_answers(answers(2000, 9))
    stored = OodHead.of(found.fitted, "cpu", torch.float64)
    share = 1 - stored.flags(stored(fresh).typicality).double().mean().item()
    low, high = found.accepted.interval(0.99)
    assert share > 0.95 and low <= share <= high


def test_a_promise_that_is_not_kept_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # Quantiles by a fit that knows the samples: none of them is odd, and all others are.
    row = replace(find_ood_score("mahalanobis"), left_out=lambda samples: np.zeros(samples.samples))
    monkeypatch.setattr("hydractl.calibration.ood_fit.find_ood_score", lambda name: row)
    with pytest.raises(DataError, match="mahalanobis"):
        fit_ood(held(200, 0), Wanted("mahalanobis", 0.95), lambda text: None)


@pytest.mark.parametrize("count", [1000, 1001, 1999, 5000])
def test_thinned_quantiles_keep_the_promise(count: int) -> None:
    kept = thinned(np.arange(count, dtype=float))
    assert len(kept) == 1000 and (np.diff(kept) > 0).all()
    for flagged in (1, 50, 200):
        # A new sample is above the k-th largest of 1000 as rarely as k / 1001.
        assert count - kept[-flagged] <= flagged * (count + 1) / 1001


def test_samples_that_are_all_alike_are_refused() -> None:
    one = held(200, 0)
    alike = replace(one.inside, hidden=[np.ones_like(layer) for layer in one.inside.hidden])
    with pytest.raises(DataError, match="differ more"):
        fit_ood(replace(one, inside=alike), Wanted("layers", 0.9), lambda text: None)


def test_samples_that_differ_little_are_fitted_in_float32() -> None:
    def close(samples: Answers) -> Answers:
        return replace(samples, hidden=[100 + layer / 1e3 for layer in samples.hidden])

    fitted = fit_ood(held(200, 0).change(close), Wanted("layers", 0.9), lambda text: None).fitted
    assert fitted.tensors["hidden_whiten"].kind == "F32" and fitted.tensors["last_whiten"].kind == "F16"
    stored, odd = OodHead.of(fitted, "cpu", torch.float64), 9.0 * np.arange(WIDTH)
    fresh = answers(300, 9)
    moved = replace(fresh, hidden=[layer + odd for layer in fresh.hidden])
    usual, away = (
        stored.flags(stored(torch_answers(close(each))).typicality).double().mean() for each in (fresh, moved)
    )
    assert 0.03 < usual < 0.2 and away > 0.95


def test_the_accuracy_of_several_labels_is_of_thresholds_that_do_not_know_the_sample() -> None:
    task, shares = find_task("multi-label-image-classification"), []

    def drawn(count: int, seed: int) -> Answers:
        draw = np.random.default_rng(seed)
        logits, features = 4 * draw.normal(size=(1, count, 20)) - 7, draw.normal(size=(1, count, 8))
        truth = (draw.random((count, 20)) < 1 / (1 + np.exp(-logits[0]))).astype(np.int64)
        return Answers(task=task, member_logits=logits, truth=truth, features=features, hidden=[features])

    for seed in range(5):
        samples = drawn(200, seed)
        fitted = replace(samples, calibration=task.fit(samples).calibration(Calibration()))
        baseline = fit_ood(
            Held(fitted, {}, {}), Wanted("layers", 0.95, fixed=False), lambda text: None
        ).fitted.fit.baseline
        fresh = replace(drawn(2000, 100 + seed), calibration=fitted.calibration)
        seen, new = (task.table(each).required_outcomes().correct.mean() for each in (fitted, fresh))
        shares.append((baseline.accuracy, seen, new))
    told, seen, new = np.mean(shares, axis=0)
    assert abs(told - new) < 0.03 < seen - new - 0.03
