"""`hydractl.extract_circuit` and `hydractl extract-circuit` are the same code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hydractl
from hydractl.circuit.circuit_file import read_circuit
from hydractl.circuit.modes import MODES
from hydractl.errors import OptionError, OutputError
from tests.cli.conftest import Command


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def unplaced(artifact: dict[str, Any]) -> dict[str, Any]:
    """An artifact whose model is named alone: a file names it as seen from where it lies."""
    return {**artifact, "model": {**artifact["model"], "reference": Path(artifact["model"]["reference"]).name}}


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_python_and_the_command_find_the_same_circuit(
    run: Command, here: Path, vit: Path, images: Path, noise: Path, mode: Any
) -> None:
    arguments = ["extract-circuit", vit, f"--id-data={images}", f"--ood-data={noise}", f"--search={mode.name}"]
    assert run(*arguments, "--objective=acc,avg", "--budget=3", "-o", "{objective}.json", "--json=all.json").code == 0
    found = hydractl.extract_circuit(
        vit, id_data=images, ood_data=noise, budget=3, objective="acc,avg", search=mode.name
    )
    written = json.loads((here / "all.json").read_text())
    assert {name: unplaced(one) for name, one in found.to_json().items()} == {
        n: unplaced(o) for n, o in written.items()
    }
    for objective, circuit in found.circuits.items():
        read = read_circuit(f"{objective}.json")
        assert (circuit.ranking, circuit.search_data) == (read.ranking, read.search_data)
        assert circuit.model is not None
        assert read.model is not None
        assert circuit.model.sha256 == read.model.sha256
        assert unplaced(found.to_json()[objective]) == unplaced(json.loads((here / f"{objective}.json").read_text()))
    with pytest.raises(OptionError, match="circuits of acc, avg"):
        _ = found.circuit


def test_a_budget_of_all_and_a_file(here: Path, vit: Path, images: Path, noise: Path) -> None:
    search = {"id_data": images, "ood_data": noise, "budget": "all", "layers": "1"}
    found = hydractl.extract_circuit(vit, **search, output="c.json")
    assert {head.layer for head in found.circuit.ranking} == {1}
    assert (len(found.circuit.ranking), list(found.lines())) == (4, ["c.json"])
    assert sorted(path.name for path in here.iterdir()) == ["c.json"]
    with pytest.raises(OutputError, match="`force`"):
        hydractl.extract_circuit(vit, **search, output="c.json")
    assert "4 heads, accuracy" in found._repr_html_()


def test_without_a_file_nothing_is_written(here: Path, vit: Path, images: Path, noise: Path) -> None:
    found = hydractl.extract_circuit(hydractl.load(vit), id_data=images, ood_data=noise, budget=1)
    assert list(here.iterdir()) == []
    assert next(found.lines()).startswith("avg    1  vision layer ")
    with pytest.raises(OptionError, match="`resume` needs an `output`"):
        hydractl.extract_circuit(vit, id_data=images, ood_data=noise, budget=1, resume=True)
