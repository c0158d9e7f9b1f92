import json
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch

import hydractl as library
from hydractl.errors import ArtifactError
from tests.cli.conftest import Command, save_circuit

CIRCUIT = ((1, 2), (0, 1), (1, 0))


def test_distances_of_the_last_layer_are_means_of_the_scored(here: Path, vit: Path, images: Path, noise: Path) -> None:
    data = {"id_data": images, "ood_data": noise}
    found = library.analyse_heads(vit, circuit=save_circuit("c.json", *CIRCUIT), **data).to_json()
    scored = library.score_heads(vit, method="separation", **data).to_json()["distances"]
    for name in ("euclidean", "mahalanobis"):
        for group, heads in (("dropped", [0, 2]), ("kept", [1, 3])):
            expected = np.mean([scored[name]["vision"][1][head] for head in heads])
            assert found["last_layer"][group][name] == pytest.approx(expected, rel=1e-12)
    assert [found["all_layers"][group]["heads"] for group in ("kept", "dropped")] == [5, 3]


def test_heads_that_are_gone_are_no_zeros(here: Path, vit: Path) -> None:
    member = library.prune(vit, method="circuit", circuit=save_circuit("c.json", *CIRCUIT), budget=1)
    scored = library.score_heads(member, method="magnitude", output="s.json", plot="s.svg")
    assert scored.to_json()["towers"]["vision"][1][2] is None
    assert " x " in repr(scored) and "x = gone" in repr(scored)
    assert len(library.prune(member, method="scores", scores="s.json", budget=7).dropped) == 7
    content = {name: value for name, value in scored.to_json().items() if name != "model"}
    Path("by-hand.json").write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match="vision layer 1 head 2"):
        library.prune(vit, method="scores", scores="by-hand.json", budget=1)


def test_systems_of_one_run(hydractl: Command, vit: Path, tmp_path: Path) -> None:
    members = [tmp_path / f"m{seed}" for seed in range(3)]
    for seed, path in enumerate(members):
        library.prune(vit, method="random", budget=2, seed=seed, output=path)
    assert hydractl("fuse", *members, "-o", tmp_path / "hydra").code == 0
    one_by_one = "+".join(map(str, members))
    result = hydractl(
        "analyse", "speed", f"dense={vit}", f"members={one_by_one}", f"hydra={tmp_path / 'hydra'}", "--transformers",
        "--batch-sizes", "1,3", "--dtypes", "fp32,bf16", "--seconds", 0, "--json", tmp_path / "b.json", code=0,
    )  # fmt: skip
    assert "bfloat16, batch 3" in result.out
    report = json.loads((tmp_path / "b.json").read_text())
    assert report["format"] == "hydractl-speed"
    assert report["models"]["members"] == [path.name for path in members]  # as seen from the file
    rows = report["rows"]
    names = ["dense", "members", "hydra", "dense (transformers)"]
    assert [row["name"] for row in rows] == names * 4
    dense, ensemble, hydra, theirs = rows[:4]
    assert dense["ratio"] == dense["counted_ratio"] == 1
    assert all(row["timing"]["milliseconds"] > 0 and row["timing"]["rounds"] >= 5 for row in rows)
    assert hydra["weight"]["performed"] <= ensemble["weight"]["performed"]
    assert hydra["weight"]["parameters"] < ensemble["weight"]["parameters"]
    assert theirs["weight"]["performed"] == dense["weight"]["multiply_adds"] > dense["weight"]["performed"]
    assert dense["timing"]["peak_memory"] > dense["weight"]["size"] == 4 * dense["weight"]["parameters"]


def test_a_folder_that_names_another_network_is_not_given_to_transformers(
    hydractl: Command, vit: Path, tmp_path: Path
) -> None:
    folder = Path(copytree(vit, tmp_path / "vit"))
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "/somewhere/else", "peft_type": "LORA"}')
    result = hydractl("analyse", "speed", folder, "--transformers", "--seconds", 0)
    assert result.code == 2 and "adapter_config.json, which names another network" in result.err


def test_threads_are_as_before(vit: Path) -> None:
    before = torch.get_num_threads()
    timed = library.analyse_speed(vit, batch_sizes=1, seconds=0, processor_time=True)
    assert timed.environment["threads"] == 1
    assert torch.get_num_threads() == before
