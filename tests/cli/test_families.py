"""`hydractl families` lists what is read and what is not, and why."""

from __future__ import annotations

import json

from hydractl.families import FAMILIES
from tests.cli.conftest import Command


def test_every_family_is_listed(hydractl: Command) -> None:
    result = hydractl("families")
    assert result.code == 0
    names = [line.split()[0] for line in result.out.split("\n\n")[0].splitlines()]
    assert names == [family.name for family in FAMILIES]
    assert "swin: its attention works in windows" in result.out


def test_json(hydractl: Command) -> None:
    listed = json.loads(hydractl("families", "--json").out)
    assert {family["name"]: family["verified_against"] for family in listed["families"]}["timm"] == "timm"
    assert "albert" in listed["refused"]
