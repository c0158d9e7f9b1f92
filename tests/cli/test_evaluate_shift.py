"""`hydractl evaluate` on shifted data: given by severity, or made by corruption."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command, models, save_images


def test_shifted_data_by_severity(hydractl: Command, vit: Path, images: Path, tmp_path: Path) -> None:
    held_out = save_images(tmp_path / "held-out", count=6, seed=5)
    shift = [f"--shift-data=fog/{severity}={source}" for severity, source in ((1, images), (5, held_out))]
    found = models(hydractl, vit, "--id-data", images, *shift)["vit"]
    assert found["shift"]["fog"].keys() == {"1", "5"}
    for key, value in found["id"].items():
        assert found["shift"]["fog"]["1"][key] == value
    assert found["shift"]["fog"]["5"]["samples"] == 18
    result = hydractl("evaluate", vit, "--id-data", images, "--shift-data", f"fog={images}")
    assert (result.code, "NAME/SEVERITY=" in result.err) == (2, True)


def test_corrupted_images_by_severity(hydractl: Command, vit: Path, images: Path) -> None:
    arguments = (vit, "--id-data", images, "--corrupt", "gaussian_noise,pixelate:2-3")
    found = models(hydractl, *arguments)["vit"]["shift"]
    assert {kind: set(by) for kind, by in found.items()} == {
        "gaussian_noise": {"2", "3"},
        "pixelate": {"2", "3"},
    }
    assert found == models(hydractl, *arguments, "--workers", 2)["vit"]["shift"]


def test_means_over_kinds_and_severities(hydractl: Command, vit: Path, images: Path, tmp_path: Path) -> None:
    other = save_images(tmp_path / "other", count=2, seed=5)
    sets = [f"--shift-data={name}={images}" for name in ("fog/1", "rain/1", "rain/2")]
    arguments = ["evaluate", vit, "--id-data", images, *sets, f"--shift-data=fog/2={other}", "--bootstrap=0"]
    result = hydractl(*arguments, f"--shift-data=saturate/1={other}", "--json=-")
    found = json.loads(result.out)["models"]["vit"]
    same, differs = found["id"], found["shift"]["fog"]["2"]
    for metric in ("accuracy", "brier", "nll", "ece", "adaptive_ece"):
        means = {
            where: {name: one[metric] for name, one in found["shift_means"][where].items()}
            for where in ("by_severity", "by_kind")
        }
        half = (same[metric] + differs[metric]) / 2
        assert means["by_severity"] == pytest.approx({"1": same[metric], "2": half})
        # Of the kinds besides the fifteen there is a mean, and they are in no other.
        assert means["by_kind"] == pytest.approx(
            {"fog": half, "rain": same[metric], "saturate": found["shift"]["saturate"]["1"][metric]}
        )
        assert found["shift_means"]["all"][metric] == pytest.approx((3 * same[metric] + differs[metric]) / 4)
    assert found["shift_means"]["all"]["samples"] == 3 * same["samples"] + 6
    shown = hydractl(*arguments, "--full").out
    assert all(title in shown for title in ("mean under shift", "mean at severity 2", "mean of rain", "fog 2"))
    assert "mean at severity" not in hydractl(*arguments).out
    alone = json.loads(hydractl("evaluate", vit, "--id-data", images, sets[0], "--json=-").out)
    assert "shift_means" not in alone["models"]["vit"]
