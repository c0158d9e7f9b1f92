"""The paper's table and its analyses, cut short, of a small network."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import save_images, save_vit
from tests.examples.test_pipelines import make

MADE = {"tuned", "mc-dropout", "deep-ensemble-tuned", "taught-by-ensemble", "lora-ensemble", "batch-ensemble",
        "mask-ensemble"}  # fmt: skip
WAYS = ("", "-tuned", "-taught-by-single", "-taught-by-ensemble")  # of a Hydra that was selected
OF_BUDGET = ("taylor", "acc", "ood", "avg", "draws", "hydra-taylor", "hydra-circuit", "hydra-draws")


@pytest.mark.slow
def test_every_system_stands_on_one_table(tmp_path: Path) -> None:
    vit = save_vit(tmp_path / "vit", num_hidden_layers=3)
    counts = {"search": 6, "choose": 6, "calibration": 6, "test": 6, "train": 24, "noise": 2, "other": 2, "third": 2}
    for seed, (name, count) in enumerate(counts.items()):
        save_images(tmp_path / name, count, seed)
    found = tmp_path / "found"
    named = {
        "TABLED": vit, "TABLE": found, "TABLE_TRAIN": tmp_path / "train", "TABLE_SEARCH_ID": tmp_path / "search",
        "TABLE_SEARCH_OOD": tmp_path / "noise", "TABLE_CHOOSE_ID": tmp_path / "choose",
        "TABLE_CHOOSE_OOD": tmp_path / "third", "TABLE_CALIBRATION": tmp_path / "calibration",
        "TABLE_TEST_ID": tmp_path / "test", "TABLE_TEST_OOD": f"far/other={tmp_path / 'other'}",
        "ALSO": f"copy={vit}", "QUICK": 1,
    }  # fmt: skip
    printed = make(tmp_path, "table", **named).stdout
    models = json.loads((found / "table.json").read_text())["models"]
    assert set(models) == (
        {"single", "copy"} | MADE | {f"{name}{end}" for name in OF_BUDGET for end in ("-2", "-2-tuned", "-6")}
        | {f"hydra-{name}{end}" for name in ("selected", "trunk1") for end in WAYS}
    )  # fmt: skip
    assert all(name in printed for name in models)
    # What stands beside the network was trained or pruned; its copy was not.
    nll = {name: entry["id"]["nll"] for name, entry in models.items()}
    assert [name for name in nll if nll[name] == nll["single"]] == ["single", "copy"]
    # A member alone costs less than the network, and three less than three of it.
    whole = models["single"]["cost"]["multiply_adds"]
    cost = {name: entry["cost"]["multiply_adds"] / whole for name, entry in models.items()}
    assert cost["avg-2"] < 1 < cost["hydra-draws-2"] < 3 == cost["deep-ensemble-tuned"]
    # Nothing is made twice.
    before = {file: file.stat().st_mtime_ns for file in found.rglob("*.safetensors")}
    (found / "table.txt").unlink()
    make(tmp_path, "table", **named)
    assert {file: file.stat().st_mtime_ns for file in found.rglob("*.safetensors")} == before


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
