from dataclasses import replace

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf

from hydractl.errors import DataError
from hydractl.ood.fit import fitted_scorer, score_samples
from hydractl.ood.ood_scores import OOD_SCORES, find_ood_score
from hydractl.ood.score import FitSamples, as_state
from hydractl.ood.statistics import shrunk_covariance

CLASSES, WIDTH, COUNT = 4, 10, 200
NAMES = [score.name for score in OOD_SCORES if score.fit is not None]


@pytest.fixture
def generator():
    return np.random.default_rng(0)


@pytest.fixture
def samples(generator):
    """Features of one member in clusters by class, the wider the later the axis."""
    labels = np.arange(COUNT) % CLASSES
    centres = 3 * generator.normal(size=(CLASSES, WIDTH))
    features = centres[labels] + generator.normal(size=(COUNT, WIDTH)) * np.linspace(0.1, 1, WIDTH)
    return seen(features, labels)


def seen(features, labels):
    """Samples of one member, whose logits are the first features."""
    return FitSamples(features[None, :, :CLASSES], features[None], labels)


def fit(name, samples):
    return find_ood_score(name).fit(samples)


def test_mahalanobis_equals_scikit_learn(samples, generator):
    far = 5 * generator.normal(size=(30, WIDTH))
    features = samples.features[0]
    means = np.array([features[samples.labels == label].mean(0) for label in range(CLASSES)])
    fitted = LedoitWolf().fit(features - means[samples.labels])
    theirs = np.min([fitted.mahalanobis(far - mean + fitted.location_) for mean in means], axis=0)
    state = as_state(fit("mahalanobis", samples))
    found = score_samples(find_ood_score("mahalanobis"), state, seen(far, None))
    np.testing.assert_allclose(found, theirs, rtol=1e-9)


def test_a_shrunk_covariance_is_that_of_scikit_learn(generator):
    for rows, width in ((30, 50), (200, 7), (4, 3)):
        centred = generator.normal(size=(rows, width)) * np.linspace(0.1, 3, width)
        theirs = LedoitWolf(assume_centered=True).fit(centred).covariance_
        np.testing.assert_allclose(shrunk_covariance(centred).matrix(), theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [score.name for score in OOD_SCORES if score.left_out and score.reads == "features"])
def test_leaving_out_a_sample_is_a_fit_on_the_others(name, samples):
    some = samples.subset(np.arange(60))
    left_out = find_ood_score(name).left_out(some)
    # Nearly: a fit on the others shrinks a little more than the one on all does.
    for place in (0, 17, 59):
        others = np.delete(np.arange(60), place)
        fitted = fit(name, some.subset(others))
        found = score_samples(find_ood_score(name), as_state(fitted), some.subset(np.array([place])))
        assert left_out[place] == pytest.approx(found[0], rel=0.05, abs=0.2)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "layers"])
def test_an_ensemble_scores_as_its_members_do_on_average(name, samples, generator):
    turned = samples.features[0] @ np.linalg.qr(generator.normal(size=(WIDTH, WIDTH)))[0] + 1
    other = seen(turned, samples.labels)
    score = find_ood_score(name)

    def scored(*members):
        return fitted_scorer(score, together(*members))(together(*(fresh[id(one)] for one in members)), 1.0)

    far = generator.normal(size=(2, 30, WIDTH)).astype(np.float32)
    fresh = {id(one): seen(x, None) for one, x in zip((samples, other), far, strict=True)}
    single = [scored(one) for one in (samples, other)]
    np.testing.assert_allclose(scored(samples, other), np.mean(single, axis=0), rtol=1e-12)
    np.testing.assert_array_equal(scored(samples, samples), single[0])


def together(*members):
    """Samples of one member each as those of an ensemble."""
    logits, features = (
        np.concatenate([getattr(one, name) for one in members]) for name in ("member_logits", "features")
    )
    return FitSamples(logits, features, members[0].labels)


def test_too_few_samples_are_named(samples):
    def first(count, labels=samples.labels):
        return replace(samples.subset(np.arange(count)), labels=labels[:count])

    for name, held, message in (
        ("layers", first(2), "layers needs at least 3 samples"),
        ("mahalanobis", first(40, samples.labels % 3), "no samples of class 3"),
        ("mahalanobis", replace(samples, labels=None), "needs labelled samples"),
    ):
        with pytest.raises(DataError, match=message):
            fit(name, held)
