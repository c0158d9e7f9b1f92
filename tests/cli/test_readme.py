"""What README.md tells a reader to type works, and what it says of the file format is so."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hydractl.checkpoint.slots import slots
from hydractl.families.open import read_checkpoint
from tests.cli.conftest import Command, save_images, save_vit
from tests.conftest import FAMILY_VARIANTS, build_reference

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def lines(language: str) -> list[str]:
    return [line for block in blocks(language) for line in block.splitlines() if line]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the digits example leaves in its folder, in small."""
    monkeypatch.chdir(tmp_path)
    save_vit(tmp_path / "vit", num_hidden_layers=4)
    save_images(tmp_path / "data" / "digits" / "train", count=1)
    save_images(tmp_path / "data" / "digits" / "test", count=2, seed=1)
    save_images(tmp_path / "data" / "near_search", seed=2)
    for name in ("near_test", "far_test"):
        folder = tmp_path / "data" / name
        folder.mkdir()
        for i, file in enumerate(sorted((tmp_path / "data" / "digits" / "test").glob("*/*.png"))):
            shutil.copy(file, folder / f"{i:04}.png")
    return tmp_path


def test_every_hydractl_command_runs_as_printed(hydractl: Command, build: Path) -> None:
    (build / "circuit.json").write_text(blocks("json")[0])
    commands = [line for line in lines("bash") if line.startswith("hydractl ")]
    shown = {"score-heads", "extract-circuit", "prune", "fuse", "evaluate", "calibrate", "report", "inspect", "predict"}
    shown |= {"families", "export", "benchmark", "finetune", "recipes", "circuit"}
    assert {command.split()[1] for command in commands} == shown
    for command in commands:
        result = hydractl(*shlex.split(command)[1:])
        assert result.code == 0, command
        told = [line for line in result.err.splitlines() if not line.startswith(("report: ", "T = "))]
        assert told == [], command
        assert result.out
    done = subprocess.run([sys.executable, "-c", blocks("python")[0]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (build / "copy.safetensors").read_bytes()


def test_no_other_kind_of_command_is_printed() -> None:
    assert {line.split()[0] for line in lines("bash")} == {"hydractl", "make"}


def test_the_make_commands_name_targets_that_exist() -> None:
    for command in (line for line in lines("bash") if line.startswith("make ")):
        subprocess.run([*shlex.split(command), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make -C tests" in lines("bash")
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("\nmake -C tests")


def documented() -> set[str]:
    """The tensor names of the format section, with T and N as they stand there."""
    names = set()
    table = README.split("| tensor | stored shape |")[1].split("\n\n")[0]
    for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        first, *more = re.findall(r"`(.*?)`", cell)
        stem = first.rpartition(".")[0]
        names |= {first, *(stem + name if name.startswith(".") else name for name in more)}
    return names


def test_the_tensor_table_names_every_tensor_and_no_other(tmp_path: Path) -> None:
    found = set()
    for family in FAMILY_VARIANTS:
        checkpoint = read_checkpoint(build_reference(family).save(tmp_path / family))
        for name in slots(checkpoint.spec):
            found.add(re.sub(r"\.layers\.\d+\.", ".layers.N.", re.sub(r"^(vision|text)\.", "T.", name)))
    assert documented() == found


def test_the_manifest_table_names_every_key(hydractl: Command, build: Path) -> None:
    import json

    from safetensors import safe_open

    hydractl("prune", "vit", "--method=random", "--budget=1", "-o", "m1")
    with safe_open("m1", framework="pt") as file:
        manifest = json.loads(file.metadata()["hydractl"])
    table = README.split("a JSON manifest:")[1].split("A dense network")[0]
    assert set(re.findall(r"`(\w+)`", table)) == manifest.keys()
