"""Every table of the examples, cut short on the data that it makes itself."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from PIL import Image

from hydractl.families.load import read_checkpoint

TABLES = Path(__file__).parents[2] / "examples" / "tables"
SYSTEMS = "single tuned hydra deep-ensemble calibrated mc-dropout pruned"
UNITS = "network tuned taught soup units units-apart units-taught published deep-ensemble"
ROWS = {
    "systems digits": f"{SYSTEMS} oba",
    "systems cifar10": SYSTEMS,
    "systems sst2": SYSTEMS,
    "units vit": UNITS,
    "units vit-tiny": f"{UNITS} units-pretrained units-soup",
}
OF_BUDGET = ("taylor", "acc", "ood", "avg", "draws", "hydra-taylor", "hydra-circuit", "hydra-draws")
WAYS = ("", "-tuned", "-taught-by-single", "-taught-by-ensemble")  # of a Hydra that was selected


def run(script: str, output: Path, *options: object, code: int = 0) -> str:
    """Returns what a quick table prints."""
    name, *table = script.split()
    command = [sys.executable, TABLES / f"{name}.py", *table, "--quick", "--output", output, *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=output.parent)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def models(file: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Returns the entries of a report by their systems."""
    return dict(json.loads(file.read_text())["models"])


def dates(folder: Path) -> dict[Path, int]:
    """Returns when each file was made."""
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.mark.slow
@pytest.mark.parametrize("script", ROWS)
def test_a_table_has_its_rows(script: str, output: Path) -> None:
    printed = run(script, output)
    assert list(models(output / "table.json")) == ROWS[script].split()
    assert (output / "table.txt").read_text() in printed
    if script.startswith("units"):
        assert read_checkpoint(str(output / "units.safetensors")).members == 3
    if script == "units vit-tiny":
        vision = read_checkpoint(str(output / "network0.safetensors")).spec.tower("vision")
        assert vision.embeddings.image_size == (32, 32)
    if script == "systems digits":
        own = models(output / "own.json")
        assert list(own) == ["single", "tuned", "hydra", "deep-ensemble"]
        assert all("typicality" in one for one in own.values())
        assert {"id", "ood"} <= read_checkpoint(str(output / "hydra.safetensors")).provenance["search_data"].keys()


@pytest.mark.slow
def test_a_table_goes_on_and_keeps_its_settings(output: Path) -> None:
    run("systems sst2", output)
    before = dates(output)
    again = [output / name for name in ("table.txt", "table.json", "pruned0.safetensors", "hydra.safetensors")]
    for file in again:
        file.unlink()
    run("systems sst2", output)
    assert {file for file, date in dates(output).items() if before.get(file) != date} == set(again)
    assert "table of other settings" in run("systems sst2", output, "--budget", 3, code=1)


@pytest.mark.slow
def test_the_front_holds_untrained_hydras_and_an_ensemble(output: Path) -> None:
    run("front", output, "--trunks", 2, 1, "--shares", 0.5)
    forms = [f"-units50{form}{more}" for form in ("", "-refitted") for more in ("", "-network")]
    hydras = [f"trunk{trunk}{form}" for trunk in (2, 1) for form in forms]
    table = models(output / "table.json")
    assert list(table) == ["network", *hydras, "trunk1-units50-heads1", "trunk1-units50-heads1-refitted", "ensemble"]
    assert table["ensemble"]["difference"]["id"]["nll"]["value"] == 0  # of two copies of the network
    assert not any("typicality" in entry for entry in table.values())  # all are compared by the MSP


@pytest.mark.slow
def test_networks_from_nothing_share_their_beginning_and_become_a_hydra(output: Path) -> None:
    run("cifar10_vit", output, "--members", 2)
    assert len({(output / f"network{seed}.safetensors").read_bytes() for seed in range(3)}) == 3
    assert list(models(output / "built" / "report" / "report.json")) == ["network", "hydra", "trained"]
    assert read_checkpoint(str(output / "built" / "hydra.safetensors")).members == 2


