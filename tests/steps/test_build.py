"""The whole pipeline in one command, its Makefile, and what it says at the end."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

import hydractl as library
from hydractl.checkpoint.arithmetic import multiply_adds
from hydractl.checkpoint.output import mark
from hydractl.errors import OutputError
from hydractl.families.load import read_checkpoint
from hydractl.inputs.members import Limits
from hydractl.inputs.result import Result
from hydractl.options import Option, make
from hydractl.pipeline import stages as pipeline
from hydractl.pipeline.build_options import BuildOptions, begun
from hydractl.pipeline.stages import Given, Made, Stage, makefile
from hydractl.pipeline.thinning import cost, families
from hydractl.steps.build import Build, cautions
from hydractl.text import printable
from hydractl.watch import Watcher
from tests.cli.conftest import LABELS, Command, save_vit
from tests.conftest import build_reference
from tests.hostile import FRAGMENTS


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network, enough labelled images for every part to hold some of each class, and two OOD sets."""
    monkeypatch.chdir(tmp_path)
    save_vit(tmp_path / "vit")
    generator = np.random.default_rng(0)
    for number, label in enumerate(LABELS):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for i in range(24):
            pixels = generator.integers(0, 120, (8, 8, 3), dtype=np.uint8) + np.uint8(60 * number)
            Image.fromarray(pixels).save(tmp_path / "pets" / label / f"{i}.png")
    for name, channels in (("noise", 3), ("grey", 1)):
        (tmp_path / name).mkdir()
        for i in range(18):
            pixels = generator.integers(0, 256, (8, 8, channels), dtype=np.uint8)
            Image.fromarray(np.broadcast_to(pixels, (8, 8, 3)).copy()).save(tmp_path / name / f"{i}.png")
    return tmp_path


BUILD = BuildOptions(model="vit")
ARGUMENTS = ["build", "vit", "--id-data", "pets", "--ood-data", "near/noise=noise", "--ood-data", "far/grey=grey",
             "--budgets", "1,2", "--members", "2", "--device", "cpu", "-o", "built"]  # fmt: skip


def test_it_builds_says_what_is_gained_and_its_makefile_makes_the_same_bytes(
    hydractl: Command, here: Path, tmp_path: Path
) -> None:
    result = hydractl(*ARGUMENTS, "--quiet", code=0)
    verdict, path, *advice, following = result.out.splitlines()
    assert verdict.startswith("hydra against network: ")
    assert path == "built/hydra.safetensors"
    gains = "hydra against network: better in" in verdict
    assert advice[0].startswith("Deploy hydra.safetensors" if gains else "Deploy network.safetensors: ")
    front = [line for line in advice if line.startswith("hydra-") or "front/index.html" in line]
    *own, few = [line for line in (advice[1:] if gains else advice[1:-2]) if line not in front]
    assert "samples cannot tell" in few
    assert all(one.startswith("network.safetensors: ") for one in own) and len(own) < 2
    deployed = "hydra" if gains else "network"
    assert following == f"Next: hydractl predict built/{deployed}.safetensors INPUT"
    built = here / "built"
    assert f"hydractl predict ../{deployed}.safetensors INPUT" in (built / "report" / "index.html").read_text()
    files = {name for name in os.listdir(built) if name[0] != "."}
    best = {line.split(" at ")[0] for line in front[:-1]}
    others = {"hydra.safetensors", "network.safetensors", "report", "front", "build.toml", "Makefile", "work"}
    assert best and files == best | others
    assert json.loads((built / "work" / "build.json").read_text())["verdict"] == verdict
    other = here / "elsewhere"
    other.mkdir()
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    make = ["make", "-f", built / "Makefile", "hydra.safetensors"]
    subprocess.run(make, cwd=other, env=environment, check=True, capture_output=True)
    assert (other / "hydra.safetensors").read_bytes() == (built / "hydra.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_its_folder_moves_with_its_data_or_says_what_is_gone(
    hydractl: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = here / "my project"
    project.mkdir()
    (here / "pets").rename(project / "pets 50%")
    monkeypatch.chdir(project)
    inside = "pets=pets 50%%1-8/9?image=image"
    outside = f"near/odd={here / 'noise'}:train%1-3/4?image=image"
    how = ("--budgets", "1", "--members", "2", "--device", "cpu", "-o", "built here", "--quiet")
    hydractl("build", here / "vit", "--id-data", inside, "--ood-data", outside, *how, code=0)
    text = Path("built here", "build.toml").read_text()
    assert '"pets=../pets 50%%1-8/9?image=image"' in text and f'"{outside}"' in text
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "hydra.safetensors", *arguments]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

    moved = project.rename(here / "our project") / "built here"
    whole = (moved / "hydra.safetensors").read_bytes()
    monkeypatch.chdir(here)
    assert hydractl("build", moved / "build.toml", "--quiet", code=0).out.splitlines()[1].startswith(str(moved))
    (moved / "hydra.safetensors").unlink()
    before = sorted(moved.rglob("*"))
    make(here, "-n", "-f", f"{moved}/Makefile").check_returncode()
    assert sorted(moved.rglob("*")) == before and not (here / "work").exists()
    including = moved.parent / "Makefile"
    including.write_text("include built\\ here/Makefile\n")
    dry = make(moved.parent, "-n")
    assert '--id-data "pets=built here/../pets 50%%1-8/9?image=image' in dry.stdout
    make(moved).check_returncode()
    assert (moved / "hydra.safetensors").read_bytes() == whole
    alone = moved.rename(here / "sub")
    assert "sub/../pets 50%" in hydractl("build", "sub/build.toml", "--quiet", code=1).err
    (alone / "hydra.safetensors").unlink()
    assert "../pets 50%%1-8/9?image=image" in make(alone).stderr
    make(alone, f"ID_DATA={moved.parent}/pets 50%%1-8/9").check_returncode()
    assert (alone / "hydra.safetensors").read_bytes() == whole


