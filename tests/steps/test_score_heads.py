"""`hydractl.score_heads` and `hydractl score-heads` are the same code."""

from __future__ import annotations

import json
from dataclasses import fields
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


def data_of(method: type[ScoreMethod], inside: Path, outside: Path) -> dict[str, str]:
    """Returns the data that a method takes."""
    places = {"id_data": str(inside), "ood_data": str(outside)}
    return {field.name: places[field.name] for field in fields(method) if field.name in places}  # type: ignore[arg-type]


@pytest.mark.parametrize("method", SCORE_METHODS, ids=lambda method: method.name)
def test_python_and_the_command_score_alike(
    run: Command, here: Path, vit: Path, images: Path, noise: Path, method: type[ScoreMethod]
) -> None:
    data = data_of(method, images, noise)
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


@pytest.mark.parametrize(
    ("method", "given", "named"),
    [
        ("taylor", (), "`id_data`"),
        ("separation", ("id_data",), "`ood_data`"),
        ("ablation", ("id_data",), "`ood_data`"),
        ("magnitude", ("id_data",), "`id_data`"),
        ("taylor", ("id_data", "ood_data"), "`ood_data`"),
    ],
)
def test_a_method_takes_its_own_data(vit: Path, images: Path, method: str, given: tuple[str, ...], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        hydractl.score_heads(vit, method=method, **dict.fromkeys(given, images))


@pytest.mark.parametrize("method", SCORE_METHODS, ids=lambda method: method.name)
def test_a_network_without_heads_is_refused(method: type[ScoreMethod], vit: Path, images: Path) -> None:
    bare = hydractl.prune(vit, method="random", budget=8)
    with pytest.raises(OptionError, match="has no heads left"):
        hydractl.score_heads(bare, method=method.name, device="cpu", **data_of(method, images, images))
    with pytest.raises(OptionError, match="has no heads left"):
        hydractl.extract_circuit(bare, budget="all", id_data=images, ood_data=images, device="cpu")
