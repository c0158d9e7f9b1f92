"""The latency limit of a build: measured once, and kept in the build's folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from hydractl.errors import OutputError
from hydractl.schema import Items, Origin, Schema, read_json
from hydractl.steps.limits import parse_ratio
from hydractl.watch import Watcher

if TYPE_CHECKING:
    import torch

    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.steps.build import Build

FILE = "latency.json"


class LatencyLimit(Schema):
    """A latency limit, as the multiply-adds that stay within it.

    Attributes:
        budget: the limit as the user gave it, `1.5x`.
        measured: multiply-adds and latency of a few Hydras, against the network.
    """

    budget: str
    multiply_adds: Annotated[float, Field(gt=0)]
    measured: Items[tuple[float, float]]

    def write(self, folder: Path) -> None:
        """Writes it to the folder of a build, so that an interrupted build continues with the same commands."""
        from hydractl.checkpoint.output import write_bytes

        write_bytes(folder / FILE, f"{self.model_dump_json(indent=2)}\n".encode())

    def verdict(self, network: Path, hydra: Path, device: torch.device) -> str:
        """Measures the Hydra beside the network and returns the ratio in a sentence."""
        from hydractl.evaluation.latency import time_ratios
        from hydractl.families.load import read_checkpoint

        ((_, ratio),) = time_ratios(read_checkpoint(network), [read_checkpoint(hydra)], device)
        return f"latency: {ratio:.2f} times the network's on this machine; {self.budget} was allowed."


def begun_limit(budget: str, folder: Path) -> LatencyLimit | None:
    """Returns the limit that an earlier run of the same build measured, if there is one.

    Raises:
        OutputError: the build's record is damaged.
    """
    if not (folder / FILE).is_file():
        return None
    found = read_json(folder / FILE, Origin(str(folder / FILE), OutputError, "remove it, or name another folder"))
    limit: LatencyLimit = found.read(LatencyLimit)
    return limit if limit.budget == budget else None


def latency_limit(build: Build, network: Checkpoint, watch: Watcher) -> LatencyLimit | None:
    """Returns a build's latency limit in multiply-adds; times Hydras of random members if no earlier run did.

    Raises:
        OptionError: the budget is not a multiple, or no network is that fast.
        OutputError: the record of an earlier run is damaged.
    """
    from hydractl.evaluation.latency import most_multiply_adds, sketches, time_ratios

    budget = build.budget_latency
    if budget is None:
        return None
    ratio = parse_ratio("budget_latency", budget)
    if begun := begun_limit(budget, Path(build.output)):
        return begun
    watch.note("note: timing Hydras of random members beside the network")
    heads = sum(tower.layers * tower.heads for tower in network.spec.towers)
    points = time_ratios(network, sketches(network, max(build.members, 2), heads // 6), build.compute.torch_device)
    return LatencyLimit(budget=budget, multiply_adds=most_multiply_adds(points, ratio), measured=tuple(points))
