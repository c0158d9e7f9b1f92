import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA

from hydractl.errors import DataError
from hydractl.ood.fit import fitted_scorer, score_samples
from hydractl.ood.ood_scores import OOD_SCORES, find_ood_score
from hydractl.ood.score import FitSamples, as_state
from hydractl.ood.statistics import shrunk_covariance, unit_length
from hydractl.ood.vim import principal_dimensions

CLASSES, WIDTH, COUNT = 4, 10, 200
NAMES = [score.name for score in OOD_SCORES if score.fit is not None]


@pytest.fixture
def generator():
    return np.random.default_rng(0)


@pytest.fixture
def samples(generator):
    """Features of one member in clusters by class, the wider the later the axis, and a classifier of them."""
    labels = np.arange(COUNT) % CLASSES
    centres = 3 * generator.normal(size=(CLASSES, WIDTH))
    features = centres[labels] + generator.normal(size=(COUNT, WIDTH)) * np.linspace(0.1, 1, WIDTH)
    weight, bias = generator.normal(size=(CLASSES, WIDTH)), generator.normal(size=CLASSES)
    return seen(features, labels, weight, bias)


def seen(features, labels, weight, bias):
    """Samples of one member."""
    return FitSamples((features @ weight.T + bias)[None], features[None], labels, (weight[None], bias[None]))


def detected(name, samples, features):
    (weight,), (bias,) = samples.affine
    return score_samples(find_ood_score(name), as_state(fit(name, samples)), seen(features, None, weight, bias))


def fit(name, samples):
    return find_ood_score(name).fit(samples)


def energy(logits):
    return [-math.log(sum(math.exp(z) for z in row)) for row in logits]


def test_mahalanobis_equals_scikit_learn(samples, generator):
    far = 5 * generator.normal(size=(30, WIDTH))
    for name, change in (("mahalanobis", lambda x: x), ("mahalanobis++", unit_length)):
        inside, outside = change(samples.features[0]), change(far)
        means = np.array([inside[samples.labels == label].mean(0) for label in range(CLASSES)])
        fitted = LedoitWolf().fit(inside - means[samples.labels])
        theirs = np.min([fitted.mahalanobis(outside - mean + fitted.location_) for mean in means], axis=0)
        np.testing.assert_allclose(detected(name, samples, far), theirs, rtol=1e-9)


def test_a_shrunk_covariance_is_that_of_scikit_learn(generator):
    for rows, width in ((30, 50), (200, 7), (4, 3)):
        centred = generator.normal(size=(rows, width)) * np.linspace(0.1, 3, width)
        theirs = LedoitWolf(assume_centered=True).fit(centred).covariance_
        np.testing.assert_allclose(shrunk_covariance(centred).matrix(), theirs, rtol=1e-10, atol=1e-12)


def test_relative_mahalanobis_equals_scikit_learn(samples, generator):
    far = 5 * generator.normal(size=(30, WIDTH))
    for end, change in (("", lambda x: x), ("++", unit_length)):
        background = LedoitWolf().fit(change(samples.features[0]))
        theirs = detected(f"mahalanobis{end}", samples, far) - background.mahalanobis(change(far))
        np.testing.assert_allclose(detected(f"relative-mahalanobis{end}", samples, far), theirs, rtol=1e-9)


def test_combined_adds_scores_that_are_standardised_on_id_samples(samples, generator):
    far = 5 * generator.normal(size=(30, WIDTH))
    (weight,), (bias,) = samples.affine

    def parts(features):
        return np.array([energy(features @ weight.T + bias), detected("mahalanobis", samples, features)])

    known = parts(samples.features[0])
    expected = (parts(far) - known.mean(1, keepdims=True)) / known.std(1, keepdims=True)
    np.testing.assert_allclose(detected("combined", samples, far), expected.sum(0), rtol=1e-9)


def test_vim_equals_its_formula(samples, generator):
    (weight,), (bias,) = samples.affine
    origin = -np.linalg.lstsq(weight, bias, rcond=None)[0]
    # Principal directions around the origin, not around the mean: scikit-learn centres symmetric data where it should.
    mirrored = np.concatenate([samples.features[0] - origin, origin - samples.features[0]])
    rest = PCA(WIDTH).fit(mirrored).components_[principal_dimensions(WIDTH) :]

    def residual(features):
        return np.array([math.sqrt(sum((row @ direction) ** 2 for direction in rest)) for row in features - origin])

    alpha = samples.member_logits[0].max(-1).mean() / residual(samples.features[0]).mean()
    far = generator.normal(size=(30, WIDTH))
    expected = alpha * residual(far) + energy(far @ weight.T + bias)
    np.testing.assert_allclose(detected("vim", samples, far), expected, rtol=1e-9)


