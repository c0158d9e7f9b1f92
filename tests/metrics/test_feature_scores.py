import math

import numpy as np
import pytest
from sklearn.covariance import EmpiricalCovariance, LedoitWolf
from sklearn.decomposition import PCA

from hydractl.errors import DataError
from hydractl.metrics import feature_scores
from hydractl.metrics.feature_scores import MemberSamples, principal_dimensions, score_chunks, stacked
from hydractl.metrics.ood_scores import OOD_SCORES, Answers, find_ood_score, fit_scorer
from hydractl.metrics.prediction_table import tabulate

CLASSES, WIDTH, COUNT = 4, 10, 200
NAMES = [score.name for score in OOD_SCORES if score.needs_features]


@pytest.fixture
def samples(generator):
    """Features of one member in clusters by class, the wider the later the axis, and a classifier of them."""
    labels = np.arange(COUNT) % CLASSES
    centres = 3 * generator.normal(size=(CLASSES, WIDTH))
    features = centres[labels] + generator.normal(size=(COUNT, WIDTH)) * np.linspace(0.1, 1, WIDTH)
    weight, bias = generator.normal(size=(CLASSES, WIDTH)), generator.normal(size=CLASSES)
    return MemberSamples(features, features @ weight.T + bias, labels, (weight, bias))


def detected(name, samples, features):
    weight, bias = samples.affine
    return score_chunks(name, stacked([fit(name, samples)]), features[None], (features @ weight.T + bias)[None])


def fit(name, samples):
    return getattr(feature_scores, find_ood_score(name).fit)(samples)


def energy(logits):
    return [-math.log(sum(math.exp(z) for z in row)) for row in logits]


def test_mahalanobis_equals_scikit_learn(samples, generator):
    far = 5 * generator.normal(size=(30, WIDTH))
    means = [samples.features[samples.labels == label].mean(0) for label in range(CLASSES)]
    fitted = EmpiricalCovariance().fit(samples.features - np.array(means)[samples.labels])
    theirs = np.min([fitted.mahalanobis(far - mean + fitted.location_) for mean in means], axis=0)

    np.testing.assert_allclose(detected("mahalanobis", samples, far), theirs, rtol=1e-9)


def test_mahalanobis_of_fewer_samples_than_features_counts_known_directions_only():
    # Two samples of each class, one unit either side of its mean along the first axis: all the variance there is.
    features = np.array([[-1.0, 0, 0], [1, 0, 0], [-1, 9, 0], [1, 9, 0]])
    fitted = fit("mahalanobis", MemberSamples(features, np.zeros((4, 2)), np.array([0, 0, 1, 1])))
    far = np.array([[[2.0, 4, 7], [0, 0, 0]]])

    found = score_chunks("mahalanobis", stacked([fitted]), far, np.zeros((1, 2, 2)))
    np.testing.assert_allclose(found, [4, 0], atol=1e-12)


def test_a_shrunk_covariance_is_that_of_scikit_learn(generator):
    for rows, width in ((30, 50), (200, 7), (4, 3)):
        centred = generator.normal(size=(rows, width)) * np.linspace(0.1, 3, width)
        theirs = LedoitWolf(assume_centered=True).fit(centred).covariance_
        np.testing.assert_allclose(feature_scores.shrunk_covariance(centred), theirs, rtol=1e-10, atol=1e-12)


def test_relative_mahalanobis_equals_scikit_learn(samples, generator):
    far = 5 * generator.normal(size=(30, WIDTH))
    background = EmpiricalCovariance().fit(samples.features)
    theirs = detected("mahalanobis", samples, far) - background.mahalanobis(far)

    np.testing.assert_allclose(detected("relative-mahalanobis", samples, far), theirs, rtol=1e-9)


