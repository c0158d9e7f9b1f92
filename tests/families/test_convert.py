"""Images of another size than config.json names give the logits that transformers gives for them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import hydractl
from hydractl.families import FAMILIES
from hydractl.families.convert import processed_size
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.model.hydra import from_checkpoint
from tests.conftest import build_reference

INTERPOLATED = ("dinov2", "dinov2-registers", "dinov3", "beit", "data2vec-vision")


@pytest.mark.parametrize("size", [[8, 8], [24, 24], [8, 20], [4, 36]])  # the last has as many patches
@pytest.mark.parametrize("name", [*INTERPOLATED, "beit-placed-first"])
def test_positions_are_interpolated_to_the_size_that_the_processor_gives(
    name: str, size: list[int], tmp_path: Path
) -> None:
    if size[0] != size[1] and name.startswith(("beit", "data2vec", "dinov3")):
        pytest.skip("square images only")
    reference = build_reference(name)
    reference = replace(reference, inputs={"pixel_values": torch.randn(3, 3, *size, dtype=torch.float64)})
    expected = reference.logits()
    folder = reference.save(tmp_path / "model")
    processor = {"image_processor_type": "BitImageProcessor", "crop_size": {"height": size[0], "width": size[1]}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    checkpoint = read_checkpoint(folder)
    found = from_checkpoint(checkpoint)(**reference.inputs).member_logits[0]
    assert_close(found, expected, rtol=0, atol=1e-10)
    write_checkpoint(checkpoint, tmp_path / "ours")
    assert torch.equal(hydractl.load(tmp_path / "ours")(**reference.inputs).member_logits[0], found)


def test_every_family_that_interpolates_is_tested() -> None:
    assert {family.name for family in FAMILIES if family.interpolation is not None} == set(INTERPOLATED)


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({"crop_size": {"height": 4, "width": 6}, "size": {"shortest_edge": 9}}, (4, 6)),
        ({"crop_size": 4, "do_center_crop": True, "size": 9}, (4, 4)),
        ({"crop_size": 4, "do_center_crop": False, "size": 9}, (9, 9)),
        ({"crop_size": 4, "do_center_crop": None, "size": [4, 6]}, (4, 6)),  # as fast processors of 4.5x write it
        ({"size": [4, 6]}, (4, 6)),
        ({"size": {"shortest_edge": 9}}, None),
        ({"size": 9, "do_resize": False}, None),
        ({"size": 9, "do_resize": None}, None),
        ({"size": "large"}, None),
        ({}, None),
    ],
)
def test_the_size_that_a_processor_gives(settings: dict[str, Any], size: tuple[int, int] | None) -> None:
    assert processed_size({"preprocessor_config.json": settings}) == size
    assert processed_size({"processor_config.json": {"image_processor": settings}}) == size
