"""What a command says holds no secret, and fits the terminal where somebody reads it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hydractl.cli.console import Terminal, show
from hydractl.steps.listings import list_suites


@pytest.mark.parametrize("spelled", [["--token", "hf_SECRET"], ["--token=hf_SECRET"], ["--token", "--token"]])
def test_a_token_is_not_in_the_command_that_a_report_shows(spelled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["hydractl", "evaluate", *spelled, "a model", "--seed=1", *spelled])
    assert Terminal(quiet=True).command == "hydractl evaluate 'a model' --seed=1"


def test_a_command_that_a_report_shows_names_files_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [f"{tmp_path}/vit", f"both={tmp_path}/a+{tmp_path}/b", f"--task=x={tmp_path}/id,{tmp_path}/ood"]
    given += [f"far/{tmp_path}/photos:test%1/5", "near/x=b/c+d", "https://hub/x", f"--json={tmp_path}/r.json"]
    given += [f"saved=predictions:{tmp_path}/saved", f"predictions:{tmp_path}/saved"]
    monkeypatch.setattr(sys, "argv", ["hydractl", *given])
    named = "vit both=a+b --task=x=id,ood far/photos:test%1/5 near/x=b/c+d https://hub/x --json=r.json"
    named += " saved=predictions:saved predictions:saved"
    assert Terminal(quiet=True).command == f"hydractl {named}"


def test_a_command_in_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "argv", ["hydractl", "inspect", f"{tmp_path}/vit"])
    assert Terminal(quiet=True).command == "hydractl inspect vit"


@pytest.mark.parametrize("watched", [True, False])
def test_lines_fit_a_terminal_and_are_whole_in_a_pipe(
    watched: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: watched)
    result = list_suites()
    show(result)
    said = capsys.readouterr().out.splitlines()
    assert (max(map(len, said)) <= 60) == watched
    assert " ".join(" ".join(said).split()) == " ".join(" ".join(result.lines()).split())
