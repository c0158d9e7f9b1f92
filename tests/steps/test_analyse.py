import json
from pathlib import Path

import numpy as np
import pytest

import hydractl
from hydractl import analyse_overlap
from hydractl.errors import ArtifactError, DataError, OptionError
from tests.cli.conftest import Command, save_circuit, save_images, save_vit
from tests.cli.test_prune import circuit, scores


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vit: Path) -> Path:
    """A current folder with two circuits, scores, and `m1`, the ViT less two heads."""
    monkeypatch.chdir(tmp_path)
    Path("avg.json").write_text(json.dumps(circuit(objective="avg")))
    Path("gate.json").write_text(json.dumps(scores(method="gate")))
    save_circuit("c.json", (1, 2), (0, 1), (1, 0))
    hydractl.prune(vit, method="random", budget=2, output="m1")
    return tmp_path


def test_a_written_member_answers_like_one_kept_in_memory(here: Path, vit: Path, images: Path) -> None:
    hydractl.prune(vit, method="circuit", circuit="avg.json", budget=2, output="two")
    hydractl.calibrate(vit, id_data=images, output="warm")
    asked = {"id_data": images, "circuit": ["avg.json"], "budgets": "2", "allow_leak": True}
    found = hydractl.analyse_budgets(vit, ["two", "warm"], **asked)
    assert [(point.method, point.dropped) for point in found.value] == [
        ("dense", 0), ("avg", 2), ("two", 2), ("warm", 0),
    ]  # fmt: skip
    of, alone = ({point.method: point.quality for point in one.value} for one in (
        found, hydractl.analyse_budgets("warm", **asked),  # at its own temperature
    ))  # fmt: skip
    assert of["two"].nll == pytest.approx(of["avg"].nll, abs=1e-6)
    assert of["warm"].nll == pytest.approx(alone["dense"].nll, abs=1e-7)
    assert of["warm"].nll < of["dense"].nll


def test_without_ood_data_there_is_no_detection(here: Path, vit: Path, images: Path) -> None:
    found = hydractl.analyse_budgets(vit, scores=["gate.json"], budgets="1/layer", id_data=images)
    assert [point.dropped for point in found.value] == [0, 2]
    heading, first, *_ = found._repr_html_().removeprefix("<table><tr>").split("</tr><tr>")
    assert heading == "<th></th><th>dropped</th><th>accuracy</th><th>NLL</th>" and first.startswith("<td>dense</td>")
    assert "AUROC" not in repr(found) and "mean_auroc" not in found.to_json()["points"][0]
    for asked in ({"budgets": "1"}, {"scores": ["gate.json"]}):
        with pytest.raises(OptionError, match="`budgets`"):
            hydractl.analyse_budgets(vit, id_data=images, **asked)


def test_samples_that_chose_heads_are_refused(here: Path, vit: Path, images: Path, noise: Path) -> None:
    searched = hydractl.extract_circuit(vit, id_data=images, ood_data=noise, budget=2)
    asked = {"circuit": [searched], "budgets": "1", "id_data": images}
    with pytest.raises(DataError, match="pass `allow_leak`"):
        hydractl.analyse_budgets(vit, **asked)
    marked = hydractl.analyse_budgets(vit, **asked, allow_leak=True).to_json()
    assert marked["leaks"][0]["overlap"] == marked["leaks"][0]["samples"]
    other = save_images(here / "other", seed=7)
    assert "leaks" not in hydractl.analyse_budgets(vit, circuit=[searched], budgets="1", id_data=other).to_json()


def test_distances_of_the_last_layer_are_means_of_the_scored(here: Path, vit: Path, images: Path, noise: Path) -> None:
    found = hydractl.analyse_heads(vit, circuit="c.json", id_data=images, ood_data=noise).to_json()
    scored = hydractl.score_heads(vit, method="separation", id_data=images, ood_data=noise).to_json()["distances"]
    for name in ("euclidean", "mahalanobis"):
        for group, heads in (("dropped", [0, 2]), ("kept", [1, 3])):
            expected = np.mean([scored[name]["vision"][1][head] for head in heads])
            assert found["last_layer"][group][name] == pytest.approx(expected, rel=1e-12)
    assert [found["all_layers"][group]["heads"] for group in ("kept", "dropped")] == [5, 3]


