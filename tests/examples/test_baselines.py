"""Ensembles that torch-uncertainty trains from scratch: one epoch on small images, into the table of all systems."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.examples.test_pipelines import make, models


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("torch_uncertainty") is None or find_spec("lightning") is None,
    reason="torch-uncertainty and lightning, without which it cannot be imported, are not installed",
)
def test_packed_and_mimo_join_the_table(tmp_path: Path) -> None:
    done = make(tmp_path, "baselines", QUICK=1)
    assert models(tmp_path, "baselines") == ["packed", "mimo"]
    assert (tmp_path / "build" / "baselines" / "table.txt").read_text() in done.stdout
