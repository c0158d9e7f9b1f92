"""The networks that lie among the examples."""

from pathlib import Path

import pytest

from hydractl.families.load import read_checkpoint

CHECKPOINTS = Path(__file__).parents[2] / "examples" / "checkpoints"


@pytest.mark.parametrize("name", ["cifar10-vit", "vit-tiny-cifar10/network.safetensors"])
def test_a_network_of_the_examples_is_read(name: str) -> None:
    checkpoint = read_checkpoint(str(CHECKPOINTS / name))
    checkpoint.verify()
    assert checkpoint.members == 1 and checkpoint.labels is not None and len(checkpoint.labels) == 10
