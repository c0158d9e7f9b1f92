"""Metrics of one system put together: which mean is over which sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hydractl.evaluation.cost import Cost
from hydractl.evaluation.results import group_means, measure
from hydractl.evaluation.run import Calibration, Predictions
from hydractl.evaluation.sets import SetKey
from hydractl.evaluation.settings import Settings
from hydractl.metrics.ood_detection import ood_metrics
from hydractl.metrics.table import PredictionTable, tabulate

COST = Cost(members=2, parameters=10, multiply_adds=20, performed=20, tokens=4)
ID = SetKey("id", "pets")


def table(samples: int, scale: float, labels: bool = False, seed: int = 0) -> PredictionTable:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(2, samples, 4)) * scale
    return tabulate(logits, generator.integers(0, 4, samples) if labels else None)


@pytest.fixture
def predictions() -> Predictions:
    tables = {
        ID: table(6, 2.0, labels=True),
        SetKey("ood", "a", "near"): table(5, 1.0, seed=1),
        SetKey("ood", "b", "far"): table(7, 2.0, seed=2),
        SetKey("ood", "c", "far"): table(9, 3.0, seed=3),
        SetKey("ood", "d"): table(11, 4.0, seed=4),
    }
    return Predictions(Calibration(1.0), tables, {key: -table.msp for key, table in tables.items()})


def test_means_are_flat_over_the_sets_of_a_group(predictions: Predictions) -> None:
    result = measure(predictions, COST, Settings())
    inside = predictions.tables[ID]
    auroc = {
        key.name: ood_metrics(-inside.msp, -table.msp).auroc
        for key, table in predictions.tables.items()
        if key.role == "ood"
    }
    assert {name: entry.detection.auroc for name, entry in result.ood.items()} == auroc
    assert result.means["near"].detection.auroc == auroc["a"]
    assert result.means["far"].detection.auroc == pytest.approx((auroc["b"] + auroc["c"]) / 2)
    assert result.means["all"].detection.auroc == pytest.approx(sum(auroc.values()) / 4)
    assert result.means["all"].samples == 5 + 7 + 9 + 11


def test_a_group_without_sets_has_no_mean() -> None:
    assert group_means({}) == {}


def test_another_score_changes_detection_only(predictions: Predictions) -> None:
    entropies = {key: table.entropy for key, table in predictions.tables.items()}
    by_msp = measure(predictions, COST, Settings("msp"))
    by_entropy = measure(replace(predictions, scores=entropies), COST, Settings("entropy"))
    assert by_msp.id == by_entropy.id
    b = predictions.tables[SetKey("ood", "b", "far")]
    assert by_entropy.ood["b"].detection == ood_metrics(predictions.tables[ID].entropy, b.entropy)


def test_the_report_entry_is_plain_and_complete(predictions: Predictions) -> None:
    entry = measure(predictions, COST, Settings()).to_json()
    assert entry.keys() == {"id", "selective", "ood", "ood_means", "temperature", "cost"}
    assert entry["id"]["samples"] == 6
    calibration = {"brier", "nll", "ece", "adaptive_ece"}
    assert {"accuracy", *calibration, "mutual_information", "disagreement"} < entry["id"].keys()
    assert {"auroc", "fpr95", "aupr_out", "aupr_in", "ood_share", "mutual_information"} < entry["ood"]["d"].keys()
    assert "group" not in entry["ood"]["d"]
    assert entry["ood"]["a"]["group"] == "near"
    assert entry["temperature"] == {"value": 1.0}
    assert entry["cost"] == {"members": 2, "parameters": 10, "multiply_adds": 20, "performed": 20, "tokens": 4}
