from dataclasses import asdict, fields

import numpy as np
import pytest

from hydractl.metrics.bootstrap import classification_replicates, draw_places, percentile_interval, sets_replicates
from hydractl.metrics.classification import ClassificationMetrics, classification_metrics, tabulate
from hydractl.metrics.detection import OodMetrics, ood_metrics


def test_percentiles_by_hand():
    assert percentile_interval(np.arange(201.0)) == pytest.approx((5, 195))


@pytest.mark.parametrize("samples", [400, 9])
def test_classification_replicates_are_the_metrics_of_resampled_data(ensemble, samples):
    # Rounded logits, so that confidences tie; fewer samples than bins.
    logits, labels = ensemble[0][:1, :samples].round(), ensemble[1][:samples]
    table = tabulate(logits, labels)
    ours = classification_replicates(table, replicates=20, seed=3)

    drawn = [positions for (positions,) in draw_places([samples], 20, seed=3)]
    resampled = [classification_metrics(tabulate(logits[:, positions], labels[positions])) for positions in drawn]
    expected = [list(asdict(one).values()) for one in resampled]
    names = [field.name for field in fields(ClassificationMetrics)]
    assert list(ours) == names
    np.testing.assert_allclose(np.stack(list(ours.values()), axis=1), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_ood_replicates_are_the_metrics_of_resampled_data(generator, decimals):
    id_scores, ood_scores = generator.normal(size=80).round(decimals), generator.normal(1, size=50).round(decimals)
    ours = sets_replicates(id_scores, {"far": ood_scores}, replicates=20, seed=3)["far"]

    def of_resampled(inside, outside):
        return list(asdict(ood_metrics(id_scores[inside], ood_scores[outside])).values())

    expected = [of_resampled(*positions) for positions in draw_places([80, 50], 20, seed=3)]
    assert list(ours) == [field.name for field in fields(OodMetrics)]
    np.testing.assert_allclose(np.stack(list(ours.values()), axis=1), expected, rtol=0, atol=1e-13)
