"""Where steps write: in Python a path may be text, as everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

import hydractl
from hydractl.cli.commands import COMMANDS
from hydractl.cli.derive import Command
from hydractl.options import declared
from tests.cli.conftest import save_images, save_vit


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    return save_vit(tmp_path / "vit")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return save_images(tmp_path / "pets")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_no_option_takes_paths_alone(command: Command) -> None:
    assert [option.name for option in declared(command.step) if option.type is Path] == []


def test_outputs_that_are_text(vit: Path, images: Path, tmp_path: Path) -> None:
    scored = hydractl.score_heads(vit, method="taylor", id_data=images, output=str(tmp_path / "scores.json"))
    assert scored.output == tmp_path / "scores.json"
    found = hydractl.select(
        vit, random=2, budgets="1", members="2", id_data=images, ood_data=[images],
        output=str(tmp_path / "s.json"), hydra=str(tmp_path / "s"),
    )  # fmt: skip
    assert (found.output, found.hydra) == (tmp_path / "s.json", tmp_path / "s")
    fused = hydractl.fuse([vit, vit], output=str(tmp_path / "fused"))
    assert fused.output == tmp_path / "fused"
    found = hydractl.extract_circuit(vit, id_data=images, objective="acc", budget=1, output=str(tmp_path / "c.json"))
    site = hydractl.guide(html=str(tmp_path / "site"))
    for name in ("scores.json", "s.json", "s", "fused", "c.json", "site"):
        assert (tmp_path / name).exists()
    assert str(tmp_path / "site") in "\n".join(site.lines())