def test_combined_adds_scores_that_are_standardised_on_id_samples(samples, generator):
    far = 5 * generator.normal(size=(30, WIDTH))
    weight, bias = samples.affine

    def parts(features):
        return np.array([energy(features @ weight.T + bias), detected("mahalanobis", samples, features)])

    known = parts(samples.features)
    expected = (parts(far) - known.mean(1, keepdims=True)) / known.std(1, keepdims=True)
    np.testing.assert_allclose(detected("combined", samples, far), expected.sum(0), rtol=1e-9)


def test_vim_equals_its_formula(samples, generator):
    weight, bias = samples.affine
    origin = -np.linalg.lstsq(weight, bias, rcond=None)[0]
    # Principal directions around the origin, not around the mean: scikit-learn centres symmetric data where it should.
    mirrored = np.concatenate([samples.features - origin, origin - samples.features])
    rest = PCA(WIDTH).fit(mirrored).components_[principal_dimensions(WIDTH) :]

    def residual(features):
        return np.array([math.sqrt(sum((row @ direction) ** 2 for direction in rest)) for row in features - origin])

    alpha = samples.logits.max(-1).mean() / residual(samples.features).mean()
    far = generator.normal(size=(30, WIDTH))
    expected = alpha * residual(far) + energy(far @ weight.T + bias)
    np.testing.assert_allclose(detected("vim", samples, far), expected, rtol=1e-9)


def test_principal_dimensions_are_those_of_the_paper():
    assert [principal_dimensions(width) for width in (2048, 768, 384)] == [1000, 512, 192]


def test_knn_equals_sorted_distances(samples, generator):
    far = generator.normal(size=(30, WIDTH))
    unit, held = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (far, samples.features))
    expected = [sorted(((row - other) ** 2).sum() for other in held)[49] for row in unit]

    np.testing.assert_allclose(detected("knn", samples, far), expected, rtol=0, atol=1e-12)


def test_react_equals_its_formula(samples, generator):
    far = 5 * generator.normal(size=(30, WIDTH))
    weight, bias = samples.affine
    largest = sorted(samples.features.ravel())
    place = 0.9 * (len(largest) - 1)
    threshold = largest[int(place)] + (place % 1) * (largest[int(place) + 1] - largest[int(place)])
    clipped = np.where(far > threshold, threshold, far)

    np.testing.assert_allclose(detected("react", samples, far), energy(clipped @ weight.T + bias), rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_an_ensemble_scores_as_its_members_do_on_average(name, samples, generator):
    weight, bias = samples.affine
    turned = samples.features @ np.linalg.qr(generator.normal(size=(WIDTH, WIDTH)))[0] + 1
    other = MemberSamples(turned, turned @ weight.T + bias, samples.labels, samples.affine)
    features = generator.normal(size=(2, 30, WIDTH)).astype(np.float32)
    logits = features @ weight.T + bias
    score = find_ood_score(name)

    def scored(members, features, logits):
        return fit_scorer(score, members)(Answers(tabulate(logits), logits, features=features))

    single = [scored([one], features[m : m + 1], logits[m : m + 1]) for m, one in enumerate((samples, other))]
    np.testing.assert_allclose(scored([samples, other], features, logits), np.mean(single, axis=0), rtol=1e-12)
    twice = scored([samples, samples], features[[0, 0]], logits[[0, 0]])
    np.testing.assert_array_equal(twice, single[0])


def test_too_few_samples_are_named(samples):
    def first(count, labels=samples.labels):
        return MemberSamples(samples.features[:count], samples.logits[:count], labels[:count], samples.affine)

    for name, held, message in (
        ("knn", first(49), "49 samples to fit on: knn needs 50"),
        ("react", first(0), "0 samples to fit on: react"),
        ("vim", first(5), "5 samples to fit on: vim needs more than the 5"),
        ("mahalanobis", first(40, samples.labels % 3), "no samples of class 3"),
        ("react", MemberSamples(samples.features, samples.logits, samples.labels), "add classifier.safetensors"),
    ):
        with pytest.raises(DataError, match=message):
            fit(name, held)
