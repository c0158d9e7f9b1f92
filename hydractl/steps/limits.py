"""Limits of what the Hydra of a build may cost against the network: multiply-adds, parameters and latency."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from hydractl.bounds import real
from hydractl.errors import OptionError, OutputError
from hydractl.schema import Items, Origin, Schema, read_json
from hydractl.watch import Watcher

if TYPE_CHECKING:
    import torch

    from hydractl.checkpoint.contents import Checkpoint

FILE = "latency.json"  # in the folder of a build


@dataclass(frozen=True)
class Limits:
    """Limits as multiples of the network's cost; None for no limit."""

    multiply_adds: float | None = None
    parameters: float | None = None

    @classmethod
    def of(cls, macs: str | None, params: str | None, latency: LatencyLimit | None) -> Limits:
        """Returns the limits that options name.

        Raises:
            OptionError: a text is not a multiple.
        """
        counted = [] if macs is None else [parse_ratio("budget_macs", macs)]
        counted += [] if latency is None else [latency.multiply_adds]
        return cls(min(counted, default=None), None if params is None else parse_ratio("budget_params", params))

    def trunks(self, network: Checkpoint) -> str:
        """Returns the trunk depths to try by default: several where the cost is limited, else no trunk."""
        if self == Limits():
            return "0"
        depth = max(tower.layers for tower in network.spec.towers)
        return ",".join(map(str, sorted({0, depth // 2, 3 * depth // 4, depth - 1})))


def parse_ratio(name: str, text: str) -> float:
    """Returns a multiple of the network's cost, such as 1.3x.

    Args:
        name: the option, for messages.

    Raises:
        OptionError: the text is not a multiple.
    """
    value = real(text.removesuffix("x"), 0.01, 1000)
    if value is None:
        raise OptionError(f"`{name}` {text}: expected a multiple of the network's, as in 1.3x")
    return value


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
        from hydractl.checkpoint.atomic import write_bytes

        write_bytes(folder / FILE, f"{self.model_dump_json(indent=2)}\n".encode())

    def verdict(self, network: Path, hydra: Path, device: torch.device) -> str:
        """Measures the Hydra beside the network and returns the ratio in a sentence."""
        from hydractl.evaluation.latency import time_ratios
        from hydractl.families.open import read_checkpoint

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


def measured_limit(budget: str, network: Checkpoint, members: int, device: torch.device) -> LatencyLimit:
    """Times Hydras of random members beside the network and returns the limit in multiply-adds.

    Raises:
        OptionError: the budget is not a multiple, or no network is that fast.
    """
    from hydractl.evaluation.latency import most_multiply_adds, sketches, time_ratios

    ratio = parse_ratio("budget_latency", budget)
    heads = sum(tower.layers * tower.heads for tower in network.spec.towers)
    points = time_ratios(network, sketches(network, max(members, 2), heads // 6), device)
    return LatencyLimit(budget=budget, multiply_adds=most_multiply_adds(points, ratio), measured=tuple(points))


def latency_limit(
    budget: str | None, network: Checkpoint, members: int, device: torch.device, folder: Path, watch: Watcher
) -> LatencyLimit | None:
    """Returns the latency limit of a build, or None without a budget."""
    if budget is None:
        return None
    if begun := begun_limit(budget, folder):
        return begun
    watch.note("note: timing Hydras of random members beside the network")
    return measured_limit(budget, network, members, device)
