"""In a terminal every command shows that it works, with what is left where that is known; in a pipe none does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import hydractl as library
from hydractl.cli import console
from hydractl.cli.commands import COMMANDS
from tests.cli.conftest import Command

ID, OOD = "--id-data=pets", "--ood-data=noise"
CIRCUIT = "--circuit=circuit.json"
#: Each command that may take longer than a moment: what stands beside its bar, and the rest of its line.
BARS: dict[str, tuple[str, list[str]]] = {
    "score-heads": ("score", ["vit", "--method=taylor", ID, "-o", "s.json"]),
    "extract-circuit": ("search", ["vit", ID, OOD, "--budget=1", "-o", "c.json"]),
    "select": ("select", ["vit", CIRCUIT, "--budgets=1,2", "--members=2", ID, OOD]),
    "evaluate": ("vit", ["vit", ID]),
    "calibrate": ("calibrate", ["vit", "--id-data=pets", "-o", "calibrated"]),
    "predict": ("predict", ["vit", "noise/0.png"]),
    "benchmark": ("time", ["vit", "--batch-sizes=1", "--seconds=0.1"]),
    "analyse budgets": ("measure", ["vit", CIRCUIT, "--budgets=1", ID]),
    "analyse heads": ("analyse", ["vit", CIRCUIT, "--budget=1", ID, OOD]),
    "analyse members": ("analyse members", ["both", "--data=pets"]),
    "analyse noise": ("analyse", ["vit", "member", ID, "--corrupt=contrast:1"]),
    # Of these nobody knows what is left.
    "analyse overlap": ("analyse overlap", ["circuit.json", "circuit.json"]),
    "prune": ("prune", ["vit", "--method=random", "--budget=1", "-o", "m1"]),
    "fuse": ("fuse", ["vit", "vit", "-o", "fused"]),
    "inspect": ("inspect", ["vit"]),
    "export": ("export", ["vit", "-o", "folder"]),
}
#: These are done at once, or run the others, each with its own bar.
NO_BAR = {"build", "guide", "list families", "list recipes", "list suites", "report"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vit: Path, images: Path, noise: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, target in (("vit", vit), ("pets", images), ("noise", noise)):
        Path(name).symlink_to(target)
    library.prune("vit", method="random", budget=1, output="member")
    library.fuse(["vit", "member"], output="both")
    steps = [{"tower": "vision", "layer": 1, "head": head} for head in (0, 1)]
    Path("circuit.json").write_text(json.dumps({"format": "hydractl-circuit", "version": 1, "steps": steps}))


@pytest.mark.parametrize("command", BARS)
def test_a_bar_for_a_person_and_none_in_a_pipe(
    hydractl: Command, here: None, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    name, arguments = BARS[command]
    monkeypatch.setattr(console, "PATIENCE", 0)
    piped = hydractl(*command.split(), *arguments)
    assert piped.code == 0, piped.err
    assert "\x1b" not in piped.err
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    watched = hydractl(*command.split(), *arguments, "--force")
    assert watched.code == 0
    assert f"{name} " in watched.err.replace(":", " ")
    assert "\x1b[1A" in watched.err or "\x1b[2K" in watched.err  # it is erased in the end
    assert "\x1b" not in watched.out


def test_every_command_is_named_here() -> None:
    trained = {"finetune"}  # whose bar its own tests watch
    assert BARS.keys() | NO_BAR | trained == {command.name for command in COMMANDS}


def test_a_quiet_command_shows_none(hydractl: Command, here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "PATIENCE", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert hydractl("inspect", "vit", "--quiet").err == ""


def test_the_one_that_waits_gives_place_to_what_knows_more(capsys: pytest.CaptureFixture[str]) -> None:
    shown = console.Bars("command")
    shown._wait()
    with shown.of("work", 4) as advance:
        assert [task.description for task in shown._drawn.tasks if task.visible] == ["work"]
        advance(1)
        assert shown._drawn.tasks[-1].remaining == 3
    assert [task.description for task in shown._drawn.tasks if task.visible] == ["command"]
    shown.close()
    shown._wait()  # as a timer does that was late
    assert shown._drawn.live.is_started is False
