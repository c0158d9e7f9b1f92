"""How long the Hydra of a build may take against the network: measured once, and kept in the build's folder."""

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

FILE = "latency.json"


class LatencyLimit(Schema):
    """A limit of the latency as the multiply-adds that keep to it.

    Attributes:
        budget: the limit as it was asked for, `1.5x`.
        measured: multiply-adds and latency of a few Hydras, against the network.
    """

    budget: str
    multiply_adds: Annotated[float, Field(gt=0)]
    measured: Items[tuple[float, float]]

    def write(self, folder: Path) -> None:
        """Keeps it in the folder of a build: an interrupted one goes on with the same commands."""
        from hydractl.checkpoint.atomic import write_bytes

        write_bytes(folder / FILE, f"{self.model_dump_json(indent=2)}\n".encode())

    def kept(self, network: Path, hydra: Path, device: torch.device) -> str:
        """A sentence that says how long the Hydra takes: measured now, as nothing before knew it."""
        from hydractl.evaluation.latency import time_ratios
        from hydractl.families.open import read_checkpoint

        ((_, ratio),) = time_ratios(read_checkpoint(network), [read_checkpoint(hydra)], device)
        return f"latency: {ratio:.2f} times the network's on this machine; {self.budget} was allowed."


def latency_limit(
    model: str, budget: str, members: int, device: torch.device, folder: Path, watch: Watcher
) -> LatencyLimit:
    """The limit, measured, or as the build that was begun in a folder measured it.

    Raises:
        OptionError: no multiple, or times that say nothing.
        OutputError: what is kept of the build that was begun is damaged.
    """
    from hydractl.evaluation.latency import most_multiply_adds, sketches, time_ratios
    from hydractl.steps.inputs import as_member

    limit = parse_ratio("budget_latency", budget)
    if (folder / FILE).is_file():
        origin = Origin(str(folder / FILE), OutputError, "remove it, or name another folder")
        begun = read_json(folder / FILE, origin).read(LatencyLimit)
        if begun.budget == budget:
            return begun
    watch.note("timing Hydras of random members beside the network")
    network = as_member(model)
    heads = sum(tower.layers * tower.heads for tower in network.spec.towers)
    points = time_ratios(network, sketches(network, max(members, 2), heads // 6), device)
    return LatencyLimit(budget=budget, multiply_adds=most_multiply_adds(points, limit), measured=tuple(points))
