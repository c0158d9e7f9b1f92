"""`hydractl evaluate` on shifted data: given by severity, or made by corruption."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command, save_images
from tests.cli.test_evaluate_systems import models


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


@pytest.mark.parametrize("bad", ["blizzard", "pixelate:0-3", "contrast:1-100000000", ":3"])
def test_a_bad_corruption_is_refused_before_anything_is_read(bad: str, hydractl: Command) -> None:
    result = hydractl("evaluate", "no-model", "--id-data", "no-data", "--corrupt", bad)
    assert (result.code, result.out) == (2, "")
    assert bad in result.err
