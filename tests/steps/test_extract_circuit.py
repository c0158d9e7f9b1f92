import json
import signal
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

import hydractl
from hydractl.circuit.head_files import read_circuit
from hydractl.errors import ArtifactError, OptionError, OutputError
from hydractl.families.load import read_checkpoint
from hydractl.steps.extract_circuit import Extracted
from hydractl.watch import Log
from tests.cli.conftest import HYDRACTL, Command, contents, save_clip, save_images

SEARCH = {"id_data": "pets", "ood_data": "noise"}
ARGUMENTS = ("extract-circuit", "vit", "--id-data=pets", "--ood-data=noise", "--batch-size=4")


def made(place: Path) -> list[str]:
    """The files that are no links to what was there before."""
    return sorted(path.name for path in place.iterdir() if not path.is_symlink())


def test_a_search_finds_a_circuit_for_each_objective(place: Path) -> None:
    asked = {**SEARCH, "budget": 3, "objective": "acc,avg"}
    found = hydractl.extract_circuit("vit", **asked, output="{objective}.json")
    for objective, circuit in found.circuits.items():
        read = read_circuit(f"{objective}.json")
        assert (circuit.ranking, circuit.search_data) == (read.ranking, read.search_data)
        assert circuit.model.sha256 == read.model.sha256
    with pytest.raises(OptionError, match="circuits of acc, avg"):
        _ = found.circuit


def test_a_budget_of_all_and_a_file(place: Path) -> None:
    search = {**SEARCH, "budget": "all", "layers": "1", "output": "c.json"}
    found = hydractl.extract_circuit("vit", **search)
    assert {head.layer for head in found.circuit.ranking} == {1}
    assert (len(found.circuit.ranking), list(found.lines())) == (4, ["c.json"])
    assert made(place) == ["c.json"]
    with pytest.raises(OutputError, match="`force`"):
        hydractl.extract_circuit("vit", **search)
    assert "4 heads, accuracy" in found._repr_html_()


def test_without_a_file_nothing_is_written(place: Path) -> None:
    found = hydractl.extract_circuit(hydractl.load("vit"), **SEARCH, budget=1)
    assert made(place) == []
    assert next(found.lines()).startswith("avg    1  vision layer ")
    with pytest.raises(OptionError, match="`resume`.*`output`"):
        hydractl.extract_circuit("vit", **SEARCH, budget=1, resume=True)


def test_a_circuit_goes_through_a_pipe(run: Command, place: Path) -> None:
    circuit = run(*ARGUMENTS, "--budget=2", "--quiet", "-o", "-")
    assert circuit.err == ""
    run("prune", "--method=circuit", "--circuit=-", "--budget=2", "-o", "m1", stdin=circuit.out.encode(), code=0)
    assert sum(len(layer[0]) for layer in read_checkpoint("m1").heads["vision"]) == 6


def test_resume_with_nothing_to_go_on_from_starts_afresh(run: Command, place: Path) -> None:
    assert run(*ARGUMENTS, "--budget=1", "--resume").code == 0
    resumed = Path("circuit.json").read_bytes()
    assert run(*ARGUMENTS, "--budget=1", "--resume", "--force", "--quiet").err == ""
    assert run(*ARGUMENTS, "--budget=1", "--force").code == 0
    assert Path("circuit.json").read_bytes() == resumed


class Interrupting(Log):
    """A watcher that ends a search after its first step."""

    def note(self, text: str) -> None:
        if text.startswith("acc "):
            raise KeyboardInterrupt


def test_a_search_for_one_objective_does_not_go_on_as_one_for_another(place: Path) -> None:
    search = partial(hydractl.extract_circuit, "vit", **SEARCH, budget=2, output="c.json")
    with pytest.raises(KeyboardInterrupt):
        search(objective="acc", watch=Interrupting())
    with pytest.raises(ArtifactError, match=r"another objective \(acc"):
        search(objective="ood", resume=True)
    assert search(objective="acc", resume=True).circuit.objective == "acc"