def test_heads_that_are_gone_are_no_zeros(here: Path, vit: Path) -> None:
    member = hydractl.prune(vit, method="circuit", circuit="c.json", budget=1)
    scored = hydractl.score_heads(member, method="magnitude", output="s.json", plot="s.svg")
    assert scored.to_json()["towers"]["vision"][1][2] is None
    assert " x " in repr(scored) and "x = gone" in repr(scored)
    assert len(hydractl.prune(member, method="scores", scores="s.json", budget=7).dropped) == 7
    content = {name: value for name, value in scored.to_json().items() if name != "model"}
    Path("by-hand.json").write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match="vision layer 1 head 2"):
        hydractl.prune(vit, method="scores", scores="by-hand.json", budget=1)


def three() -> list[str]:
    model = {"reference": "vit", "sha256": "a" * 64, "towers": {"vision": [2, 4]}}
    return [
        save_circuit("1.json", (0, 0), (1, 0), (1, 3), objective="acc", model=model),
        save_circuit("2.json", (0, 0), (0, 1), objective="ood", model=model),
        save_circuit("3.json", (0, 0), (1, 0), objective="avg", model=model),
    ]


def test_pairs_of_circuits_by_hand(here: Path) -> None:
    found = analyse_overlap(three(), budget=1, plot="heads.png")
    content = found.to_json()
    first = [{"tower": "vision", "layer": 0, "head": 0}]
    assert (content["budget"], content["log_base"], content["shared_by_all"]) == (1, 2, first)
    named = {"name": "ood", "file": "2.json", "kind": "circuit", "label": "ood"}
    assert content["choices"][1] == {**named, "dropped": first}
    assert content["pairs"][0] == {
        "choices": ["acc", "ood"],
        "shared": first,
        "by_chance": 0.125,
        "jensen_shannon_over_layers": 0.0,
        "jensen_shannon_over_heads": 0.0,
    }
    assert Path("heads.png").read_bytes().startswith(b"\x89PNG")
    # Of 8 heads two random pairs share 2 x 2 / 8. Circuits lose heads of layers 0 and 1, or twice of layer 0.
    shown = [line.split() for line in analyse_overlap(three()).lines()]
    assert ["acc", "ood", "1", "(50%)", "0.5", "0.3113", "0.5000"] in shown
    assert ["acc", "avg", "2", "(100%)", "0.5", "0.0000", "0.0000"] in shown
    assert ["layer", "1", "·■■■", "■■■■", "·■■■"] in shown


def test_circuits_scores_and_pruned_models_alike(run: Command, vit: Path, here: Path) -> None:
    assert run("score-heads", vit, "--method=magnitude", "-o", "s.json").code == 0
    for scope in ("global", "layer"):
        prune = ["prune", vit, "--method=scores", "--scores=s.json", "--budget=3", f"--scope={scope}"]
        assert run(*prune, "-o", f"{scope}.safetensors").code == 0
        found = analyse_overlap(["s.json", f"{scope}.safetensors"], scope=scope).to_json()
        assert [(one["name"], one["kind"]) for one in found["choices"]] == [("s", "scores"), (scope, "model")]
        assert (found["budget"], len(found["shared_by_all"])) == (3, 3)
    assert run("fuse", "global.safetensors", "layer.safetensors", "-o", "hydra").code == 0
    by_hand = save_circuit("c.json", (0, 0), (0, 1), (0, 2))
    result = run("analyse", "overlap", "hydra", by_hand, "--plot=pairs.svg")
    assert result.out.splitlines()[1].startswith("hydra member 0  hydra member 1")
    assert ">dropped by how many: vision<" in (here / "pairs.svg").read_text()
    other = save_vit(here / "other", seed=5)
    assert run("prune", other, "--method=random", "--budget=3", "-o", "o.safetensors").code == 0
    refused = run("analyse", "overlap", "s.json", "o.safetensors")
    assert (refused.code, "o.safetensors" in refused.err) == (1, True)