def test_principal_dimensions_are_those_of_the_paper():
    assert [principal_dimensions(width) for width in (2048, 768, 384)] == [1000, 512, 192]


def test_knn_equals_sorted_distances(samples, generator):
    far = generator.normal(size=(30, WIDTH))
    unit, held = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (far, samples.features[0]))
    expected = [sorted(((row - other) ** 2).sum() for other in held)[49] for row in unit]

    np.testing.assert_allclose(detected("knn", samples, far), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("labelled", [True, False])
def test_knn_does_not_invert_where_classes_have_fewer_samples_than_neighbours(labelled, generator):
    # Ten classes of 19 to 28 samples, each around an axis; OOD lies between all axes, nearer to others than they do.
    labels = np.concatenate([np.full(19 + label, label) for label in range(10)])
    features = np.eye(10)[labels] + 0.05 * generator.normal(size=(len(labels), 10))
    held = seen(features, labels if labelled else None, np.eye(10), np.zeros(10))
    near = np.eye(10)[np.arange(50) % 10] + 0.05 * generator.normal(size=(50, 10))
    far = 1 + 0.05 * generator.normal(size=(50, 10))
    assert fit("knn", held)["nearest"].tolist() == [[19]]
    inside, outside = detected("knn", held, near), detected("knn", held, far)
    assert inside.max() < outside.min() and find_ood_score("knn").left_out(held).max() < outside.min()


def test_react_equals_its_formula(samples, generator):
    far = 5 * generator.normal(size=(30, WIDTH))
    (weight,), (bias,) = samples.affine
    largest = sorted(samples.features.ravel())
    place = 0.9 * (len(largest) - 1)
    threshold = largest[int(place)] + (place % 1) * (largest[int(place) + 1] - largest[int(place)])
    clipped = np.where(far > threshold, threshold, far)

    np.testing.assert_allclose(detected("react", samples, far), energy(clipped @ weight.T + bias), rtol=1e-12)


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
    (weight,), (bias,) = samples.affine
    turned = samples.features[0] @ np.linalg.qr(generator.normal(size=(WIDTH, WIDTH)))[0] + 1
    other = seen(turned, samples.labels, weight, bias)
    score = find_ood_score(name)

    def scored(*members):
        return fitted_scorer(score, together(*members))(together(*(fresh[id(one)] for one in members)), 1.0)

    far = generator.normal(size=(2, 30, WIDTH)).astype(np.float32)
    fresh = {id(one): seen(x, None, weight, bias) for one, x in zip((samples, other), far, strict=True)}
    single = [scored(one) for one in (samples, other)]
    np.testing.assert_allclose(scored(samples, other), np.mean(single, axis=0), rtol=1e-12)
    np.testing.assert_array_equal(scored(samples, samples), single[0])


def together(*members):
    """Samples of one member each as those of an ensemble."""
    affine = None
    if members[0].affine is not None:
        affine = tuple(np.concatenate(maps) for maps in zip(*(one.affine for one in members), strict=True))
    logits, features = (
        np.concatenate([getattr(one, name) for one in members]) for name in ("member_logits", "features")
    )
    return FitSamples(logits, features, members[0].labels, affine)


def test_too_few_samples_are_named(samples):
    def first(count, labels=samples.labels):
        return replace(samples.subset(np.arange(count)), labels=labels[:count])

    for name, held, message in (
        ("knn", first(49), "49 samples to fit on: knn needs 50"),
        ("react", first(0), "0 samples to fit on: react"),
        ("vim", first(5), "5 samples to fit on: vim needs more than the 5"),
        ("layers", first(2), "2 samples to fit on: layers needs 3"),
        ("mahalanobis", first(40, samples.labels % 3), "no samples of class 3"),
        ("mahalanobis", replace(samples, labels=None), "needs labelled samples"),
        ("react", replace(samples, affine=None), "add classifier.safetensors"),
    ):
        with pytest.raises(DataError, match=message):
            fit(name, held)
