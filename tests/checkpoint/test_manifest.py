"""Our file: read and written without any architecture's table, whatever its manifest says."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hydractl.checkpoint
from hydractl.checkpoint.calibration import Calibration
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head
from hydractl.checkpoint.manifest import KEY, from_metadata, to_metadata
from hydractl.errors import CheckpointError
from hydractl.families.load import read_checkpoint
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads
from tests.conftest import build_reference
from tests.damage import refuse_all


def test_what_is_no_file_of_ours(tmp_path: Path) -> None:
    folder = build_reference("vit").save(tmp_path / "vit")
    for path, finding in [
        (folder, "no such file"),
        (tmp_path / "none", "no such file"),
        (folder / "model.safetensors", "was not written by hydractl"),
    ]:
        with pytest.raises(CheckpointError, match=finding):
            hydractl.checkpoint.read(path)


SETS = {"coverage": 0.9, "samples": 30, "least": [0.2]}


@pytest.fixture(scope="module")
def hydra(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    dense = read_checkpoint(build_reference("clip").save(tmp_path_factory.mktemp("clip")))
    members = [drop_heads(dense, frozenset({Head("vision", 1, head), Head("text", 2, head)})) for head in (0, 1)]
    files = {"preprocessor_config.json": {"size": 12}, "vocab.txt": "a\nb", "tokenizer.json": {"version": "1.0"}}
    return replace(fuse(members), preprocessing=files, calibration=Calibration(1.5), provenance={"command": "fuse"})


def manifest_of(checkpoint: Checkpoint) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(to_metadata(checkpoint)[KEY])
    return manifest


def test_every_damage_to_a_manifest_is_one_line(hydra: Checkpoint) -> None:
    content = manifest_of(hydra)
    content["config"] = {"model_type": "clip"}

    def read(text: str) -> Checkpoint:
        return from_metadata("hydra", {KEY: text}, hydra.tensors)

    # Config, provenance and the files of preprocessing may hold any JSON, numbers of training any rate.
    assert refuse_all(read, "hydra", CheckpointError, content) > 0.7


@pytest.mark.parametrize(
    ("part", "changes", "finding"),
    [
        ("whole", {"format_version": 2}, "format_version is 2, this hydractl reads 1: update hydractl"),
        ("whole", {"members": 3}, "heads.vision.0 has 2 members, the file has 3"),
        ("whole", {"labels": ["a"]}, "labels are 1, the network has 0 classes"),
        ("whole", {"calibration": {"sets": SETS}}, "sets are of a network that chooses one of fixed classes"),
        (
            "whole",
            {"calibration": {"sets": SETS | {"coverage": 1.0}}},
            "calibration.sets.coverage is 1.0, should be less than 1",
        ),
        ("whole", {"calibration": {"sets": SETS | {"least": [-0.1]}}}, "calibration.sets.least.0 is -0.1, should be"),
        ("whole", {"calibration": {"temperature": True}}, "calibration.temperature is true, should be a valid number"),
        ("whole", {"preprocessing": {"../../evil.json": {}}}, "preprocessing: contains a file"),
        ("whole", {"preprocessing": {"vocab.txt": {}}}, "preprocessing: vocab.txt should be text"),
        ("whole", {"separate": ["no.such.tensor"]}, "separate: the network has no no.such.tensor"),
        ("whole", {"heads": {"vision": []}}, "heads are of vision, the network has other towers"),
        ("tower", {"layers": 10**6}, "spec.towers.0: layers is 1000000, should be from 1 to 500"),
        ("tower", {"heads": 2}, "heads.vision.0 keeps [0, 1, 2], expected ascending numbers from 0 to 1"),
        ("tower", {"pool": "eos"}, "spec.towers.0: pool is eos, should be first or "),
        ("tower", {"embeddings": {"channels": 3}}, "spec.towers.0.embeddings.ImageEmbeddings.image_size is missing"),
        ("tower", {"name": "text"}, "spec.towers.0: embeddings of a text tower are of the other kind"),
        ("tower", {"head_width": 5}, "attention.q.weight has shape [24, 24], expected [15, 24]"),
    ],
)
def test_what_a_manifest_cannot_say(hydra: Checkpoint, part: str, changes: dict[str, Any], finding: str) -> None:
    manifest = manifest_of(hydra)
    (manifest["spec"]["towers"][0] if part == "tower" else manifest).update(changes)
    with pytest.raises(CheckpointError) as error:
        from_metadata("hydra", {KEY: json.dumps(manifest)}, hydra.tensors)
    assert finding in str(error.value) and str(error.value).startswith("hydra: ")


def test_what_could_not_be_read_again_is_not_written(hydra: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="temperature is -1"):
        hydractl.checkpoint.write(replace(hydra, calibration=Calibration(-1.0)), tmp_path / "out")
    assert not (tmp_path / "out").exists()
