"""`hydractl.analyse_heads` and `hydractl analyse heads` are the same code, and equal transformers' own forward pass."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTForImageClassification, ViTImageProcessor

import hydractl
from hydractl.errors import HydractlError
from tests.cli.conftest import Command, save_vit
from tests.cli.test_circuit import write


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write("c.json", ("vision", 1, 2), ("vision", 0, 1), ("vision", 1, 0))
    return tmp_path


def outputs(vit: Path, files: list[Path]) -> np.ndarray:
    """What each head of the last layer says of the class token, `[N,H,K]`, by a hook on transformers' model."""
    model = ViTForImageClassification.from_pretrained(vit).eval()
    pixels = ViTImageProcessor.from_pretrained(vit)([Image.open(file) for file in files], return_tensors="pt")
    seen: list[torch.Tensor] = []
    hook = model.vit.layers[-1].attention.o_proj.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        model(**pixels)
    hook.remove()
    return seen[0][:, 0].unflatten(-1, (4, 4)).double().numpy()


def test_equals_transformers_forward(here: Path, vit: Path, images: Path, noise: Path) -> None:
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


def test_python_and_the_command_find_the_same(run: Command, here: Path, vit: Path, images: Path, noise: Path) -> None:
    arguments = ["analyse", "heads", vit, "--circuit=c.json", "--budget=2", "--id-data", images, "--ood-data", noise]
    found = hydractl.analyse_heads(vit, circuit="c.json", budget=2, id_data=images, ood_data=noise)
    written = json.loads(run(*arguments, "--plot=heads.svg", "--json").out)
    for place in ("last_layer", "all_layers"):
        for group, numbers in found.to_json()[place].items():
            assert written[place][group] == pytest.approx(numbers, rel=1e-4)
    assert written["dropped"] == found.to_json()["dropped"]
    assert run(*arguments).out.splitlines()[0] == repr(found).splitlines()[0]
    assert "last layer, dropped" in found._repr_html_()
    picture = (here / "heads.svg").read_text()
    assert ">dropped first<" in picture and ">dropped last<" in picture


def test_what_is_refused(here: Path, vit: Path, images: Path, noise: Path) -> None:
    data = {"id_data": images, "ood_data": noise}
    with pytest.raises(HydractlError, match="ranks 3 heads, 4 are asked for"):
        hydractl.analyse_heads(vit, circuit="c.json", budget=4, **data)
    other = write(
        "o.json", ("vision", 0, 0), model={"reference": "o", "sha256": "a" * 64, "towers": {"vision": [2, 4]}}
    )
    with pytest.raises(HydractlError, match=r"o\.json: was made from another model"):
        hydractl.analyse_heads(vit, circuit=other, **data)
    with pytest.raises(HydractlError, match="which .* has not"):
        hydractl.analyse_heads(
            hydractl.prune(vit, method="circuit", circuit="c.json", budget=1), circuit="c.json", **data
        )
    every = write("e.json", *(("vision", layer, head) for layer in (0, 1) for head in range(4)))
    with pytest.raises(HydractlError, match="drops all of the 8 heads"):
        hydractl.analyse_heads(save_vit(here / "v"), circuit=every, **data)


def test_heads_that_are_gone_are_no_zeros(run: Command, here: Path, vit: Path) -> None:
    member = hydractl.prune(vit, method="circuit", circuit="c.json", budget=1)
    scored = hydractl.score_heads(member, method="magnitude", output="s.json", plot="s.svg")
    assert scored.to_json()["towers"]["vision"][1][2] is None
    assert " x " in repr(scored) and "x = gone" in repr(scored)
    assert len(hydractl.prune(member, method="scores", scores="s.json", budget=7).dropped) == 7
    content = {name: value for name, value in scored.to_json().items() if name != "model"}
    (here / "by-hand.json").write_text(json.dumps(content))
    with pytest.raises(HydractlError, match="has no score of vision layer 1 head 2"):
        hydractl.prune(vit, method="scores", scores="by-hand.json", budget=1)
