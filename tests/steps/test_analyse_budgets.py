"""`hydractl.analyse_budgets` and `hydractl analyse budgets` are the same code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hydractl
from hydractl.errors import DataError, OptionError
from tests.cli.conftest import Command, save_images, save_vit
from tests.cli.test_prune import circuit, scores


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vit: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "avg.json").write_text(json.dumps(circuit(objective="avg")))
    (tmp_path / "gate.json").write_text(json.dumps(scores(method="gate")))
    return tmp_path


def test_python_and_the_command_measure_the_same(
    run: Command, here: Path, vit: Path, images: Path, noise: Path
) -> None:
    hydractl.prune(vit, method="circuit", circuit="avg.json", budget=2, output="two")
    data = ("--id-data", images, "--ood-data", noise)
    arguments = ("analyse", "budgets", vit, "two", "--circuit", "avg.json", "--scores", "gate.json", *data)
    done = run(*arguments, "--budgets", "2,3", "--plot", "curves.svg", "--json")
    found = hydractl.analyse_budgets(
        vit, ["two"], circuit=["avg.json"], scores=["gate.json"], budgets="2,3", id_data=images, ood_data=noise
    )
    assert json.loads(done.out)["points"] == found.to_json()["points"]
    assert [(point.method, point.dropped) for point in found.points] == [
        ("dense", 0), ("avg", 2), ("avg", 3), ("gate", 2), ("gate", 3), ("two", 2),
    ]  # fmt: skip
    written, kept_in_memory = found.of("two")[0].quality, found.of("avg")[0].quality
    assert written.accuracy == kept_in_memory.accuracy
    assert written.nll == pytest.approx(kept_in_memory.nll, abs=1e-6)
    assert run(*arguments, "--budgets", "2,3").out == f"{found!r}\n"
    assert b"AUPR out" in (here / "curves.svg").read_bytes()
    assert "avg 2" in found._repr_html_()


def test_a_file_answers_at_its_own_temperature(here: Path, vit: Path, images: Path) -> None:
    hydractl.calibrate(vit, data=images, output="warm")
    asked = {"id_data": images, "circuit": ["avg.json"], "budgets": "1", "allow_leak": True}
    found = hydractl.analyse_budgets(vit, ["warm"], **asked)
    alone = hydractl.analyse_budgets("warm", **asked)
    assert found.of("warm")[0].quality.nll == pytest.approx(alone.of("dense")[0].quality.nll, abs=1e-7)
    assert found.of("warm")[0].quality.nll < found.of("dense")[0].quality.nll


def test_a_file_of_other_classes_is_refused(here: Path, vit: Path, images: Path) -> None:
    save_vit(here / "two", id2label={0: "cat", 1: "dog"}, label2id={"cat": 0, "dog": 1})
    save_vit(here / "renamed", id2label={0: "a", 1: "b", 2: "c"}, label2id={"a": 0, "b": 1, "c": 2})
    for name, message in (("two", "classification of 2 classes, .* name members of one task"), ("renamed", "names")):
        for step in (hydractl.analyse_budgets, hydractl.select):
            with pytest.raises(OptionError, match=message):
                step(vit, [name], circuit=["avg.json"], budgets="1", id_data=images)


def test_without_ood_data_there_is_no_detection(here: Path, vit: Path, images: Path) -> None:
    found = hydractl.analyse_budgets(vit, scores=["gate.json"], budgets="1/layer", id_data=images)
    assert [point.dropped for point in found.points] == [0, 2]
    assert "AUROC" not in repr(found) and "mean_auroc" not in found.to_json()["points"][0]


def test_samples_that_chose_heads_are_refused(here: Path, vit: Path, images: Path, noise: Path) -> None:
    searched = hydractl.extract_circuit(vit, id_data=images, ood_data=noise, budget=2)
    asked = {"circuit": [searched], "budgets": "1", "id_data": images}
    with pytest.raises(DataError, match="pass `allow_leak`, which marks the result"):
        hydractl.analyse_budgets(vit, **asked)
    marked = hydractl.analyse_budgets(vit, **asked, allow_leak=True).to_json()
    assert marked["leaks"][0]["overlap"] == marked["leaks"][0]["samples"]
    other = save_images(here / "other", seed=7)
    assert "leaks" not in hydractl.analyse_budgets(vit, circuit=[searched], budgets="1", id_data=other).to_json()


@pytest.mark.parametrize("asked", [{"budgets": "1"}, {"scores": ["gate.json"]}])
def test_budgets_and_what_they_are_of_go_together(here: Path, vit: Path, images: Path, asked: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="give both, or files alone"):
        hydractl.analyse_budgets(vit, id_data=images, **asked)
