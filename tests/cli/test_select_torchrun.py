"""`torchrun ... -m hydractl select`: the same bytes from any number of processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.cli.test_evaluate_torchrun import compare


@pytest.mark.parametrize("wanted", [("--random=3", "--budgets=1"), ("--search=joint", "--budgets=1,2")])
def test_members_are_the_same(
    hydractl: Command,
    vit: Path,
    images: Path,
    noise: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: tuple[str, ...],
) -> None:
    data = ("--id-data", images, "--ood-data", noise, "--batch-size", 5, "--objective=avg")
    kept = ("--members=2", "--selection=s.json", "-o", "hydra")
    written = compare(hydractl, tmp_path, monkeypatch, "select", vit, *wanted, *data, *kept)
    assert {"s.json", "hydra"} == written.keys()