@pytest.mark.slow
def test_the_table_of_the_paper_has_every_system(output: Path) -> None:
    run("paper", output, "--also", f"copy={output / 'made' / 'vit'}")
    found = models(output / "table.json")
    made = {"tuned", "mc-dropout", "deep-ensemble-tuned", "taught-by-ensemble"}
    assert set(found) == (
        {"single", "copy"} | made | {f"{name}{end}" for name in OF_BUDGET for end in ("-2", "-2-tuned", "-6")}
        | {f"hydra-{name}{end}" for name in ("selected", "trunk1") for end in WAYS}
    )  # fmt: skip
    # What stands beside the network was trained or pruned; its copy was not.
    nll = {name: entry["id"]["nll"] for name, entry in found.items()}
    assert [name for name in nll if nll[name] == nll["single"]] == ["single", "copy"]
    # A member alone costs less than the network, and three less than three of it.
    whole = found["single"]["cost"]["multiply_adds"]
    cost = {name: entry["cost"]["multiply_adds"] / whole for name, entry in found.items()}
    assert cost["avg-2"] < 1 < cost["hydra-draws-2"] < 3 == cost["deep-ensemble-tuned"]


@pytest.mark.slow
def test_files_of_the_paper_carry_scores_that_ood_data_choose(output: Path) -> None:
    asked = "--fit-ood {made}/data/far_search --budgets 2 --tuned-budgets --trunks --ensemble"
    run("paper", output, *asked.split(), *[output / "made" / "vit"] * 3)
    found = models(output / "table.json")
    assert "deep-ensemble" in found and "hydra-trunk1" not in found
    assert [name for name, entry in found.items() if "typicality" not in entry] == ["mc-dropout"]


@pytest.mark.slow
def test_every_analysis_leaves_its_table(output: Path) -> None:
    printed = run("analyses", output)
    names = ("overlap", "noise", "budgets", "diversity", "members", "shift")
    reports = {name: json.loads((output / f"{name}.json").read_text()) for name in names}
    assert printed.count("## ") == 6
    # B.5: members that differ in their heads disagree; each of the three varies one thing.
    diverse = {name: entry["id"]["mutual_information"] for name, entry in reports["diversity"]["models"].items()}
    assert list(diverse) == ["pruning", "order", "noise"]
    assert diverse["pruning"] > max(diverse["order"], diverse["noise"])
    assert {point["method"] for point in reports["budgets"]["points"]} == {"dense", "avg", "taylor"}
    assert len(reports["overlap"]["pairs"]) == 6  # of three circuits and the scores
    assert [entry["kind"] for entry in reports["noise"]["noisy"]] == ["contrast"]
    assert len(reports["members"]["models"]) == 3
    assert list(reports["shift"]["models"]["hydra"]["shift"]) == ["contrast", "pixelate"]
    before = dates(output)
    run("analyses", output)
    assert [file.name for file, date in dates(output).items() if before.get(file) != date] == ["summary.txt"]


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("torch_uncertainty") is None or find_spec("lightning") is None,
    reason="torch-uncertainty and lightning, without which it cannot be imported, are not installed",
)
def test_packed_and_mimo_join_the_table(output: Path) -> None:
    run("systems cifar10", output, "--scratch", "packed", "mimo", "--scratch-with", "epochs=1", "no-flip")
    assert list(models(output / "table.json"))[-2:] == ["packed", "mimo"]


def test_images_without_the_classes_of_cifar10_are_halved(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (1000, 2, 2, 3), dtype=np.uint8)
    Dataset.from_dict({"image": [Image.fromarray(one) for one in pixels]}).to_parquet(tmp_path / "imagenet.parquet")
    names = [tmp_path / f"{name}.parquet" for name in ("imagenet", "choose", "near")]
    subprocess.run([sys.executable, TABLES / "near_imagenet.py", *names], check=True)
    assert [pq.read_table(name).num_rows for name in names] == [1000, 374, 373]  # as results/vit-tiny.md counts them
