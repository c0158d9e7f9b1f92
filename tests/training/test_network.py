from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hydractl.checkpoint.calibration import NOT_CALIBRATED
from hydractl.families.load import read_checkpoint
from hydractl.training.network import as_written, build_network, decays, network_checkpoint, trained_parameters
from hydractl.training.recipe import Recipe
from tests.conftest import build_reference


@pytest.mark.parametrize("name", ["modernbert", "siglip-zero-shot", "timm-rope-registers"])
def test_no_norm_decays_wherever_it_stands(name: str, tmp_path: Path) -> None:
    slots = read_checkpoint(build_reference(name).save(tmp_path)).slots()
    norms = [slot for slot in slots if "norm." in slot]
    assert norms and not any(decays(slot, slots[slot]) for slot in norms)


def test_a_network_trains_and_validates_without_its_calibration(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(build_reference("vit").save(tmp_path))
    calibrated = replace(checkpoint, calibration=replace(NOT_CALIBRATED, temperature=3.0))
    assert build_network(calibrated, Recipe()).calibration == NOT_CALIBRATED


def test_what_is_validated_is_what_is_written(tmp_path: Path) -> None:
    reference = build_reference("vit", dtype=torch.bfloat16)
    checkpoint = read_checkpoint(reference.save(tmp_path))
    model = build_network(checkpoint, Recipe())
    for _, _, parameter in trained_parameters(model):
        parameter.data += 1e-5 * torch.randn_like(parameter)
    trained = {name: parameter.data.clone() for name, _, parameter in trained_parameters(model)}
    written = network_checkpoint(model, checkpoint).tensors
    with pytest.raises(KeyboardInterrupt), as_written(model, checkpoint):
        for name, _, parameter in trained_parameters(model):
            assert torch.equal(parameter, written[name].load().float())
        raise KeyboardInterrupt
    assert all(torch.equal(parameter, trained[name]) for name, _, parameter in trained_parameters(model))
    assert any(not torch.equal(numbers, written[name].load().float()) for name, numbers in trained.items())
