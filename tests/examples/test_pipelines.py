"""The examples by make: the digits, cut short, and a line for each table; and the networks among them."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from hydractl.families.load import read_checkpoint

ROOT = Path(__file__).parents[2]
TABLES = ("systems", "paper", "analyses", "cifar10", "sst2", "cifar10-vit", "vit-units", "vit-tiny")


def make(tmp_path: Path, *targets: str, **variables: object) -> subprocess.CompletedProcess[str]:
    """Runs targets in this environment."""
    stamp = tmp_path / "installed"
    stamp.write_text(str(ROOT))
    given = {"BUILD": tmp_path / "build", "VENV": sys.prefix, "INSTALLED": stamp, **variables}
    settings = [f"{name}={value}" for name, value in given.items()]
    command = ["make", "-C", ROOT / "examples", *targets, *settings]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_every_table_has_a_line_that_knows_it(tmp_path: Path) -> None:
    done = make(tmp_path, *TABLES, QUICK=1, SET="--help")
    assert done.stdout.count("usage: ") == len(TABLES)


@pytest.mark.parametrize("name", ["cifar10-vit", "vit-tiny-cifar10/network.safetensors"])
def test_a_network_of_the_examples_is_read(name: str) -> None:
    checkpoint = read_checkpoint(str(ROOT / "examples" / "checkpoints" / name))
    checkpoint.verify()
    assert checkpoint.members == 1 and checkpoint.labels is not None and len(checkpoint.labels) == 10


def test_the_checkpoint_that_lies_there_is_one_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    vit_model = import_module("vit_model")
    vit_model.main(vit_model.NETWORKS["cifar10"], tmp_path / "untrained")
    untrained = read_checkpoint(str(tmp_path / "untrained"))
    trained = read_checkpoint(str(ROOT / "examples" / "checkpoints" / "cifar10-vit"))
    assert (trained.spec, trained.labels) == (untrained.spec, untrained.labels)


@pytest.mark.slow
def test_the_digits_example_runs_through(tmp_path: Path) -> None:
    done = make(tmp_path, "digits", "digits-steps", STEPS=300, MEMBER_STEPS=20, BUILD_STEPS=5)
    build = tmp_path / "build"
    built = json.loads((build / "built" / "work" / "build.json").read_text())
    assert built["verdict"].startswith("hydra against network: ")
    of_build, report = (json.loads((build / f"{name}report.json").read_text()) for name in ("built/report/", ""))
    assert list(of_build["models"]) == ["network", "hydra", "trained"]
    assert list(report["models"]) == ["single", "tuned", "acc", "ood", "avg", "hydra", "unmerged", "untuned"]
    single, hydra = report["models"]["single"], report["models"]["hydra"]
    assert single["id"]["accuracy"] > 0.5
    assert (single["cost"]["members"], hydra["cost"]["members"]) == (1, 3)
    assert single["cost"]["parameters"] < hydra["cost"]["parameters"] < 3 * single["cost"]["parameters"]
    assert (build / "table.txt").read_text() in done.stdout
    assert len(list((build / "data").rglob("*.png"))) > 1797  # every digit of scikit-learn, and the photographs
