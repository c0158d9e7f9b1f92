"""The steps that decide little: the Python call and the command give the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import hydractl
from hydractl.artifacts import json_text
from hydractl.steps.guide import guide
from hydractl.steps.inspect import inspect
from hydractl.steps.report import report
from hydractl.steps.result import Result
from tests.cli.conftest import Command


def test_fuse_writes_the_same_bytes(run: Command, vit: Path, tmp_path: Path) -> None:
    members = [tmp_path / "a", tmp_path / "b"]
    for seed, member in enumerate(members):
        hydractl.prune(vit, method="random", budget=2, seed=seed, output=member)
    fused = hydractl.fuse(members, separate="classifier", output=tmp_path / "python")
    done = run("fuse", *members, "--separate", "classifier", "-o", tmp_path / "command", "--json")
    assert (tmp_path / "python").read_bytes() == (tmp_path / "command").read_bytes()
    assert json.loads(done.out).keys() == fused.to_json().keys()


@pytest.mark.parametrize(
    ("command", "call"),
    [
        (("inspect", "m"), lambda: inspect("m")),
        (("list", "families"), hydractl.list_families),
        (("list", "recipes"), hydractl.list_recipes),
        (("list", "recipes", "sst2"), lambda: hydractl.list_recipes("sst2")),
        (("guide", "speed"), lambda: guide("speed")),
        (("report", "r.json"), lambda: report(["r.json"])),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_python_and_the_command_say_the_same(
    command: tuple[str, ...],
    call: Callable[[], Result],
    run: Command,
    vit: Path,
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "m" in command:
        hydractl.fuse([vit, vit], output="m")
    if "r.json" in command:
        hydractl.evaluate(vit, id_data=images, json="r.json")
    found = call()
    assert json.loads(run(*command, "--json").out) == json.loads(json_text(found.to_json()))
    said = run(*command)
    assert (said.code, said.out.split()) == (0, "\n".join(found.lines()).split())
