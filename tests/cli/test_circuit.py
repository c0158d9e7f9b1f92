"""`hydractl analyse overlap`: a table, a map, a picture, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hydractl import analyse_overlap
from tests.cli.conftest import Command, save_vit


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, *places: tuple[str, int, int], **changes: Any) -> str:
    steps = [{"tower": tower, "layer": layer, "head": head} for tower, layer, head in places]
    Path(name).write_text(json.dumps({"format": "hydractl-circuit", "version": 1, "steps": steps, **changes}))
    return name


MODEL = {"reference": "vit", "sha256": "a" * 64, "towers": {"vision": [2, 4]}}


@pytest.fixture
def three() -> list[str]:
    v = "vision"
    return [
        write("1.json", (v, 0, 0), (v, 1, 0), (v, 1, 3), objective="acc", model=MODEL),
        write("2.json", (v, 0, 0), (v, 0, 1), objective="ood", model=MODEL),
        write("3.json", (v, 0, 0), (v, 1, 0), objective="avg", model=MODEL),
    ]


def test_a_table_of_pairs_and_a_map(hydractl: Command, three: list[str]) -> None:
    result = hydractl("analyse", "overlap", *three)
    assert (result.code, result.err) == (0, "")
    # Of 8 heads two random pairs share 2 x 2 / 8. Circuits lose heads of layers 0 and 1, or twice of layer 0.
    assert result.out.splitlines() == [
        "             shared of 2  by chance  JSD over layers  over heads (bits)",
        "acc  ood         1 (50%)        0.5           0.3113             0.5000",
        "acc  avg        2 (100%)        0.5           0.0000             0.0000",
        "ood  avg         1 (50%)        0.5           0.3113             0.5000",
        "dropped by all 3: 1",
        "",
        "vision   acc   ood   avg",
        "layer  0 ·■■■  ··■■  ·■■■",
        "layer  1 ·■■■  ■■■■  ·■■■",
    ]


def test_the_same_as_json_and_as_a_picture(hydractl: Command, three: list[str], here: Path) -> None:
    result = hydractl("analyse", "overlap", *three, "--budget=1", "--json", "--plot=heads.png")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    from_python = analyse_overlap(three, budget=1)
    assert found == from_python.to_json() and "1 of 1 heads" in from_python._repr_html_()
    first = [{"tower": "vision", "layer": 0, "head": 0}]
    assert (found["budget"], found["log_base"], found["shared_by_all"]) == (1, 2, first)
    named = {"name": "ood", "file": "2.json", "kind": "circuit", "label": "ood"}
    assert found["choices"][1] == {**named, "dropped": first}
    assert found["pairs"][0] == {
        "choices": ["acc", "ood"],
        "shared": first,
        "by_chance": 0.125,
        "jensen_shannon_over_layers": 0.0,
        "jensen_shannon_over_heads": 0.0,
    }
    assert (here / "heads.png").read_bytes().startswith(b"\x89PNG")
    assert "heads.png: exists already" in hydractl("analyse", "overlap", *three, "--plot=heads.png").err


def test_both_towers_and_names_of_files(hydractl: Command) -> None:
    a = write("a.json", ("vision", 0, 1), ("text", 1, 0))
    b = write("b.json", ("text", 1, 0), ("text", 0, 0))
    result = hydractl("analyse", "overlap", a, b)
    assert result.out.splitlines()[1].split() == ["a", "b", "1", "(50%)", "1.0", "0.5000", "0.5000"]
    assert "vision   a   b\nlayer  0 ■·  ■■\n" in result.out
    assert result.out.endswith("text     a  b\nlayer  0 ■  ·\nlayer  1 ·  ·\n")


def test_circuits_scores_and_pruned_models_alike(hydractl: Command, vit: Path, here: Path) -> None:
    assert hydractl("score-heads", vit, "--method=magnitude", "-o", "s.json").code == 0
    for scope in ("global", "layer"):
        prune = ["prune", vit, "--method=scores", "--scores=s.json", "--budget=3", f"--scope={scope}"]
        assert hydractl(*prune, "-o", f"{scope}.safetensors").code == 0
        result = hydractl("analyse", "overlap", "s.json", f"{scope}.safetensors", f"--scope={scope}", "--json")
        found = json.loads(result.out)
        assert [(one["name"], one["kind"]) for one in found["choices"]] == [("s", "scores"), (scope, "model")]
        assert (found["budget"], len(found["shared_by_all"])) == (3, 3)
    assert hydractl("fuse", "global.safetensors", "layer.safetensors", "-o", "hydra").code == 0
    by_hand = write("c.json", ("vision", 0, 0), ("vision", 0, 1), ("vision", 0, 2))
    result = hydractl("analyse", "overlap", "hydra", by_hand, "--plot=pairs.svg")
    assert result.out.splitlines()[1].startswith("hydra member 0  hydra member 1")
    assert ">JSD over heads, bits<" in (here / "pairs.svg").read_text()
    assert "--scope layer is for head scores" in hydractl("analyse", "overlap", by_hand, by_hand, "--scope=layer").err
    other = save_vit(here / "other", seed=5)
    assert hydractl("prune", other, "--method=random", "--budget=3", "-o", "o.safetensors").code == 0
    assert "o.safetensors: is of another model" in hydractl("analyse", "overlap", "s.json", "o.safetensors").err
