"""The functions `hydractl.analyse_*` and the commands `hydractl analyse *` are the same code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTForImageClassification, ViTImageProcessor

import hydractl
from hydractl.errors import ArtifactError, DataError, HydractlError, OptionError
from tests.cli.conftest import Command, save_images, save_vit
from tests.cli.test_circuit import write
from tests.cli.test_prune import circuit, scores


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vit: Path) -> Path:
    """A current folder with two circuits, scores, and `m1`, the ViT less two heads."""
    monkeypatch.chdir(tmp_path)
    Path("avg.json").write_text(json.dumps(circuit(objective="avg")))
    Path("gate.json").write_text(json.dumps(scores(method="gate")))
    write("c.json", ("vision", 1, 2), ("vision", 0, 1), ("vision", 1, 0))
    hydractl.prune(vit, method="random", budget=2, output="m1")
    hydractl.fuse([hydractl.prune(vit, method="random", budget=3, seed=s).checkpoint for s in (0, 1)], output="pair")
    return tmp_path


CASES: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "budgets": (
        ("m1",),
        {"circuit": ["avg.json"], "scores": ["gate.json"], "budgets": "2,3", "ood_data": "noise"},
        "AUPR out",
    ),
    "heads": ((), {"circuit": "c.json", "budget": 2, "ood_data": "noise"}, ">dropped last<"),
    "members": ((), {"limit": 8, "batch_size": 5}, "1.00"),
    "noise": (("m1",), {"corrupt": "contrast:1-2", "noise_draws": 2, "seed": 3}, "positive diag(H_n - H_t)"),
}


@pytest.mark.parametrize("kind", CASES)
def test_python_and_the_command_find_the_same(
    run: Command, here: Path, vit: Path, images: Path, noise: Path, kind: str
) -> None:
    others, given, drawn = CASES[kind]
    model = "pair" if kind == "members" else str(vit)
    options = {**given, "data" if kind == "members" else "id_data": str(images), "device": "cpu"}
    options |= {"ood_data": str(noise)} if "ood_data" in given else {}
    flags = [
        f"--{name.replace('_', '-')}={one}"
        for name, value in options.items()
        for one in (value if isinstance(value, list) else [value])
    ]
    done = run("analyse", kind, model, *others, *flags, "--plot=a.svg", "--json=a.json")
    positional = [list(others)] if kind == "budgets" else others
    found = getattr(hydractl, f"analyse_{kind}")(model, *positional, **options)
    written, expected = json.loads(Path("a.json").read_text()), json.loads(json.dumps(found.to_json()))
    assert written | {"model": None} == expected | {"model": None}
    assert done.out == f"{found!r}\n"
    assert drawn in Path("a.svg").read_text()
    assert found._repr_html_().startswith("<table>")
    assert written["options"]["batch_size"] == options.get("batch_size", 16 if kind == "noise" else 64)


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


@pytest.mark.parametrize("step", [hydractl.analyse_budgets, hydractl.select])
def test_a_file_of_other_classes_is_refused(here: Path, vit: Path, images: Path, step: Callable[..., Any]) -> None:
    save_vit(here / "two", id2label={0: "cat", 1: "dog"}, label2id={"cat": 0, "dog": 1})
    save_vit(here / "renamed", id2label={0: "a", 1: "b", 2: "c"}, label2id={"a": 0, "b": 1, "c": 2})
    for name in ("two", "renamed"):
        with pytest.raises(OptionError, match=name):
            step(vit, [name], circuit=["avg.json"], budgets="1", id_data=images)


def test_without_ood_data_there_is_no_detection(here: Path, vit: Path, images: Path) -> None:
    found = hydractl.analyse_budgets(vit, scores=["gate.json"], budgets="1/layer", id_data=images)
    assert [point.dropped for point in found.value] == [0, 2]
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


def outputs(vit: Path, files: list[Path]) -> np.ndarray:
    """Returns each head's output in the last layer for the class token, `[N,H,K]`, by a hook on transformers' model."""
    model = ViTForImageClassification.from_pretrained(vit).eval()
    pixels = ViTImageProcessor.from_pretrained(vit)([Image.open(file) for file in files], return_tensors="pt")
    seen: list[torch.Tensor] = []
    hook = model.vit.layers[-1].attention.o_proj.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        model(**pixels)
    hook.remove()
    return seen[0][:, 0].unflatten(-1, (4, 4)).double().numpy()


def test_distances_equal_those_of_transformers_forward(here: Path, vit: Path, images: Path, noise: Path) -> None:
    found = hydractl.analyse_heads(vit, circuit="c.json", id_data=images, ood_data=noise).to_json()
    inside, outside = (outputs(vit, sorted(folder.rglob("*.png"))) for folder in (images, noise))
    gaps = inside.mean(0) - outside.mean(0)
    euclidean = np.linalg.norm(gaps, axis=-1)
    inverse = [np.linalg.pinv(np.cov(inside[:, head].T)) for head in range(4)]
    mahalanobis = np.sqrt([gap @ one @ gap for gap, one in zip(gaps, inverse, strict=True)])
    for name, values in (("euclidean", euclidean), ("mahalanobis", mahalanobis)):
        assert found["last_layer"]["dropped"][name] == pytest.approx(values[[0, 2]].mean(), rel=1e-4)
        assert found["last_layer"]["kept"][name] == pytest.approx(values[[1, 3]].mean(), rel=1e-4)
    assert [found["all_layers"][group]["heads"] for group in ("kept", "dropped")] == [5, 3]


def test_heads_that_cannot_be_compared_are_refused(here: Path, vit: Path, images: Path, noise: Path) -> None:
    data = {"id_data": images, "ood_data": noise}
    with pytest.raises(HydractlError, match="ranks 3 heads"):
        hydractl.analyse_heads(vit, circuit="c.json", budget=4, **data)
    other = write(
        "o.json", ("vision", 0, 0), model={"reference": "o", "sha256": "a" * 64, "towers": {"vision": [2, 4]}}
    )
    with pytest.raises(ArtifactError, match=r"o\.json"):
        hydractl.analyse_heads(vit, circuit=other, **data)
    pruned = hydractl.prune(vit, method="circuit", circuit="c.json", budget=1)
    with pytest.raises(OptionError, match=r"c\.json"):
        hydractl.analyse_heads(pruned, circuit="c.json", **data)


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


def test_one_network_is_not_compared(vit: Path, images: Path) -> None:
    with pytest.raises(OptionError, match="has one member"):
        hydractl.analyse_members(vit, data=images)


@pytest.mark.parametrize(
    ("model", "pruned", "corrupt", "message"),
    [
        ("vit", "other", "contrast", "other"),
        ("vit", "vit", "contrast", "no head"),
        ("vit", "m1", "contrast:6", "6"),
        ("vit", "m1", "melting", "melting"),
        ("m1", "vit", "contrast", "vit"),
        ("bert", "bert", "contrast", "`corrupt`"),
    ],
)
def test_noise_that_cannot_be_analysed_is_refused(
    here: Path, vit: Path, bert: Path, images: Path, model: str, pruned: str, corrupt: str, message: str
) -> None:
    save_vit(here / "other", seed=9)
    places = {"vit": vit, "bert": bert}
    with pytest.raises(OptionError, match=message):
        hydractl.analyse_noise(
            places.get(model, model), places.get(pruned, pruned), id_data=images, corrupt=corrupt, noise_draws=2
        )
