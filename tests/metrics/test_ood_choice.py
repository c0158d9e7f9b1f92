import numpy as np
import pytest

from hydractl.metrics.ood_choice import choose_score


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
