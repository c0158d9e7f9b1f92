"""`hydractl.score_heads` and `hydractl score-heads` are the same code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import hydractl
from hydractl.circuit.score_methods import SCORE_METHODS, ScoreMethod
from hydractl.errors import OptionError
from tests.cli.conftest import LABELS, Command


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("method", SCORE_METHODS, ids=lambda method: method.name)
def test_python_and_the_command_score_alike(
    run: Command, here: Path, vit: Path, images: Path, noise: Path, method: ScoreMethod
) -> None:
    data = ({"id_data": str(images)} if method.id_data else {}) | ({"ood_data": str(noise)} if method.ood_data else {})
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in data.items()]
    assert run("score-heads", vit, f"--method={method.name}", *flags).code == 0
    scored = hydractl.score_heads(vit, method=method.name, **data)
    written_down = json.loads((here / "scores.json").read_text())
    # A file names the model as seen from where it lies.
    assert Path(written_down["model"]["reference"]).resolve() == here.joinpath(scored.to_json()["model"]["reference"])
    assert scored.to_json() | {"model": None} == written_down | {"model": None}
    assert scored.output is None
    written = hydractl.score_heads(hydractl.load(vit), method=method.name, **data, output="again.json")
    assert (here / "again.json").read_bytes() == (here / "scores.json").read_bytes()
    assert str(written).endswith("again.json")


def test_samples_may_be_at_hand(vit: Path, images: Path) -> None:
    files = sorted(images.glob("*/*.png"))
    pairs = [(np.asarray(Image.open(file)), LABELS.index(file.parent.name)) for file in files]
    named = hydractl.score_heads(vit, method="taylor", id_data=pairs, match_labels="index")
    assert named.to_json()["towers"] == hydractl.score_heads(vit, method="taylor", id_data=images).to_json()["towers"]


def test_a_notebook_shows_the_range_of_the_scores(vit: Path) -> None:
    scored = hydractl.score_heads(vit, method="magnitude")
    assert "<caption>HeadScores</caption>" in scored._repr_html_()
    assert repr(scored).startswith("vision   head   0   1   2   3\n")


def test_a_method_needs_its_data(vit: Path, images: Path) -> None:
    with pytest.raises(OptionError, match="`method` taylor needs `id_data`"):
        hydractl.score_heads(vit, method="taylor")
    with pytest.raises(OptionError, match="`objective` avg needs `ood_data`"):
        hydractl.score_heads(vit, method="ablation", id_data=images)


@pytest.mark.parametrize("method", SCORE_METHODS, ids=lambda method: method.name)
def test_a_network_without_heads_is_refused(method: ScoreMethod, vit: Path, images: Path) -> None:
    bare = hydractl.prune(vit, method="random", budget=8)
    data = {"id_data": images if method.id_data else None, "ood_data": images if method.ood_data else None}
    with pytest.raises(OptionError, match="has no heads left: name a network that has some"):
        hydractl.score_heads(bare, method=method.name, device="cpu", **data)
    with pytest.raises(OptionError, match="has no heads left"):
        hydractl.extract_circuit(bare, budget="all", id_data=images, ood_data=images, device="cpu")
