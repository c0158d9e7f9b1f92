"""The paper's analyses, each cut short, of a small network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import save_images, save_vit
from tests.examples.test_pipelines import make


@pytest.mark.slow
def test_every_analysis_leaves_its_table(tmp_path: Path) -> None:
    vit = save_vit(tmp_path / "vit")
    for seed, (name, count) in enumerate({"search": 6, "test": 6, "train": 24, "noise": 2, "other": 2}.items()):
        save_images(tmp_path / name, count, seed)
    found = tmp_path / "found"
    named = {
        "ANALYSED": vit, "ANALYSES": found, "SEARCH_ID": tmp_path / "search", "SEARCH_OOD": tmp_path / "noise",
        "TEST_ID": tmp_path / "test", "TEST_OOD": f"far/other={tmp_path / 'other'}", "TUNE_ON": tmp_path / "train",
        "ANALYSED_BUDGET": 2, "ANALYSED_POOL": 4, "QUICK": 1,
    }  # fmt: skip
    printed = make(tmp_path, "analyses", **named).stdout
    reports = {file.stem: json.loads(file.read_text()) for file in found.glob("*.json")}
    assert {"overlap", "noise", "budgets", "diversity", "members", "shift"} < reports.keys()
    assert printed.count("## ") == 6
    # B.5: members that differ in their heads disagree; each of the three varies one thing.
    diverse = reports["diversity"]["models"]
    assert list(diverse) == ["pruning", "order", "noise"]
    assert all({"mutual_information", "disagreement"} <= one[part].keys() for one in diverse.values()
               for part, one in (("id", one), ("other", one["ood"])))  # fmt: skip
    assert diverse["pruning"]["id"]["mutual_information"] > diverse["order"]["id"]["mutual_information"]
    assert diverse["pruning"]["id"]["mutual_information"] > diverse["noise"]["id"]["mutual_information"]
    assert {point["method"] for point in reports["budgets"]["points"]} == {"dense", "avg", "taylor"}
    assert len(reports["overlap"]["pairs"]) == 6  # of three circuits and the scores
    assert [entry["kind"] for entry in reports["noise"]["noisy"]] == ["contrast"]
    assert len(reports["members"]["models"]) == 3
    assert list(reports["shift"]["models"]["hydra"]["shift"]) == ["contrast", "pixelate"]
    # Nothing is made twice.
    before = {file.name: file.stat().st_mtime_ns for file in found.iterdir()}
    make(tmp_path, "analyses", **named)
    assert {file.name: file.stat().st_mtime_ns for file in found.iterdir()} == before
