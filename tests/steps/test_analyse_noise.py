"""`hydractl.analyse_noise` and `hydractl analyse noise` are the same code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import hydractl
from hydractl.errors import HydractlError
from hydractl.report.noise import noise_lines
from tests.cli.conftest import Command, save_vit


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vit: Path) -> Path:
    """A current folder with `m1`, the ViT less two heads."""
    monkeypatch.chdir(tmp_path)
    hydractl.prune(vit, method="random", budget=2, output="m1")
    return tmp_path


def test_python_and_the_command_find_the_same(run: Command, here: Path, vit: Path, images: Path) -> None:
    arguments = ("--id-data", images, "--corrupt", "contrast:1-2", "--draws", 2, "--seed", 3)
    done = run("analyse", "noise", vit, "m1", *arguments, "--plot", "noise.svg", "--json")
    found = hydractl.analyse_noise(vit, "m1", id_data=images, corrupt="contrast:1-2", draws=2, seed=3)
    assert json.loads(done.out)["noisy"] == found.to_json()["noisy"]
    assert [(effect.kind, effect.severity) for effect in found.analysis.effects] == [("contrast", 1), ("contrast", 2)]
    assert run("analyse", "noise", vit, "m1", *arguments).out == f"{found!r}\n"
    longest = [replace(effect, kind="elastic_transform") for effect in found.analysis.effects]
    assert max(map(len, noise_lines(replace(found.analysis, effects=tuple(longest))))) <= 80
    assert b"positive diag(H_n - H_t)" in (here / "noise.svg").read_bytes()
    assert "mean diag(H_n - H_t)" in found._repr_html_()


@pytest.mark.parametrize(
    ("pruned", "corrupt", "message"),
    [
        ("other", "contrast", "is not that of"),
        ("vit", "contrast", "pruning took no head"),
        ("m1", "contrast:6", "6"),
        ("m1", "melting", "melting"),
    ],
)
def test_what_is_refused(here: Path, vit: Path, images: Path, pruned: str, corrupt: str, message: str) -> None:
    save_vit(here / "other", seed=9)
    with pytest.raises(HydractlError, match=message):
        hydractl.analyse_noise(vit, vit if pruned == "vit" else pruned, id_data=images, corrupt=corrupt, draws=2)
    assert not (here / "noise.svg").exists()


def test_texts_have_no_noise(here: Path, bert: Path, images: Path) -> None:
    with pytest.raises(HydractlError, match="reads texts: `corrupt` is noise for images"):
        hydractl.analyse_noise(bert, bert, id_data=images, corrupt="contrast", draws=2)


def test_the_models_the_other_way_round_are_told_apart(here: Path, vit: Path, images: Path) -> None:
    with pytest.raises(HydractlError, match="name the models the other way"):
        hydractl.analyse_noise("m1", vit, id_data=images, corrupt="contrast", draws=2)
