"""`hydractl calibrate`: the temperature of least loss, kept in the file, and used by whatever reads it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

import hydractl as library
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


def test_predict_flags_what_is_less_sure_than_a_share_of_the_data(
    hydractl: Command, vit: Path, bert: Path, held_out: Path, tmp_path: Path
) -> None:
    hydractl("calibrate", vit, "--id-data", held_out, "--accept", "75%", "-o", tmp_path / "warm")
    acceptance = read_checkpoint(tmp_path / "warm").acceptance
    assert acceptance is not None and acceptance.rate == 0.75
    found = json.loads(hydractl("predict", tmp_path / "warm", held_out, "--json").out)["predictions"]
    # 14 is the least number that is 75 % of 18; samples that are as sure as the last of these are accepted too.
    least = np.float32(acceptance.msp)  # as precise as what it is compared with
    surer = sum(np.float32(row["msp"]) > least for row in found)
    assert surer < 14 <= sum(not row["ood"] for row in found)
    assert all(row["ood"] == (np.float32(row["msp"]) < least) for row in found)
    hydractl("prune", tmp_path / "warm", "--method", "random", "--budget", 1, "-o", tmp_path / "m1")
    assert read_checkpoint(tmp_path / "m1").acceptance is None  # found for other weights
