"""Artifacts: every damage is one line of ours, and models are named so that artifacts can move along with them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hydractl.artifacts import found_reference, found_references, json_text, write_json
from hydractl.circuit.head_files import SearchJournal, read_circuit, read_scores
from hydractl.errors import ArtifactError
from hydractl.reports.page import read_report
from hydractl.systems.saved import read_about
from tests.damage import refuse_all

MODEL = {"reference": "vit", "sha256": "0a" * 32, "towers": {"vision": [12, 12]}}
STEP = {"tower": "vision", "layer": 3, "head": 7, "score": 0.7, "accuracy": 0.8, "auroc": 0.7}
CIRCUIT = {
    "format": "hydractl-circuit",
    "version": 1,
    "objective": "avg",
    "steps": [STEP, {"tower": "text", "layer": 0, "head": 0}],
    "model": MODEL,
    "options": {"towers": "vision", "layers": "0-5"},
    "search_data": {"id": {"samples": 1, "complete": True, "hashes": "eJxjYGBgAAAABAAB"}},
}
SCORES = {"format": "hydractl-scores", "version": 1, "method": "taylor", "towers": {"vision": [[1, 0.5], [0, 2]]}}
MEASURE = [3, 4, 10, 5, 0.25]
RANKING = {"objective": "acc", "baseline": MEASURE, "steps": [[["vision", 0, 1], MEASURE]]}
STATE = {"format": "hydractl-search-state", "version": 1, "conditions": {"seed": 1}, "rankings": [RANKING]}
NETWORK = {"reference": "vit", "sha256": "0a" * 32, "heads": {"vision": {"of": 2, "kept": [[[0], [1]], [[0, 1], []]]}}}
LEAK = {"set": "id", "name": "a", "samples": 4, "overlap": 2, "used_as": ["search"]}
ABOUT = {
    "format": "hydractl-predictions",
    "version": 1,
    "id_name": "cifar",
    "labels": ["a", "b"],
    "temperature": 1.5,
    "cost": {"members": 1, "parameters": 9, "multiply_adds": 9, "performed": 9, "tokens": 3},
    "networks": [NETWORK],
    "leaks": [LEAK],
}
ID = {"samples": 4, "accuracy": 0.75, "ece": 0.1, "nll": 0.5}
OOD = {"samples": 3, "auroc": 0.75, "fpr95": 0.5, "ood_share": 0.4, "group": "far"}
REPORT = {
    "format": "hydractl-report", "version": 1, "complete": True, "hydractl": "0.1.0",
    "options": {"ood_score": "msp", "bootstrap": 10},
    "data": {"id": {"name": "cifar", "samples": 4}, "ood": {"n": {"name": "n", "samples": 3}}},
    "models": {
        "m": {
            "model": {"reference": "vit", "sha256": "0a" * 32},
            "id": ID, "ood": {"n": OOD, "o": OOD}, "ood_means": {"far": OOD, "all": OOD}, "shift": {"noise": {"1": ID}},
            "temperature": {"value": 1.5, "nll_before": 0.6, "nll_after": 0.5, "argmax_changed": 0.0},
            "cost": ABOUT["cost"], "networks": [NETWORK], "leaks": [LEAK],
            "intervals": {"id": {"accuracy": [0.7, 0.8]}, "ood": {"n": {"auroc": [0.7, 0.8]}}},
            "difference": {"id": {"accuracy": {"value": 0.1, "interval": [0.0, 0.2]}}},
            "curves": {
                "reliability": {"edges": [0, 0.5, 1], "counts": [0, 4], "confidence": [None, 1], "accuracy": [None, 1]},
                "risk_coverage": {"coverage": [0.5, 1], "risk": [0, 0.25]},
                "roc": {"n": {"false_positive_rate": [0, 1], "true_positive_rate": [0, 1]}},
                "scores": {"edges": [0, 1], "id": [1], "ood": {"n": [1]}},
            },
        }
    },
}  # fmt: skip


READERS: dict[str, tuple[dict[str, Any], Callable[[str], object], float]] = {
    "circuit": (CIRCUIT, read_circuit, 0.7),
    "scores": (SCORES, read_scores, 0.8),
    "state": (STATE, lambda source: SearchJournal(Path(source), {"seed": 1}).read(), 0.8),
    "about": (ABOUT, read_about, 0.7),
    "report": (REPORT, read_report, 0.7),
}


@pytest.mark.parametrize("name", READERS)
def test_every_damage_is_one_line_that_names_the_file(name: str, tmp_path: Path) -> None:
    content, read, share = READERS[name]

    def read_text(text: str) -> object:
        (tmp_path / "it.json").write_text(text)
        return read(str(tmp_path / "it.json"))

    assert refuse_all(read_text, str(tmp_path / "it.json"), ArtifactError, content) > share


@pytest.mark.parametrize("name", READERS)
def test_every_artifact_states_its_format_and_version(name: str, tmp_path: Path) -> None:
    content, read, _ = READERS[name]
    for key, value in [("format", "x"), ("version", 2), ("version", True), ("version", 1.0)]:
        (tmp_path / "it").write_text(json.dumps(content | {key: value}))
        with pytest.raises(ArtifactError, match=f"{key} is"):
            read(str(tmp_path / "it"))


@pytest.mark.parametrize("name", ["towers", "layers"])
def test_a_restriction_that_would_flood_a_message_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "it").write_text(json.dumps(CIRCUIT | {"options": {name: "x" * 10**6}}))
    with pytest.raises(ArtifactError, match=f"options.{name} is") as refused:
        read_circuit(str(tmp_path / "it"))
    assert len(str(refused.value)) < 500


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of models beside one of results, and the current folder elsewhere."""
    for name in ("models/vit", "results", "here"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def named(reference: object) -> dict[str, Any]:
    """A circuit of the model of this name."""
    return CIRCUIT | {"model": MODEL | {"reference": str(reference)}}


def test_a_model_is_named_as_seen_from_its_artifact(places: Path) -> None:
    write_json(places / "results" / "c.json", named(places / "models" / "vit"))
    written = json.loads((places / "results" / "c.json").read_text())
    assert written["model"]["reference"] == os.path.join("..", "models", "vit")
    places.rename(places.with_name("moved"))
    found = read_circuit(str(places.with_name("moved") / "results" / "c.json")).model
    assert Path(found.reference).resolve() == places.with_name("moved") / "models" / "vit"


def test_a_name_of_the_hub_stays_as_it_is(places: Path) -> None:
    for name in ("google/vit-base-patch16-224", "google/vit@main", "timm:vit_tiny_patch16_224", "a+b"):
        assert json.loads(json_text(named(name), places / "results"))["model"]["reference"] == name
        assert found_reference(name, str(places / "results" / "c.json")) == name


def test_a_reference_that_does_not_lie_beside_is_one_from_the_current_folder(places: Path) -> None:
    (places / "here" / "m1").mkdir()
    assert found_reference("m1", str(places / "results" / "c.json")) == "m1"
    (places / "results" / "m1").mkdir()
    assert found_reference("m1", str(places / "results" / "c.json")) == str(places / "results" / "m1")
    assert found_reference("m1", "-") == "m1"


def test_every_model_of_a_report_is_named_so(places: Path) -> None:
    vit, source = str(places / "models" / "vit"), str(places / "results" / "r.json")
    report = {
        "models": {
            "one": {"model": {"reference": vit}, "networks": [{"reference": vit}]},
            "two": {"model": {"reference": f"{vit}+{vit}"}},
            "saved": {"model": {"reference": f"predictions:{vit}"}},
            "timed": [vit],
        }
    }
    text = json_text(report, places / "results")
    assert str(places) not in text and text.count("../models/vit") == 6
    resolved = json.dumps(found_references(json.loads(text), source))
    assert resolved.count(vit) == 6 and ".." not in resolved


def test_a_link_keeps_its_name(places: Path) -> None:
    (places / "models" / "link").symlink_to(places / "models" / "vit")
    for reference, expected in [(str(places / "models" / "link"), "../models/link"), (".", "../here"), ("..", "..")]:
        assert json.loads(json_text(named(reference), places / "results"))["model"]["reference"] == expected
