"""Metrics of one model put together: which mean is over which sets."""

from __future__ import annotations

import numpy as np
import pytest

from hydractl.evaluation.cost import Cost
from hydractl.evaluation.results import OodTable, group_means, measure
from hydractl.uncertainty.ood_detection import ood_metrics
from hydractl.uncertainty.table import PredictionTable, tabulate

COST = Cost(members=2, parameters=10, multiply_adds=20, performed=20, tokens=4)


def table(samples: int, scale: float, labels: bool = False, seed: int = 0) -> PredictionTable:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(2, samples, 4)) * scale
    return tabulate(logits, generator.integers(0, 4, samples) if labels else None)


@pytest.fixture
def sets() -> dict[str, OodTable]:
    return {
        "a": OodTable(table(5, 1.0, seed=1), "near"),
        "b": OodTable(table(7, 2.0, seed=2), "far"),
        "c": OodTable(table(9, 3.0, seed=3), "far"),
        "d": OodTable(table(11, 4.0, seed=4), None),
    }


def test_means_are_flat_over_the_sets_of_a_group(sets: dict[str, OodTable]) -> None:
    id_table = table(6, 2.0, labels=True)
    result = measure(id_table, sets, COST)
    auroc = {name: ood_metrics(-id_table.msp, -entry.table.msp).auroc for name, entry in sets.items()}
    assert {name: entry.detection.auroc for name, entry in result.ood.items()} == auroc
    assert result.means["near"].detection.auroc == auroc["a"]
    assert result.means["far"].detection.auroc == pytest.approx((auroc["b"] + auroc["c"]) / 2)
    assert result.means["all"].detection.auroc == pytest.approx(sum(auroc.values()) / 4)
    assert result.means["all"].samples == 5 + 7 + 9 + 11


def test_a_group_without_sets_has_no_mean() -> None:
    assert group_means({}) == {}


def test_another_score_changes_detection_only(sets: dict[str, OodTable]) -> None:
    id_table = table(6, 2.0, labels=True)
    by_msp, by_entropy = measure(id_table, sets, COST), measure(id_table, sets, COST, "entropy")
    assert by_msp.classification == by_entropy.classification
    expected = ood_metrics(id_table.entropy, sets["b"].table.entropy)
    assert by_entropy.ood["b"].detection == expected


def test_the_report_entry_is_plain_and_complete(sets: dict[str, OodTable]) -> None:
    entry = measure(table(6, 2.0, labels=True), sets, COST).to_json()
    assert entry.keys() == {"id", "ood", "ood_means", "cost"}
    assert entry["id"]["samples"] == 6
    calibration = {"brier", "nll", "ece", "adaptive_ece"}
    assert {"accuracy", *calibration, "mutual_information", "disagreement"} < entry["id"].keys()
    assert {"auroc", "fpr95", "aupr_out", "ood_share", "mutual_information"} < entry["ood"]["d"].keys()
    assert "group" not in entry["ood"]["d"]
    assert entry["ood"]["a"]["group"] == "near"
    assert entry["cost"] == {"members": 2, "parameters": 10, "multiply_adds": 20, "performed": 20, "tokens": 4}
