"""`hydractl extract-circuit`: its files, what interrupts it, several processes, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from hydractl.families.load import read_checkpoint
from tests.cli.conftest import Command, save_images, save_vit

HYDRACTL = [sys.executable, "-m", "hydractl"]


@pytest.fixture
def search(vit: Path, images: Path, noise: Path) -> list[str]:
    """The arguments of a small search."""
    return ["extract-circuit", str(vit), f"--id-data={images}", f"--ood-data={noise}", "--batch-size=4"]


def test_writes_a_circuit_for_each_objective(hydractl: Command, here: Path, search: Sequence[str]) -> None:
    result = hydractl(*search, "--objective=acc,ood,avg", "--budget=3", "-o", "c-{objective}.json")
    assert (result.code, result.out) == (0, "c-acc.json\nc-ood.json\nc-avg.json\n")
    first, *steps = result.err.splitlines()
    assert first == "note: 63 networks to measure"  # 8 + 7 + 6 for each objective
    assert len(steps) == 9
    assert steps[0].startswith("acc    1  vision layer ")
    for objective in ("acc", "ood", "avg"):
        circuit = json.loads((here / f"c-{objective}.json").read_text())
        assert circuit["objective"] == objective
        assert len(circuit["steps"]) == 3
        for step in circuit["steps"]:
            mean = (step["accuracy"] + step["auroc"]) / 2
            assert step["score"] == {"acc": step["accuracy"], "ood": step["auroc"], "avg": mean}[objective]
        assert circuit["search_data"].keys() == {"id", "ood"}
    assert sorted(path.name for path in here.iterdir()) == ["c-acc.json", "c-avg.json", "c-ood.json"]


def test_a_pipeline_prunes_and_the_search_data_are_refused_later(
    hydractl: Command, here: Path, search: Sequence[str], images: Path, noise: Path
) -> None:
    circuit = hydractl(*search, "--budget=2", "--quiet", "-o", "-")
    assert circuit.err == ""
    pruned = hydractl("prune", "--method=circuit", "--circuit=-", "--budget=2", "-o", "m1", stdin=circuit.out.encode())
    assert pruned.code == 0
    assert sum(len(layer[0]) for layer in read_checkpoint("m1").heads["vision"]) == 6
    leak = hydractl("evaluate", "m1", "--id-data", images)
    assert leak.code == 1
    assert "12 of 12 samples were used to make m1" in leak.err


def test_all_heads_of_some_layers(hydractl: Command, here: Path, search: Sequence[str]) -> None:
    assert hydractl(*search, "--layers=1", "--towers=vision", "--budget=all", "--tie-break=nll").code == 0
    steps = json.loads((here / "circuit.json").read_text())["steps"]
    assert sorted((step["layer"], step["head"]) for step in steps) == [(1, head) for head in range(4)]


def test_resume_with_nothing_to_go_on_from_starts_afresh(hydractl: Command, here: Path, search: Sequence[str]) -> None:
    result = hydractl(*search, "--budget=1", "--resume")
    assert result.code == 0
    assert result.err.splitlines()[0].startswith("note: circuit.json.state")
    resumed = (here / "circuit.json").read_bytes()
    assert hydractl(*search, "--budget=1", "--resume", "--force", "--quiet").err == ""
    assert hydractl(*search, "--budget=1", "--force").code == 0
    assert (here / "circuit.json").read_bytes() == resumed


@pytest.fixture(scope="session")
def slow_search(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A search long enough to be interrupted."""
    folder = tmp_path_factory.mktemp("slow")
    model = save_vit(folder / "vit", num_hidden_layers=4, hidden_size=64, intermediate_size=256)
    data, noise = save_images(folder / "id", 16), save_images(folder / "ood", 16, seed=1)
    options = ["--objective=acc,avg", "--budget=6", "--batch-size=8", "-o", "{objective}.json"]
    return ["extract-circuit", str(model), f"--id-data={data}", f"--ood-data={noise}", *options]


@pytest.fixture(scope="session")
def uninterrupted(slow_search: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    subprocess.run([*HYDRACTL, *slow_search], cwd=folder, check=True, capture_output=True)
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def interrupt(arguments: Sequence[str], folder: Path, number: signal.Signals) -> tuple[int, str]:
    """Sends a signal once the first step stands in the state file; exit code and stderr."""
    state = folder / "acc-avg.json.state"
    process = subprocess.Popen([*HYDRACTL, *arguments], cwd=folder, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (state.exists() and '"steps": [[' in state.read_text()):
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    return process.returncode, err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_search_resumes_to_the_same_bytes(
    slow_search: Sequence[str], uninterrupted: dict[str, bytes], here: Path, number: signal.Signals
) -> None:
    code, err = interrupt(slow_search, here, number)
    assert code == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in err
    if number == signal.SIGINT:
        assert "acc-avg.json.state" in err and "--resume" in err
    assert "acc.json" not in contents(here)
    again = subprocess.run([*HYDRACTL, *slow_search], cwd=here, capture_output=True, text=True)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "--resume" in again.stderr
    other = subprocess.run([*HYDRACTL, *slow_search, "--resume", "--limit=9"], cwd=here, capture_output=True, text=True)
    assert other.returncode == 1 and "another ID data" in other.stderr
    resumed = subprocess.run([*HYDRACTL, *slow_search, "--resume"], cwd=here, capture_output=True, text=True)
    assert resumed.returncode == 0
    assert len(resumed.stderr.splitlines()) < 13  # and the note
    assert {name: data for name, data in contents(here).items() if not name.startswith(".")} == uninterrupted


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "hydractl"]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the processes where Linux lists them")
def test_where_one_of_two_processes_is_told_to_end_both_do_and_one_alone_resumes(
    slow_search: Sequence[str], uninterrupted: dict[str, bytes], here: Path
) -> None:
    state = here / "acc-avg.json.state"
    job = subprocess.Popen([*TORCHRUN, *slow_search], cwd=here, stderr=subprocess.PIPE, text=True)
    while job.poll() is None and not (state.exists() and '"steps": [[' in state.read_text()):
        time.sleep(0.01)
    ranks = [int(number) for number in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]
    os.kill(ranks[-1], signal.SIGTERM)
    _, err = job.communicate(timeout=120)
    assert job.returncode == 1 and "internal error" not in err
    assert not [rank for rank in ranks if Path(f"/proc/{rank}").exists()]
    left = contents(here)
    assert "acc.json" not in left and not [name for name in left if name.endswith(".part")]
    resumed = subprocess.run([*HYDRACTL, *slow_search, "--resume"], cwd=here, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert {name: data for name, data in contents(here).items() if not name.startswith(".")} == uninterrupted


@pytest.mark.parametrize("mode", ["exact", "screened", "shortlist", "headmap"])
def test_two_processes_write_the_same_bytes_in_each_mode(
    hydractl: Command, here: Path, slow_search: Sequence[str], mode: str
) -> None:
    arguments = [*slow_search, "--budget=3", f"--search={mode}"]
    assert hydractl(*arguments, "-q").code == 0
    alone = contents(here)
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}  # or torchrun has something to say of it
    done = subprocess.run(
        [*TORCHRUN, *arguments, "-f"], cwd=here, capture_output=True, text=True, timeout=300, env=quiet
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 7 + (2 if mode in ("screened", "shortlist") else 0)
    assert contents(here) == alone
