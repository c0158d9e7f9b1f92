"""`hydractl evaluate --streaming`: the same numbers, leaks refused where they show, and what needs all data says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hydractl.data.hashes import sketch
from hydractl.data.open import open_samples
from tests.cli.conftest import LABELS, Command


def models(hydractl: Command, *arguments: object) -> tuple[dict[str, Any], dict[str, Any]]:
    result = hydractl("evaluate", *arguments, "--batch-size", 5, "--json", "-")
    assert (result.code, result.err) == (0, "")
    content = json.loads(result.out)
    return content["models"], content["data"]


def test_images_give_the_same_bytes(hydractl: Command, vit: Path, images: Path, noise: Path) -> None:
    asked = (vit, "--id-data", images, "--ood-data", f"far/noise={noise}", "--shift-data", f"fog/3={images}")
    whole = models(hydractl, *asked)
    assert models(hydractl, *asked, "--streaming") == whole
    assert models(hydractl, *asked, "--streaming", "--workers", 2) == whole


def test_texts_of_unknown_number_give_the_same_numbers(hydractl: Command, bert: Path, tmp_path: Path) -> None:
    rows = [{"text": "a good film " * (i % 4 + 1) + "owl " * (i % 3), "label": LABELS[i % 3]} for i in range(17)]
    (tmp_path / "id.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "ood.csv").write_text("text\n" + "owl owl\nfilm\n" * 9)
    asked = (f"one={bert}", f"two={bert}", "--id-data", tmp_path / "id.jsonl", "--ood-data", tmp_path / "ood.csv")
    (whole, _), (streamed, described) = models(hydractl, *asked), models(hydractl, *asked, "--streaming")
    assert "samples" not in described["id"]
    for name in ("one", "two"):  # each system reads the stream anew
        assert streamed[name]["id"] == pytest.approx(whole[name]["id"], abs=1e-6)
        assert streamed[name]["ood"]["ood"]["samples"] == 18
        assert streamed[name]["ood"]["ood"]["auroc"] == pytest.approx(whole[name]["ood"]["ood"]["auroc"], abs=1e-4)


def test_truncation_is_counted_and_a_limit_said(hydractl: Command, bert: Path, tmp_path: Path) -> None:
    rows = [{"text": text, "label": "cat"} for text in ("a " * 30, "a", "good " * 15, "owl")]
    (tmp_path / "id.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = hydractl("evaluate", bert, "--id-data", tmp_path / "id.jsonl", "--streaming", "--limit", 3)
    first, second = result.err.splitlines()
    assert (
        first
        == f"note: {tmp_path / 'id.jsonl'}: takes the first 3 samples: of data sorted by class that is no fair sample"
    )
    assert second == "note: bert: id: 2 texts are too long for the model and lost their end"


def test_what_made_the_model_is_refused_at_its_block(
    hydractl: Command, vit: Path, images: Path, noise: Path, tmp_path: Path
) -> None:
    used = open_samples(f"{images}:[8:9]", "image")
    circuit = {
        "format": "hydractl-circuit",
        "version": 1,
        "steps": [{"tower": "vision", "layer": 0, "head": 0}],
        "search_data": {"id": sketch(used.content_hashes())},
    }
    (tmp_path / "c.json").write_text(json.dumps(circuit))
    chosen = ("--method=circuit", "--circuit", tmp_path / "c.json", "--budget=1")
    assert hydractl("prune", vit, *chosen, "-o", tmp_path / "m").code == 0
    asked = ("evaluate", tmp_path / "m", "--streaming", "--batch-size", 4, "--id-data")
    refused = hydractl(*asked, images)
    assert refused.code == 1
    assert "1 of 4 samples were used to make m (as id)" in refused.err
    assert "read them without --streaming and pass --allow-leak" in refused.err
    assert hydractl(*asked, f"{images}:[:8]").code == 0
    calibrated = hydractl(*asked, f"{images}:[:8]", "--calib-data", f"{images}:[7:8]", "--temperature", "fit")
    assert "1 of 4 samples are in --calib-data too" in calibrated.err


def test_a_stream_is_corrupted_as_samples_are(hydractl: Command, vit: Path, images: Path) -> None:
    arguments = (vit, "--id-data", images, "--batch-size", 4, "--corrupt", "glass_blur,snow:2")
    assert models(hydractl, *arguments, "--streaming") == models(hydractl, *arguments)