def test_its_makefile_finds_a_recipe_of_ones_own_from_another_folder(here: Path) -> None:
    (here / "mine.toml").write_text("steps = 2\noutlier_weight = 0\n")
    made = {}
    asked = {"id_data": "pets%1-8/9?image=image", "train_data": "pets", "settings": ["steps=2"], "members": 2}
    for recipe in ("mine.toml", "sst2"):
        planned = library.build("vit", **asked, recipe=recipe, output="built", dry_run=True)
        made[recipe] = makefile(planned.stages, here / "built", ["report"])
    assert "\nRECIPE ?= $(HERE)../mine.toml\n" in made["mine.toml"] and '--recipe "$(RECIPE)"' in made["mine.toml"]
    assert " --recipe sst2 " in made["sst2"]
    assert "\nID_DATA ?= $(HERE)../pets%1-8/9?image=image\n" in made["sst2"]


def test_interrupted_it_goes_on_and_with_other_options_it_does_not(
    hydractl: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hydractl(*ARGUMENTS, "--quiet")
    whole = (here / "built" / "hydra.safetensors").read_bytes()
    shutil.rmtree(here / "built")
    run = pipeline.Stage.run
    done: list[str] = []

    def interrupted(self: pipeline.Stage, *rest: object) -> object:
        if self.command == "calibrate":
            raise KeyboardInterrupt
        done.append(self.command)
        return run(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline.Stage, "run", interrupted)
    assert hydractl(*ARGUMENTS, "--quiet").code == 130
    assert (done[0], done[-1]) == ("select", "select")
    monkeypatch.setattr(pipeline.Stage, "run", run)
    refused = hydractl(*ARGUMENTS, "--quiet", "--seed", "1")
    assert (refused.code, "began with --seed not given, now it is 1" in refused.err) == (1, True)
    assert hydractl(*ARGUMENTS, "--quiet").code == 0
    assert (here / "built" / "hydra.safetensors").read_bytes() == whole


@pytest.mark.parametrize("replaced", ["vit", "teacher", "near.csv", "r.toml", "names"])
def test_it_does_not_go_on_with_another_network_or_file_under_the_same_path(here: Path, replaced: str) -> None:
    save_vit(here / "teacher")
    for name in ("near.csv", "r.toml", "names"):
        (here / name).write_text("image\n0.png\n")
    options = {"teacher": ["teacher"], "id_data": "pets", "ood_data": ["near/x=near.csv%1/2?image=image"]}
    build = make(Build, {"model": "vit", "output": "built", "recipe": "r.toml", "classes": "names", **options})
    build._begin(build)
    (here / "near.csv").touch()
    assert begun(build, Path("built")) is not None
    what, file = "another network", here / replaced / "model.safetensors"
    if (here / replaced).is_file():
        what = "other content"
        (here / replaced).write_text("image\n1.png\n")
    else:
        weights = load_file(file)
        name = min(weights)
        save_file({**weights, name: weights[name] + 1}, file, {"format": "pt"})
    with pytest.raises(OutputError, match=f"^built: began with {what} in {replaced}: .*`output`"):
        begun(build, Path("built"))


def test_the_lines_of_a_dry_run_do_what_the_build_does(hydractl: Command, here: Path) -> None:
    small = ("--random", "0", "--limit", "9")
    mkdir, *lines = hydractl(*ARGUMENTS, *small, "--dry-run", code=0).out.splitlines()
    subprocess.run(mkdir, shell=True, check=True)
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "hydractl"
        hydractl(*arguments, "--quiet", code=0)
    made = (here / "built" / "hydra.safetensors").read_bytes()
    shutil.rmtree(here / "built")
    hydractl(*ARGUMENTS, *small, "--quiet", code=0)
    assert (here / "built" / "hydra.safetensors").read_bytes() == made


def test_without_training_families_are_tried_by_their_cost(hydractl: Command, here: Path) -> None:
    lines = [line.split() for line in hydractl(*ARGUMENTS, "--dry-run", code=0).out.splitlines()[1:]]
    by_command = {name: [line for line in lines if line[1] == name] for name in {line[1] for line in lines}}
    data = [line[line.index("--id-data") + 1] for line in lines if "--id-data" in line]
    refitted = [line[line.index("--refit") + 1] for line in by_command["prune"] if "--refit" in line]
    assert refitted and {*refitted, data[1]} == {"pets%1/4"}  # by which units are scored too
    drawn, *choices, last = by_command["select"]
    assert "--random 12 " in " ".join(drawn) and "pets%2/4" in drawn
    assert "built/work/drawn.json" in drawn and "built/work/drawn.safetensors" in last
    assert all("--objective calibrated --members 1 " in " ".join(line) for line in (*choices, last))
    chosen = [word for line in choices for word in line if word.startswith("built/work/trunk")]
    assert sorted(chosen) == sorted(line[line.index("--output") + 1] for line in by_command["fuse"])
    front, report = by_command["evaluate"]
    costs = [word.split("=")[0] for word in front if word.startswith("hydra-")]
    assert len(costs) == len(choices) and not {"hydra=built/hydra.safetensors"} & set(front) and len(costs) > 1
    assert "hydra=built/hydra.safetensors" in report
    save_vit(here / "yak", seed=1)
    compared = hydractl(*ARGUMENTS, "--teacher", "vit", "--teacher", "yak", "--dry-run", code=0).out
    evaluations = [line for line in compared.splitlines() if " evaluate " in line]
    assert len(evaluations) == 2 and all("teacher=built/teacher.safetensors" in line for line in evaluations)
    limited = hydractl(*ARGUMENTS, "--budget-macs=1.3x", "--dry-run", code=0).out
    assert "hydra-1.3x" in limited and "hydra-1.9x" not in limited


@pytest.mark.parametrize("name", ["vit", "bert", "clip"])
def test_families_cost_what_they_may(name: str, tmp_path: Path) -> None:
    network = read_checkpoint(build_reference(name).save(tmp_path))
    tried = families(BUILD, network, Limits(), tries=3)
    whole = multiply_adds(network.spec, network.layout)
    assert tried
    for most, rows in tried.items():
        assert len(set(rows)) == len(rows)
        for family in rows:
            assert bool(family.heads) != bool(family.units) and family.refit >= bool(family.heads)
            assert cost(network, family, 3) <= float(most[:-1]) * whole or family.units
            assert name != "clip" or not family.units
    assert families(BUILD, network, Limits(budget_macs=1.2), tries=3).keys() <= {"1.1x", "1.2x"}
    alone = replace(BUILD, choice=replace(BUILD.choice, members=1))
    assert families(alone, network, Limits(), tries=3) == {}


def test_options_reach_the_steps_they_are_for(hydractl: Command, here: Path) -> None:
    how = ("--dtype", "fp32", "--precision", "bf16", "--random", 7, "--train-data", "pets", "--set", "steps=1")
    _, *lines = hydractl(*ARGUMENTS, *how, "--dry-run").out.splitlines()
    steps = {line.split()[1]: line for line in lines}
    assert [*steps] == ["select", "finetune", "fuse", "calibrate", "evaluate"]
    assert not (here / "built").exists() and not any("--limit" in line for line in lines)
    assert "--random 7 " in steps["select"] and "pets%1-2/4" in steps["select"]  # without refits both parts select
    assert "noise%1-2/3" in steps["calibrate"] and "noise%3/3" in steps["evaluate"]
    assert all("--dtype float32 " in steps[name] for name in ("select", "calibrate", "evaluate"))
    assert "--precision bf16 " in steps["finetune"] and "--dtype" not in steps["finetune"]


@pytest.mark.parametrize("damage", ["{", "null", "[1]", None])
def test_a_damaged_record_of_the_commands_is_one_line(hydractl: Command, here: Path, damage: str | None) -> None:
    (here / "built" / "work").mkdir(parents=True)
    mark(here / "built", "build", [])
    record = here / "built" / "work" / "begun.json"
    os.mkfifo(record) if damage is None else record.write_text(damage)
    result = hydractl(*ARGUMENTS, "--quiet")
    assert result.code == 1
    assert result.err.startswith("error: built/work/begun.json: ") and result.err.endswith(": name another folder\n")


@pytest.mark.parametrize("limit", ["--budget-macs", "--budget-params"])
def test_a_limit_that_no_members_keep_to_is_refused(hydractl: Command, here: Path, limit: str) -> None:
    said = hydractl(*ARGUMENTS, limit, "0.3x", "--dry-run", code=2)
    least = float(re.findall(r"take (\S+)x", said.err)[0])
    assert limit in said.err and 0.3 < least < 1
    hydractl(*ARGUMENTS, limit, f"{least + 0.01:.2f}x", "--dry-run", code=0)


@pytest.mark.parametrize(("option", "copied", "use"), [("data", "pets", "ID data"), ("ood-data", "noise", "OOD data")])
def test_data_that_it_builds_from_do_not_evaluate_it(
    hydractl: Command, here: Path, option: str, copied: str, use: str
) -> None:
    shutil.copytree(here / copied, here / "copy")
    refused = hydractl(*ARGUMENTS, f"--eval-{option}=copy", code=1).err
    assert f"{use} copy: " in refused and f"as {use}" in refused and "give others by --eval-data" in refused
    assert not (here / "built").exists()


def test_its_file_repeats_and_changes_it(hydractl: Command, here: Path) -> None:
    columns = ("--label-column", "label", "--match-labels", "index", "--limit", "9")
    hydractl(*ARGUMENTS, *columns, "--quiet", code=0)
    file = here / "built" / "build.toml"
    assert "near/noise=../noise" in file.read_text()
    again = json.loads(hydractl("build", file, "-o", "again", "--dry-run", "--quiet", "--json").out)["steps"]
    lines = (here / "built" / "Makefile").read_text()
    assert all(f"\t{line}\n" in lines for line in again)
    assert " --label-column label --match-labels index" in again[0]
    changed = hydractl("build", file, "--seed", "4", "-o", "again", "--dry-run", "--quiet").out
    assert "%1/4@4" in changed
    typed = hydractl("build", file, "--members", "3", "-o", "again", "--dry-run", "--quiet").out
    called = library.build(file, members=3, output="again", dry_run=True)  # 3 is the default, the file says 2
    lines = [" ".join(again), typed, " ".join(called.lines())]
    assert [" --members 2 " in line for line in lines] == [True, False, False]
    file.write_text(file.read_text() + "sample = 3\n")
    assert "sample is not an option of a build" in hydractl("build", file, "-o", "again").err


@pytest.mark.parametrize(("samples", "accuracy", "words"), [(8, 0.5, "8 samples"), (500, 1.0, "100.0 %")])
def test_it_says_what_a_verdict_is_worth(samples: int, accuracy: float, words: str) -> None:
    numbers = SimpleNamespace(samples=samples, accuracy=accuracy)
    [line] = cautions(SimpleNamespace(models={"network": SimpleNamespace(id=numbers)}))  # type: ignore[arg-type]
    assert words in line


@dataclass(frozen=True)
class Show:
    """Takes data."""

    data: Annotated[Sequence[str], Option("Data.", "Data", "DATA", repeated=True)]

    def run(self, watch: Watcher) -> Result:
        raise NotImplementedError


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_names_reach_the_commands_of_a_makefile(tmp_path: Path) -> None:
    texts = [f"a{text}b" for text in (*FRAGMENTS, "$(touch here)", "`touch here`", '"; touch here; "')]
    texts = [printable(text) for text in texts if len(text) < 100]
    given = [Given(f"V{place}", text) for place, text in enumerate(texts)] + [Made(text) for text in texts]
    (tmp_path / "hydractl").write_text('#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done > said\n')
    (tmp_path / "hydractl").chmod(0o755)
    (tmp_path / "Makefile").write_text(makefile([Stage(Show(given), ("said",))], tmp_path, ["said"]))
    before = sorted(tmp_path.iterdir())
    subprocess.run(["make", "-n"], cwd=tmp_path, check=True, capture_output=True)
    assert sorted(tmp_path.iterdir()) == before
    subprocess.run(["make"], cwd=tmp_path, check=True, capture_output=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    said = (tmp_path / "said").read_text().splitlines()
    assert said[2::2] == texts * 2
    assert {file.name for file in tmp_path.iterdir()} == {"Makefile", "hydractl", "said", "work"}
