"""`hydractl analyse members` and its function say the same of an ensemble, and draw it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hydractl
from hydractl.errors import OptionError
from tests.cli.conftest import Command


@pytest.fixture
def pair(vit: Path, tmp_path: Path) -> Path:
    members = [hydractl.prune(vit, method="random", budget=3, seed=seed).checkpoint for seed in (0, 1)]
    hydractl.fuse(members, output=tmp_path / "pair")
    return tmp_path / "pair"


def test_the_command_prints_what_python_returns(run: Command, pair: Path, images: Path, tmp_path: Path) -> None:
    asked = ("analyse", "members", pair, f"--data={images}", "--limit=8", "--batch-size=5", "--device=cpu")
    done = run(*asked, f"--plot={tmp_path / 'm.png'}", f"--json={tmp_path / 'm.json'}")
    found = hydractl.analyse_members(pair, data=images, limit=8, batch_size=5, device="cpu")
    written = json.loads((tmp_path / "m.json").read_text())
    assert written | {"model": None} == json.loads(json.dumps(found.to_json())) | {"model": None}
    assert written["samples"] == 8 and written["weights_cosine"] == [[None, None], [None, 1.0]]
    assert written["disagreement"] == found.similarity.disagreement.tolist()
    assert done.out.splitlines() == list(found.lines())
    assert done.out.splitlines()[-1].split() == ["member", "1", "-", "1.0000"]
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
    assert "mean of pairs" in found._repr_html_()


def test_one_network_is_not_compared(vit: Path, images: Path) -> None:
    with pytest.raises(OptionError, match="has one member, and there is none to compare it with"):
        hydractl.analyse_members(vit, data=images)
