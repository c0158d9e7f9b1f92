from dataclasses import asdict, fields

import numpy as np
import pytest

from hydractl.metrics import bootstrap
from hydractl.metrics.bootstrap import choose_score, draw_places, percentile_interval
from hydractl.metrics.classification import ClassificationMetrics, classification_metrics, tabulate
from hydractl.metrics.detection import OodMetrics, ood_metrics


@pytest.mark.parametrize("samples", [5, 20])
def test_two_equal_networks_differ_beyond_chance_in_one_of_twenty_cases_at_most(samples: int) -> None:
    differences = np.random.default_rng(0).normal(size=(1000, samples))
    drawn = [next(draw_places([samples], seed=seed))[0] for seed in range(200)]
    intervals = [percentile_interval(each[np.stack(drawn)].mean(1), samples) for each in differences]
    assert np.mean([not low <= 0 <= high for low, high in intervals]) < 0.07


def test_percentiles_by_hand():
    assert percentile_interval(np.arange(201.0), 10**6) == pytest.approx((5, 195), abs=1e-3)


@pytest.mark.parametrize("samples", [400, 9])
def test_classification_replicates_are_the_metrics_of_resampled_data(ensemble, samples):
    # Rounded logits, so that confidences tie; fewer samples than bins.
    logits, labels = ensemble[0][:1, :samples].round(), ensemble[1][:samples]
    table = tabulate(logits, labels)
    ours = bootstrap.classification_replicates(table, replicates=20, seed=3)
    drawn = [positions for (positions,) in draw_places([samples], 20, seed=3)]
    resampled = [classification_metrics(tabulate(logits[:, positions], labels[positions])) for positions in drawn]
    expected = [list(asdict(one).values()) for one in resampled]
    names = [field.name for field in fields(ClassificationMetrics)]
    assert list(ours) == names
    np.testing.assert_allclose(np.stack(list(ours.values()), axis=1), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_ood_replicates_are_the_metrics_of_resampled_data(generator, decimals):
    id_scores, ood_scores = generator.normal(size=80).round(decimals), generator.normal(1, size=50).round(decimals)
    ours = bootstrap.sets_replicates(id_scores, {"far": ood_scores}, replicates=20, seed=3)["far"]

    def of_resampled(inside, outside):
        return list(asdict(ood_metrics(id_scores[inside], ood_scores[outside])).values())

    expected = [of_resampled(*positions) for positions in draw_places([80, 50], 20, seed=3)]
    assert list(ours) == [field.name for field in fields(OodMetrics)]
    np.testing.assert_allclose(np.stack(list(ours.values()), axis=1), expected, rtol=0, atol=1e-13)


def test_the_order_of_sets_changes_no_draw() -> None:
    sets = {name: scores(1, seed) for seed, name in enumerate(("b", "c", "a"))}
    listed, by_name = (
        bootstrap.sets_replicates(scores(0, 9), {name: sets[name] for name in names}, 5)
        for names in (sets, sorted(sets))
    )
    assert all(np.array_equal(listed[name][key], by_name[name][key]) for name in sets for key in listed[name])


def scores(shift: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, size=200)


def test_the_best_is_chosen_where_it_is_better_by_more_than_chance() -> None:
    inside = {"msp": scores(0, 0), "vim": scores(0, 1), "knn": scores(0, 2)}
    outside = {
        "msp": {"a": scores(0.3, 3), "b": scores(0.3, 4)},
        "vim": {"a": scores(2, 5), "b": scores(0, 6)},
        "knn": {"a": scores(1.5, 7), "b": scores(1.5, 8)},
    }
    found = choose_score(inside, outside, replicates=100)
    assert found.score == "knn"
    # Without b, vim is best on a, and does nothing on b.
    assert found.left_out["b"].score == "vim" and found.left_out["b"].auroc < 0.6
    assert found.left_out["a"].score == "knn" and found.left_out["a"].auroc > 0.8
    rated = {one.score: one for one in found.rated}
    assert rated["knn"].below_best == (0, 0) and rated["msp"].below_best[0] > 0
    assert rated["knn"].mean_auroc == pytest.approx(np.mean(list(rated["knn"].auroc.values())))
    assert any(line.startswith("knn *") for line in found.lines())


def test_the_simplest_is_chosen_within_chance() -> None:
    inside = {"msp": scores(0, 0), "knn": scores(0, 1)}
    noise = {name: {"a": scores(1, seed)} for name, seed in (("msp", 2), ("knn", 3))}
    found = choose_score(inside, noise, 100)
    assert (found.score, found.left_out) == ("msp", {})
    assert choose_score(inside, noise, 100, fixed="knn").score == "knn"


def test_sets_on_which_the_choice_is_worse_than_the_baseline_are_named() -> None:
    inside = {"msp": scores(0, 0), "knn": scores(0, 1)}
    outside = {
        "msp": {"far": scores(0.3, 2), "textures": scores(0.8, 3), "near": scores(0.2, 4)},
        "knn": {"far": scores(4, 5), "textures": scores(-0.6, 6), "near": scores(1.5, 7)},
    }
    found = choose_score(inside, outside, 200)
    assert found.score == "knn"
    # AUROC of two normal distributions a deviation apart is phi(d / sqrt 2): .71 falls to .34.
    worse = {(one.set, one.metric): (one.baseline, one.chosen) for one in found.worse}
    assert worse[("textures", "AUROC")] == pytest.approx((0.71, 0.34), abs=0.06)
    assert {name for name, _ in worse} == {"textures"}
    assert sum("textures" in line for line in found.warnings()) == len(worse) + 1  # the last: worse than a coin
    assert choose_score(inside, outside, 200, fixed="msp").worse == ()
