"""Fitting an OOD score: ID samples are scored by fits without them, so that the flagged share is the one promised."""

import numpy as np
import pytest
import torch

from hydractl.evaluation.ood_fit import Held, Wanted, fit_ood, thinned
from hydractl.evaluation.systems import Classifier, SetAnswers
from hydractl.metrics.checks import FloatArray
from hydractl.model.ood_head import OodHead

CLASSES, WIDTH = 3, 12


def answers(count: int, seed: int, members: int = 1) -> SetAnswers:
    """Features in clusters by class, and logits that a random classifier makes of them."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    centres = 2 * np.random.default_rng(0).normal(size=(members, CLASSES, WIDTH))
    features = centres[:, labels] + generator.normal(size=(members, count, WIDTH))
    return SetAnswers(features @ weight().T, labels, features)


def weight() -> FloatArray:
    return np.random.default_rng(1).normal(size=(CLASSES, WIDTH))


def held(count: int, seed: int, members: int = 1, outside: dict[str, SetAnswers] | None = None) -> Held:
    one = torch.from_numpy(weight()).expand(members, -1, -1)
    classifier = Classifier(one, torch.zeros(members, CLASSES, dtype=torch.float64))
    return Held(answers(count, seed, members), outside or {}, classifier, 1.3)


def head(fitted: Held, score: str, accept: float = 0.9) -> OodHead:
    return OodHead.of(fit_ood(fitted, Wanted(score, accept, 64), lambda text: None)[0], "cpu", torch.float64)


@pytest.mark.parametrize("score", ["msp", "mahalanobis", "relative-mahalanobis", "knn", "vim", "react", "combined"])
def test_no_more_id_samples_are_flagged_than_promised(score: str) -> None:
    flagged = []
    for seed in range(8):
        fresh = answers(400, 100 + seed)
        found = head(held(150, seed), score)
        _, typical = found(torch.from_numpy(fresh.features), torch.from_numpy(fresh.member_logits), 1.3)
        flagged.append(found.flags(typical).double().mean().item())
    # 10 % are promised, of 3,200 samples. Fits on four fifths of the samples make it fewer, of 50 neighbours most.
    assert (0 if score == "knn" else 0.05) < np.mean(flagged) < 0.115


def test_the_state_is_that_of_all_samples_and_members_count_alike() -> None:
    whole = held(60, 0, members=2)
    both = head(whole, "mahalanobis")
    fresh = answers(30, 5, members=2)
    alone = []
    for member in range(2):
        part = slice(member, member + 1)
        inside = SetAnswers(whole.inside.member_logits[part], whole.inside.labels, whole.inside.features[part])
        one = head(Held(inside, {}, Classifier(*(values[part] for values in whole.classifier)), 1.3), "mahalanobis")
        alone.append(one(torch.from_numpy(fresh.features[part]), torch.from_numpy(fresh.member_logits[part]), 1.3)[0])
    found, _ = both(torch.from_numpy(fresh.features), torch.from_numpy(fresh.member_logits), 1.3)
    torch.testing.assert_close(found, torch.stack(alone).mean(0), rtol=1e-6, atol=1e-6)


def test_a_bank_is_bounded_and_even_by_class() -> None:
    notes: list[str] = []
    many = answers(3000, 0)
    many.labels[:] = np.repeat([0, 1, 2], [2000, 900, 100])
    wide = SetAnswers(many.member_logits, many.labels, np.tile(many.features, (1, 1, 80)))
    fitted, _ = fit_ood(Held(wide, {}, None, 1.0), Wanted("knn", 0.9, 1), notes.append)
    assert fitted.tensors["bank"].shape == (1, 260, 960)  # 1 MB of float32
    assert "260 of 3000 samples, 1.0 MB" in notes[0]
    assert fitted.tensors["quantiles"].shape == (1000,) and fitted.fit.samples == 3000


def test_auto_takes_the_score_that_tells_the_given_sets() -> None:
    # OOD features lie on the classes' own directions, so that answers tell nothing, but with other lengths.
    away = answers(200, 3)
    null = np.linalg.svd(weight())[2][CLASSES:]
    shifted = away.features + 6 * null[0]
    outside = {"a": SetAnswers(away.member_logits, away.labels, shifted)}
    fitted, choice = fit_ood(held(200, 0, outside=outside), Wanted("auto", 0.95, 64), lambda text: None)
    assert fitted.fit.score == choice.score
    rated = {one.score: one.mean_auroc for one in choice.rated}
    assert rated["mahalanobis"] > 0.95 and rated["msp"] < 0.6 and rated[choice.score] > 0.9
    assert "mutual-information" not in rated
    fitted, named = fit_ood(held(200, 0, outside=outside), Wanted("vim", 0.95, 64), lambda text: None)
    assert (fitted.fit.score, named.score) == ("vim", "vim")
    assert {one.score: one.mean_auroc for one in named.rated} == {name: rated[name] for name in ("msp", "vim")}
    notes: list[str] = []
    fitted, choice = fit_ood(held(30, 0), Wanted("auto", 0.95, 64), notes.append)
    assert (fitted.fit.score, choice, len(notes)) == ("msp", None, 1)


@pytest.mark.parametrize("count", [1000, 1001, 1999, 5000])
def test_thinned_quantiles_keep_the_promise(count: int) -> None:
    kept = thinned(np.arange(count, dtype=float))
    assert len(kept) == 1000 and (np.diff(kept) > 0).all()
    for flagged in (1, 50, 200):
        # A new sample is above the k-th largest of 1000 as rarely as k / 1001.
        assert count - kept[-flagged] <= flagged * (count + 1) / 1001