def interrupt(arguments: Sequence[str], folder: Path, number: signal.Signals) -> tuple[int, str]:
    """Sends a signal once the first step stands in the state file; exit code and stderr."""
    state = folder / "acc-avg.json.state"
    process = subprocess.Popen([*HYDRACTL, *arguments], cwd=folder, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (state.exists() and '"steps": [[' in state.read_text()):
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    return process.returncode, err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_search_resumes_to_the_same_bytes(
    run: Command, slow_search: Sequence[str], uninterrupted: dict[str, bytes], here: Path, number: signal.Signals
) -> None:
    code, err = interrupt(slow_search, here, number)
    assert code == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in err
    if number == signal.SIGINT:
        assert "acc-avg.json.state" in err and "--resume" in err
    assert "acc.json" not in contents(here)
    again = run(*slow_search)
    assert again.code == 1 and "--resume" in again.err
    other = run(*slow_search, "--resume", "--limit=9")
    assert other.code == 1 and "another ID data" in other.err
    resumed = run(*slow_search, "--resume", code=0)
    assert len(resumed.err.splitlines()) < 13  # and the note
    assert {name: data for name, data in contents(here).items() if not name.startswith(".")} == uninterrupted


OF_TASKS = ("--template={label}", "--budget=2", "--towers=vision")


@pytest.fixture
def two_tasks(here: Path) -> Path:
    """A CLIP, and images of two tasks of which the second has classes of its own."""
    save_clip(Path("clip"), 0)
    for seed, name in enumerate(("pets", "birds", "noise", "other")):
        save_images(Path(name), 2, seed)
    Path("birds/cat").rename("birds/hen")
    return here


def test_tasks_have_classes_and_data_of_their_own(run: Command, two_tasks: Path) -> None:
    asked = ("--task=pets=pets,noise,other", "--task=birds=birds,noise", "--output=c.json")
    assert run("extract-circuit", "clip", *asked, *OF_TASKS).code == 0
    written = json.loads(Path("c.json").read_text())
    assert written["options"]["task"] == ["pets", "birds"]
    assert [*written["search_data"]] == ["pets id", "pets ood noise", "pets ood other", "birds id", "birds ood"]
    tasks = {"pets": ["pets", "noise", "other"], "birds": ["birds", "noise"]}
    search = partial(hydractl.extract_circuit, "clip", template="{label}", budget=2, towers="vision")
    found = search(task=tasks)
    baseline = found.rankings["avg"].baseline
    alone = [search(id_data=inside, ood_data=outside) for inside, *outside in tasks.values()]
    measures = [one.rankings["avg"].baseline for one in alone]
    assert baseline.accuracy == pytest.approx(sum(one.accuracy for one in measures) / 2, abs=1e-12)
    assert baseline.auroc == pytest.approx(sum(one.auroc for one in measures) / 2, abs=1e-12)
    scores = [step.measure.score("avg") for step in found.rankings["avg"].steps]
    assert [step["score"] for step in written["steps"]] == scores
    # The data of every task is remembered, and refused in an evaluation.
    hydractl.prune("clip", method="circuit", circuit="c.json", budget=2, output="pruned")
    leak = run("evaluate", "pruned", "--id-data=birds", "--template={label}")
    assert leak.code == 1
    assert "ID data birds: 6 of 6 samples were used to make pruned (as birds id)" in leak.err


def test_a_state_is_of_its_tasks(run: Command, two_tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Extracted, "write", lambda extracted, force: (_ for _ in ()).throw(KeyboardInterrupt))
    search = ("extract-circuit", "clip", "--task=pets=pets,noise", *OF_TASKS, "--output=c.json")
    assert run(*search, "--task=birds=birds,noise").code == 130
    monkeypatch.undo()
    monkeypatch.chdir(two_tasks)
    other = run(*search, "--task=hens=birds,noise", "--resume")
    assert (other.code, "was made with another" in other.err) == (1, True)
    assert run(*search, "--task=birds=birds,noise", "--resume").code == 0
