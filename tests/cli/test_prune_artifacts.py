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


def steps(*heads: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"tower": "vision", "layer": layer, "head": head} for layer, head in heads]


#: Damage of any kind is tried in tests/test_artifacts.py; these fit their form, and not the model or the budget.
UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "twice": (circuit(steps=steps((1, 3), (1, 3))), "step 1 drops vision layer 1 head 3 a second time"),
    "too short": (circuit(steps=steps((1, 3))), "ranks 1 heads"),
    "not this size": (circuit(steps=steps((9, 0), (9, 1))), "has no vision layer 9"),
    "of another model": (circuit(model={"reference": "v", "sha256": "0" * 64}), "was made from another model"),
    "no format": ({"steps": circuit()["steps"]}, '"format": "hydractl-circuit", "version": 1'),
    "no model named": (circuit(), "names no model: name MODEL"),
    "absent tower": (scores(towers={"text": [[1]]}), "scores a text tower"),
    "too few": (scores(towers={"vision": [[1, 2, 3, 4]]}), "the model has 2 of 4"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_artifacts_that_do_not_fit(hydractl: Command, here: Path, vit: Path, case: str) -> None:
    content, named = UNFIT[case]
    method = "scores" if "towers" in content else "circuit"
    (here / f"{method}.json").write_text(json.dumps(content))
    model = () if case == "no model named" else (vit,)
    result = hydractl("prune", *model, f"--method={method}", "--budget=2")
    assert (result.code in (1, 2), result.err.count("\n"), result.out) == (True, 1, "")
    assert named in result.err
    assert [path.name for path in here.iterdir()] == [f"{method}.json"]


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
