"""Intervals, paired differences and seeds, against the definition applied by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hydractl.errors import OptionError
from hydractl.evaluation.certainty import Measured, aggregate, assemble, resample
from hydractl.evaluation.results import measure
from hydractl.evaluation.run import Calibration, Predictions
from hydractl.evaluation.sets import SetKey
from hydractl.evaluation.settings import Settings
from hydractl.metrics.ood_detection import ood_metrics
from hydractl.metrics.table import tabulate


def predictions(seed: int, sharpness: float = 1.0) -> Predictions:
    generator = np.random.default_rng(seed)
    labels = generator.integers(4, size=60)
    logits = generator.normal(size=(2, 60, 4))
    logits[:, np.arange(60), labels] += sharpness
    tables = {SetKey("id", "pets"): tabulate(logits, labels)}
    for name, group in (("a", "near"), ("b", "far")):
        tables[SetKey("ood", name, group)] = tabulate(generator.normal(size=(2, 30, 4)))
    return Predictions(Calibration(1.0), tables, {key: -table.msp for key, table in tables.items()})


def measured(name: str, found: Predictions, replicates: int = 200) -> Measured:
    settings = Settings()
    return Measured(name, measure(found, None, settings).to_json(), resample(found, settings, replicates, 0))


def test_replicates_are_the_metrics_of_resampled_samples() -> None:
    found = predictions(0)
    drawn = resample(found, Settings(), 3, seed=5)
    tables = {key.name: table for key, table in found.tables.items()}
    generator = np.random.default_rng(5)
    for r in range(3):
        inside, a, b = (generator.integers(n, size=n) for n in (60, 30, 30))
        scores = -tables["pets"].msp[inside]
        expected = [ood_metrics(scores, -tables[name].msp[rows]).auroc for name, rows in (("a", a), ("b", b))]
        assert [drawn["ood"][name]["auroc"][r] for name in "ab"] == pytest.approx(expected)
        assert drawn["ood_means"]["all"]["auroc"][r] == pytest.approx(np.mean(expected))


def test_intervals_hold_the_number_and_differences_are_paired() -> None:
    weak, strong = predictions(0), predictions(0, sharpness=4.0)
    entries = assemble([measured("weak", weak), measured("again", weak), measured("strong", strong)])
    low, high = entries["weak"]["intervals"]["ood_means"]["all"]["auroc"]
    assert low < entries["weak"]["ood_means"]["all"]["auroc"] < high
    assert "difference" not in entries["weak"]
    # The same predictions differ by nothing at all: draws are the same for every system.
    assert entries["again"]["difference"]["id"]["accuracy"] == {"value": 0.0, "interval": [0.0, 0.0]}
    found = entries["strong"]["difference"]["id"]["accuracy"]
    assert found["value"] == entries["strong"]["id"]["accuracy"] - entries["weak"]["id"]["accuracy"]
    assert 0 < found["interval"][0] < found["value"] < found["interval"][1]


def test_an_interval_holds_its_number_where_resampling_is_biased() -> None:
    drawn = {"id": {"ece": np.array([0.04, 0.05, 0.06]), "accuracy": np.array([0.9, 1.0, 1.0])}}
    entry = assemble([Measured("m", {"id": {"ece": 0.02, "accuracy": 1.0}}, drawn)])["m"]
    assert entry["intervals"]["id"]["ece"] == pytest.approx([0.0105, 0.0295])  # about .02, not about .05
    assert entry["intervals"]["id"]["accuracy"][1] == 1.0  # never beyond what can be


def test_seeds_are_a_mean_and_a_deviation() -> None:
    parts = [measured("m", predictions(seed)) for seed in range(3)]
    entry = assemble(parts)["m"]
    accuracies = [part.entry["id"]["accuracy"] for part in parts]
    assert entry["id"]["accuracy"] == pytest.approx(np.mean(accuracies))
    assert entry["std"]["id"]["accuracy"] == pytest.approx(np.std(accuracies, ddof=1))
    assert [seed["id"]["accuracy"] for seed in entry["seeds"]] == accuracies
    assert entry["ood"]["a"]["group"] == "near"
    assert entry["id"]["samples"] == 60
    low, high = entry["intervals"]["id"]["accuracy"]
    assert low < entry["id"]["accuracy"] < high


def test_what_only_some_seeds_have_is_left_out() -> None:
    entries: list[dict[str, Any]] = [{"id": {"nll": 1.0}, "cost": None}, {"id": {"nll": 3.0}, "cost": {"members": 1}}]
    found = aggregate(entries)
    assert found["id"] == {"nll": 2.0}
    assert "cost" not in found


def test_other_styles_have_no_intervals() -> None:
    with pytest.raises(OptionError, match="`style` hydractl"):
        resample(predictions(0), Settings(style="openood"), 10, 0)
