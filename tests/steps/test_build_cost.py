"""What a Hydra may cost, as `build` is told: multiply-adds, parameters and latency."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hydractl.errors import OptionError
from hydractl.evaluation.latency_limit import most_multiply_adds
from tests.cli.conftest import Command
from tests.steps.test_build import ARGUMENTS, here

__all__ = ["here"]


def test_its_cost_is_bounded(hydractl: Command, here: Path) -> None:
    built = hydractl(*ARGUMENTS, "--budget-params=1.1x", "--budget-macs=1.9x", "--budget-latency=8x", "--quiet")
    assert built.code == 0, built.err
    assert any(line.startswith("latency: ") and line.endswith("8x was allowed.") for line in built.out.splitlines())
    entries = json.loads((here / "built" / "report.json").read_text())["models"]
    network, hydra = (entries[name]["cost"] for name in ("network", "hydra"))
    assert hydra["members"] == 2
    assert hydra["multiply_adds"] <= 1.9 * network["multiply_adds"]
    assert hydra["parameters"] <= 1.1 * network["parameters"]
    begun = json.loads((here / "built" / "latency.json").read_text())
    assert (begun["budget"], len(begun["measured"])) == ("8x", 2)
    again = hydractl(*ARGUMENTS, "--budget-params=1.1x", "--budget-macs=1.9x", "--budget-latency=8x", "--dry-run")
    assert again.out.splitlines() == json.loads((here / "built" / "steps.json").read_text())
    refused = hydractl(*ARGUMENTS, "--budget-params=fat")
    assert (refused.code, "--budget-params fat: expected a multiple" in refused.err) == (2, True)


def test_a_latency_that_no_network_has_is_refused() -> None:
    with pytest.raises(OptionError, match=r"`budget_latency` 0.25x: no network is that fast here"):
        most_multiply_adds([(2.0, 1.5), (3.0, 2.0)], 0.25)
