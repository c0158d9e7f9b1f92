"""What chose, fitted or validated a model is refused in an evaluation, or marks the report where that is allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def leaking(hydractl: Command, vit: Path, images: Path, noise: Path) -> str:
    """A member chosen on `images` and `noise`."""
    assert hydractl("extract-circuit", vit, f"--id-data={images}", f"--ood-data={noise}", "--budget=2").code == 0
    assert hydractl("prune", "--method=circuit", "--budget=2", "-o", "m1").code == 0
    return "m1"


def test_an_allowed_leak_is_said_wherever_its_numbers_stand(
    hydractl: Command, leaking: str, vit: Path, images: Path, noise: Path
) -> None:
    sets = [f"--id-data=pets={images}", f"--ood-data=far/noise={noise}"]
    refused = hydractl("evaluate", vit, leaking, *sets)
    assert refused.code == 1
    assert "ID data pets: 12 of 12 samples were used to make m1 (as id)" in refused.err
    assert "OOD data noise: 5 of 5 samples were used to make m1 (as ood)" in refused.err
    outputs = ["--json=r.json", "--report=page", "--save-logits=saved"]
    allowed = hydractl("evaluate", f"dense={vit}", leaking, *sets, "--allow-leak", "--quiet", *outputs)
    assert allowed.code == 0
    assert allowed.err.splitlines() == [
        "warning: ID data pets: 12 of 12 samples were used to make m1 (as id): the numbers flatter it",
        "warning: OOD data noise: 5 of 5 samples were used to make m1 (as ood): the numbers flatter it",
    ]
    models = json.loads(Path("r.json").read_text())["models"]
    assert "leaks" not in models["dense"]
    assert models["m1"]["leaks"] == [
        {"set": "id", "name": "pets", "samples": 12, "overlap": 12, "used_as": ["id"]},
        {"set": "ood/far/noise", "name": "noise", "samples": 5, "overlap": 5, "used_as": ["ood"]},
    ]
    line = "† 12 of 12 samples of pets (id) were used to make or fit m1 (as id): flattered."
    texts = [allowed.out, Path("page/table.md").read_text(), Path("page/index.html").read_text()]
    # Predictions saved from it stay what they are.
    texts.append(hydractl("evaluate", "m1=predictions:saved/m1").out)
    for text in texts:
        assert line in text and "m1 †" in text and "dense †" not in text
    table = Path("page/table.tex").read_text()
    assert r"m1 $\dagger$ &" in table and line in table


def test_seeds_of_one_system_share_their_mark(hydractl: Command, leaking: str, vit: Path, images: Path) -> None:
    arguments = ["evaluate", f"a={vit}", f"a={leaking}", "--seeds", f"--id-data={images}"]
    assert hydractl(*arguments).code == 1
    result = hydractl(*arguments, "--allow-leak", "--json=-")
    assert json.loads(result.out)["models"]["a"]["leaks"][0]["overlap"] == 12


def test_calibrating_on_what_is_evaluated(hydractl: Command, vit: Path, images: Path) -> None:
    arguments = ["evaluate", f"vit={vit}", f"--id-data=pets={images}", f"--calib-data={images}", "--temperature=fit"]
    refused = hydractl(*arguments)
    assert refused.err.startswith("error: ID data pets: 12 of 12 samples are in --calib-data too: ")
    allowed = hydractl(*arguments, "--allow-leak")
    assert allowed.code == 0 and "(as --calib-data)" in allowed.out
