"""`hydractl.calibrate` fits what the command fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hydractl as library
from hydractl.errors import OptionError
from tests.cli.conftest import LABELS, Command, save_images
from tests.cli.test_evaluate_kinds import save_clip


@pytest.fixture(scope="session")
def held_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_images(tmp_path_factory.mktemp("data") / "held-out", count=6, seed=5)


def test_python_and_the_command_fit_the_same(hydractl: Command, vit: Path, held_out: Path, tmp_path: Path) -> None:
    written = hydractl("calibrate", vit, "--data", held_out, "-o", tmp_path / "a", "--json")
    found = library.calibrate(vit, data=str(held_out), output=tmp_path / "b")
    assert json.loads(written.out) == {**found.to_json(), "output": str(tmp_path / "a")}
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    loaded = library.calibrate(library.load(vit), data=held_out)
    assert loaded.fitted == found.fitted
    assert loaded.output is None


def test_its_result_is_a_model_and_says_what_changed(vit: Path, held_out: Path) -> None:
    found = library.calibrate(vit, data=held_out)
    assert library.load(found).temperature == found.temperature == found.checkpoint.temperature
    assert f"T = {found.temperature:.4f}: NLL" in str(found) == next(found.lines())
    assert "before" in repr(found) and "<td>18</td>" in found._repr_html_()
    with pytest.raises(Exception, match="used to make vit"):
        library.evaluate({"vit": found}, id_data=held_out)


def test_a_zero_shot_model_keeps_the_classes_it_was_told(tmp_path: Path, held_out: Path) -> None:
    clip = save_clip(tmp_path / "clip", 0)
    model = library.load(clip)
    model.set_classes(LABELS, "{label} a")
    told = library.calibrate(model, data=held_out).fitted
    assert told == library.calibrate(clip, data=held_out, template="{label} a").fitted
    assert told != library.calibrate(clip, data=held_out, template="{label}").fitted


def test_classes_are_for_zero_shot_models(vit: Path, held_out: Path) -> None:
    with pytest.raises(OptionError, match="cannot be set"):
        library.calibrate(vit, data=held_out, classes=list(LABELS))
