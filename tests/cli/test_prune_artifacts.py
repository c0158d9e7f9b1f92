"""`hydractl prune` and the circuits and head scores it reads: where they lie, what they name, what is wrong in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hydractl.checkpoint.contents import identity
from hydractl.families.load import read_checkpoint
from tests.cli.conftest import Command
from tests.cli.test_prune import circuit, scores
from tests.conftest import build_reference


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


BAD_CIRCUITS: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "is not readable JSON"),
    "no object": ([1], "is a list of 1, should be an object"),
    "other format": (scores(), "format is \"hydractl-scores\", should be 'hydractl-circuit'"),
    "newer version": (circuit(version=2), "version is 2, this hydractl reads 1"),
    "no steps": ({"format": "hydractl-circuit", "version": 1}, "circuit.json: steps is missing"),
    "steps no list": (circuit(steps={}), "steps is an object, should be a valid array"),
    "step no object": (circuit(steps=[3]), "steps.0 is 3, should be an object"),
    "unknown tower": (circuit(steps=[{"tower": "audio", "layer": 0, "head": 0}]), 'steps.0.tower is "audio"'),
    "negative layer": (circuit(steps=[{"tower": "vision", "layer": -1, "head": 0}]), "steps.0.layer is -1, should be"),
    "head true": (
        circuit(steps=[{"tower": "vision", "layer": 0, "head": True}]),
        "steps.0.head is true, should be a valid integer",
    ),
    "twice": (circuit(steps=circuit()["steps"][:1] * 2), "step 1 drops vision layer 1 head 3 a second time"),
    "objective": (circuit(objective="best"), "objective is \"best\", should be 'acc', 'ood' or 'avg'"),
    "half a model": (circuit(model={"reference": "vit"}), "model.sha256 is missing"),
    "too short": (circuit(steps=circuit()["steps"][:1]), "the circuit ranks 1 heads, 2 are asked for"),
    "not this size": (
        circuit(steps=[{"tower": "vision", "layer": 9, "head": i} for i in (0, 1)]),
        "has no vision layer 9",
    ),
    "of another model": (circuit(model={"reference": "v", "sha256": "0" * 64}), "was made from another model"),
    "damaged record": (circuit(search_data=3), "search_data is 3, should be an object"),
}


@pytest.mark.parametrize("case", BAD_CIRCUITS)
def test_bad_circuits(hydractl: Command, here: Path, vit: Path, case: str) -> None:
    content, message = BAD_CIRCUITS[case]
    (here / "circuit.json").write_text(content if isinstance(content, str) else json.dumps(content))
    result = hydractl("prune", vit, "--method=circuit", "--budget=2")
    assert result.code in (1, 2)
    assert message in result.err
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert [path.name for path in here.iterdir()] == ["circuit.json"]


BAD_SCORES: dict[str, tuple[Any, str]] = {
    "no towers": (scores(towers={}), "towers is an object, should have at least 1 item"),
    "unknown tower": (scores(towers={"audio": [[1]]}), 'towers.audio is "audio", should match'),
    "absent tower": (scores(towers={"text": [[1]]}), "scores a text tower, the model has none"),
    "no rows": (scores(towers={"vision": 3}), "towers.vision is 3, should be a valid array"),
    "too few": (scores(towers={"vision": [[1, 2, 3, 4]]}), "scores 1 vision layers of [4] heads, the model has 2 of 4"),
    "a word": (scores(towers={"vision": [[1, 2, 3, "x"]]}), 'towers.vision.0.3 is "x", should be a valid number'),
    "NaN": (scores(towers={"vision": [[1, 2, 3, float("nan")]]}), "is not readable JSON (NaN is no number of JSON)"),
}


@pytest.mark.parametrize("case", BAD_SCORES)
def test_bad_scores(hydractl: Command, here: Path, vit: Path, case: str) -> None:
    content, message = BAD_SCORES[case]
    (here / "scores.json").write_text(json.dumps(content))
    result = hydractl("prune", vit, "--method=scores", "--budget=2")
    assert result.code == 1
    assert message in result.err
    assert result.err.count("\n") == 1


def test_without_a_model_an_artifact_must_name_one(hydractl: Command, here: Path) -> None:
    (here / "circuit.json").write_text(json.dumps(circuit()))
    assert "circuit.json: names no model: name MODEL" in hydractl("prune", "--method=circuit", "--budget=1").err
    assert "MODEL is missing" in hydractl("prune", "--method=random", "--budget=1").err
    (here / "circuit.json").unlink()
    assert "circuit.json: is missing" in hydractl("prune", "--method=circuit", "--budget=1").err


def test_scores_of_two_towers(hydractl: Command, here: Path) -> None:
    clip = build_reference("clip").save(here / "clip")
    towers = {"vision": [[9.0, 8.0, 7.0]] * 3, "text": [[0.1, 0.2, 0.3, 0.4]] * 3}
    content = {"format": "hydractl-scores", "version": 1, "method": "taylor", "towers": towers}
    (here / "scores.json").write_text(json.dumps(content))
    prune = ["prune", clip, "--method=scores", "--scores=scores.json", "--budget=2"]
    both = hydractl(*prune, "-o", "both")
    assert both.err.startswith("note: taylor scores of two towers differ in scale: name one of them with --towers, or")
    assert [heads[0] for heads in read_checkpoint("both").heads["vision"]] == [(0, 1, 2)] * 3
    one = hydractl(*prune, "--towers=vision", "-o", "one")
    assert (one.code, "two towers" in one.err) == (0, False)
    assert [heads[0] for heads in read_checkpoint("one").heads["vision"]] == [(0, 1), (0, 1), (0, 1, 2)]
    (here / "scores.json").write_text(json.dumps({**content, "towers": {"vision": towers["vision"]}}))
    missing = hydractl(*prune, "--towers=text", "-o", "none")
    assert (missing.code, "text tower" in missing.err) == (2, True)


def test_a_model_is_found_from_the_artifact_then_from_the_current_folder(
    hydractl: Command, here: Path, vit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways of naming it, from a folder that is neither the artifact's nor the model's."""
    found = read_checkpoint(vit)
    for folder in ("models", "circuits", "elsewhere"):
        (here / folder).mkdir()
    (here / "models" / "vit").symlink_to(vit)
    (here / "elsewhere" / "own").symlink_to(vit)
    for name, lies in (("beside", "../models/vit"), ("from-here", "own")):
        content = circuit(model={"reference": lies, "sha256": identity(found)})
        (here / "circuits" / f"{name}.json").write_text(json.dumps(content))
    monkeypatch.chdir(here / "elsewhere")
    for name in ("beside", "from-here"):
        artifact = f"../circuits/{name}.json"
        assert hydractl("prune", "--method=circuit", f"--circuit={artifact}", "--budget=1", "-o", name).code == 0
    assert Path("beside").read_bytes() == Path("from-here").read_bytes()
    monkeypatch.chdir(here / "models")
    lost = hydractl("prune", "--method=circuit", "--circuit=../circuits/from-here.json", "--budget=1", "-o", "x")
    assert (lost.code, "own: no such file or folder" in lost.err) == (1, True)


def test_a_circuit_by_hand_without_its_format_says_what_is_missing(hydractl: Command, here: Path, vit: Path) -> None:
    (here / "circuit.json").write_text(json.dumps({"steps": circuit()["steps"]}))
    assert hydractl("prune", vit, "--method=circuit", "--budget=1").err == (
        'error: circuit.json: format is missing: put "format": "hydractl-circuit", "version": 1 in, '
        "or name another file\n"
    )
