"""What a command says of itself holds nothing that nobody else may know."""

from __future__ import annotations

import sys

import pytest

from hydractl.cli.console import Terminal


@pytest.mark.parametrize("spelled", [["--token", "hf_SECRET"], ["--token=hf_SECRET"]])
def test_a_token_is_not_in_the_command_that_a_report_shows(spelled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["hydractl", "evaluate", *spelled, "a model", "--seed=1", *spelled])
    assert Terminal(quiet=True).command == "hydractl evaluate 'a model' --seed=1"


def test_a_token_that_looks_like_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["hydractl", "--token", "--token", "x"])
    assert Terminal(quiet=True).command == "hydractl x"
