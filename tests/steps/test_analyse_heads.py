import json
from pathlib import Path

import numpy as np
import pytest

import hydractl
from hydractl.errors import ArtifactError
from tests.cli.conftest import save_circuit


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vit: Path) -> Path:
    """A current folder with a circuit."""
    monkeypatch.chdir(tmp_path)
    save_circuit("c.json", (1, 2), (0, 1), (1, 0))
    return tmp_path


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
