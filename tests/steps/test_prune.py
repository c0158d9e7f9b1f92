"""`hydractl.prune` and `hydractl prune` are the same code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hydractl
from hydractl.errors import OptionError
from hydractl.steps.prune_methods import PRUNE_METHODS
from tests.cli.conftest import Command
from tests.cli.test_prune import RANKING, circuit, scores


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "circuit.json").write_text(json.dumps(circuit(objective="avg")))
    (tmp_path / "scores.json").write_text(json.dumps(scores(method="gate")))
    return tmp_path


@pytest.mark.parametrize("method", PRUNE_METHODS, ids=lambda method: method.name)
def test_python_and_the_command_write_the_same_bytes(
    run: Command, here: Path, vit: Path, images: Path, method: type
) -> None:
    data = {"id_data": str(images)} if "taylor" in method.name else {}
    flags = [f"--id-data={value}" for value in data.values()]
    done = run("prune", vit, f"--method={method.name}", "--budget=2", *flags, "-o", "m1", "--json")
    pruned = hydractl.prune(vit, method=method.name, budget=2, **data, output="m2")
    assert (here / "m1").read_bytes() == (here / "m2").read_bytes()
    assert json.loads(done.out) == pruned.to_json() | {"output": "m1"}
    kept = hydractl.prune(hydractl.load(vit), method=method.name, budget=2, **data)
    hydractl.save(kept, "m3")
    assert (here / "m3").read_bytes() == (here / "m2").read_bytes()


def test_results_of_searches_and_scores_are_followed(here: Path, vit: Path, images: Path, noise: Path) -> None:
    found = hydractl.extract_circuit(vit, id_data=images, ood_data=noise, budget=2)
    scored = hydractl.score_heads(vit, method="gate", id_data=images)
    followed = hydractl.prune(method="circuit", circuit=found, budget=2)
    assert tuple(followed.dropped) == found.circuit.ranking
    assert followed.checkpoint.provenance["search_data"] == found.to_json()["avg"]["search_data"]
    lowest = hydractl.prune(method="scores", scores=scored, budget=2)
    assert lowest.checkpoint.provenance["search_data"] == scored.to_json()["search_data"]


def test_a_folder_gets_a_file_that_says_how_it_was_made(here: Path, vit: Path) -> None:
    pruned = hydractl.prune(vit, method="circuit", circuit="circuit.json", budget=2, pool=3, seed=5, output=here)
    assert pruned.output == here / "vit-circuit-avg-2-pool3-seed5.safetensors"
    assert hydractl.load(pruned.output).members == 1


def test_a_circuit_as_a_value(vit: Path, here: Path) -> None:
    from hydractl.circuit.circuit_file import read_circuit

    followed = read_circuit("circuit.json")
    assert hydractl.prune(vit, method="circuit", circuit=followed, budget=3).dropped == RANKING[:3]
    with pytest.raises(OptionError, match="expected a circuit .*got list"):
        hydractl.prune(vit, method="circuit", circuit=list(RANKING), budget=3)
    with pytest.raises(OptionError, match="`scope` has no effect with `method` circuit"):
        hydractl.prune(vit, method="circuit", circuit=followed, budget=3, scope="layer")
