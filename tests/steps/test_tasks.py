"""`extract-circuit --task`: one network, several tasks with classes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hydractl
from hydractl.steps.extract_circuit import Extracted
from tests.cli.conftest import Command, save_clip, save_images

SEARCH = ("--template={label}", "--budget=2", "--towers=vision")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CLIP, and images of two tasks of which the second has classes of its own."""
    monkeypatch.chdir(tmp_path)
    save_clip(Path("clip"), 0)
    for seed, name in enumerate(("pets", "birds", "noise", "other")):
        save_images(Path(name), 2, seed)
    Path("birds/cat").rename("birds/hen")
    return tmp_path


def test_tasks_have_classes_and_data_of_their_own(run: Command, here: Path) -> None:
    asked = ("--task=pets=pets,noise,other", "--task=birds=birds,noise", "--output=c.json")
    assert run("extract-circuit", "clip", *asked, *SEARCH).code == 0
    written = json.loads(Path("c.json").read_text())
    assert written["options"]["task"] == ["pets", "birds"]
    assert [*written["search_data"]] == ["pets id", "pets ood noise", "pets ood other", "birds id", "birds ood"]
    tasks = {"pets": ["pets", "noise", "other"], "birds": ["birds", "noise"]}
    found = hydractl.extract_circuit("clip", task=tasks, template="{label}", budget=2, towers="vision")
    baseline = found.rankings["avg"].baseline
    alone = [
        hydractl.extract_circuit(
            "clip", id_data=inside, ood_data=outside, template="{label}", budget=1, towers="vision"
        )
        for inside, *outside in tasks.values()
    ]
    measures = [one.rankings["avg"].baseline for one in alone]
    assert baseline.accuracy == pytest.approx(sum(one.accuracy for one in measures) / 2, abs=1e-12)
    assert baseline.auroc == pytest.approx(sum(one.auroc for one in measures) / 2, abs=1e-12)
    assert [step["score"] for step in written["steps"]] == [
        step.measure.score("avg") for step in found.rankings["avg"].steps
    ]
    # The data of every task is remembered, and refused in an evaluation.
    hydractl.prune("clip", method="circuit", circuit="c.json", budget=2, output="pruned")
    leak = run("evaluate", "pruned", "--id-data=birds", "--template={label}")
    assert leak.code == 1
    assert "ID data birds: 6 of 6 samples were used to make pruned (as birds id)" in leak.err


def test_a_state_is_of_its_tasks(run: Command, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Extracted, "write", lambda extracted, force: (_ for _ in ()).throw(KeyboardInterrupt))
    search = ("extract-circuit", "clip", "--task=pets=pets,noise", *SEARCH, "--output=c.json")
    assert run(*search, "--task=birds=birds,noise").code == 130
    monkeypatch.undo()
    monkeypatch.chdir(here)
    other = run(*search, "--task=hens=birds,noise", "--resume")
    assert (other.code, "was made with another" in other.err) == (1, True)
    assert run(*search, "--task=birds=birds,noise", "--resume").code == 0
