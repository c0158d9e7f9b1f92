"""`hydractl calibrate`: the temperature of least loss, kept in the file, and used by whatever reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import hydractl as library
from hydractl.checkpoint.ood import OodFit
from hydractl.families.load import read_checkpoint
from tests.cli.conftest import Command


def test_a_calibrated_file_predicts_with_its_temperature(
    hydractl: Command, vit: Path, images: Path, held_out: Path, tmp_path: Path
) -> None:
    result = hydractl("calibrate", vit, "--id-data", held_out, "-o", tmp_path / "warm", "--json")
    assert result.code == 0
    found = json.loads(result.out)
    assert found["nll_after"] < found["nll_before"]
    assert found["argmax_changed"] == 0
    assert read_checkpoint(tmp_path / "warm").temperature == found["temperature"]
    cold, warm = library.load(vit), library.load(tmp_path / "warm")
    pixels = torch.randn(2, 3, 8, 8)
    expected = (cold(pixel_values=pixels).member_logits[0] / found["temperature"]).softmax(-1)
    torch.testing.assert_close(warm(pixel_values=pixels).probabilities, expected)
    args = ("--id-data", images, "--json", "-")
    fitted = json.loads(hydractl("evaluate", f"a={vit}", *args, "--calib-data", held_out, "--temperature", "fit").out)[
        "models"
    ]["a"]
    kept = json.loads(hydractl("evaluate", f"a={tmp_path / 'warm'}", *args).out)["models"]["a"]
    assert kept["id"] == fitted["id"]
    assert kept["temperature"]["value"] == fitted["temperature"]["value"]


def test_predict_flags_what_is_less_typical_than_a_share_of_the_data(
    hydractl: Command, vit: Path, held_out: Path, tmp_path: Path
) -> None:
    hydractl("calibrate", vit, "--id-data", held_out, "--accept", "75%", "-o", tmp_path / "warm")
    ood = read_checkpoint(tmp_path / "warm").ood
    assert ood is not None and ood.fit == OodFit("msp", 18, 0.75)
    found = json.loads(hydractl("predict", tmp_path / "warm", held_out, "--json").out)["predictions"]
    known = ood.tensors["quantiles"].load().tolist()
    for row in found:
        # Rounding may put a sample on either side of its own quantile.
        fewest, most = (sum(score > row["ood_score"] + slack for score in known) for slack in (1e-7, -1e-7))
        assert fewest <= round(19 * row["typicality"]) - 1 <= most
        assert row["ood"] == (row["typicality"] < 0.25) and row["ood_score"] == pytest.approx(-row["msp"])
    hydractl("prune", tmp_path / "warm", "--method", "random", "--budget", 1, "-o", tmp_path / "m1")
    assert read_checkpoint(tmp_path / "m1").ood is None  # found for other weights
