import json
from pathlib import Path
from shutil import copytree

import torch

import hydractl as library
from tests.cli.conftest import Command


def test_systems_of_one_run(hydractl: Command, vit: Path, tmp_path: Path) -> None:
    members = [tmp_path / f"m{seed}" for seed in range(3)]
    for seed, path in enumerate(members):
        library.prune(vit, method="random", budget=2, seed=seed, output=path)
    assert hydractl("fuse", *members, "-o", tmp_path / "hydra").code == 0
    one_by_one = "+".join(map(str, members))
    result = hydractl(
        "analyse", "speed", f"dense={vit}", f"members={one_by_one}", f"hydra={tmp_path / 'hydra'}", "--transformers",
        "--batch-sizes", "1,3", "--dtypes", "fp32,bf16", "--seconds", 0, "--json", tmp_path / "b.json",
    )  # fmt: skip
    assert result.code == 0, result.err
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


def test_paths_and_loaded_models_are_timed(vit: Path) -> None:
    timed = library.analyse_speed(
        {"one": vit, "two": [vit, library.load(vit)]}, batch_sizes=[1, 2], dtypes=["bf16", torch.float32], seconds=0
    )
    assert [(row["name"], row["dtype"], row["batch_size"]) for row in timed.to_json()["rows"]] == [
        (name, dtype, size) for dtype in ("bfloat16", "float32") for size in (1, 2) for name in ("one", "two")
    ]


def test_threads_are_as_before(vit: Path) -> None:
    before = torch.get_num_threads()
    timed = library.analyse_speed(vit, batch_sizes=1, seconds=0, processor_time=True)
    assert timed.environment["threads"] == 1
    assert torch.get_num_threads() == before
