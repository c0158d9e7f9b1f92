"""What the Hydra of a build may cost against the network: multiply-adds, parameters, latency."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from hydractl.bounds import real
from hydractl.errors import OptionError, OutputError
from hydractl.schema import Items, Origin, Schema, read_json
from hydractl.steps.watch import Watcher

if TYPE_CHECKING:
    import torch

    from hydractl.evaluation.latency import Point

FILE = "latency.json"


@dataclass(frozen=True)
class Limits:
    """As multiples of what the network has; None for as much as members have."""

    multiply_adds: float | None = None
    parameters: float | None = None

    @classmethod
    def of(cls, macs: str | None, params: str | None, latency: LatencyLimit | None) -> Limits:
        """The limits that options name.

        Raises:
            OptionError: one is no multiple.
        """
        counted = [] if macs is None else [parse_ratio("budget_macs", macs)]
        counted += [] if latency is None else [latency.multiply_adds]
        return cls(min(counted, default=None), None if params is None else parse_ratio("budget_params", params))

    def trunks(self, model: str) -> str:
        """The depths of trunks to try where none are named: members that differ everywhere keep to hardly any limit."""
        from hydractl.steps.inputs import as_member

        if self == Limits():
            return "0"
        depth = max(tower.layers for tower in as_member(model).spec.towers)
        return ",".join(map(str, sorted({0, depth // 2, 3 * depth // 4, depth - 1})))


@dataclass(frozen=True)
class LatencyLimit:
    """A limit of the latency as the multiply-adds that keep to it.

    Attributes:
        budget: the limit as it was asked for, `1.5x`.
        measured: multiply-adds and latency of a few Hydras, against the network.
    """

    budget: str
    multiply_adds: float
    measured: Sequence[Point]

    def write(self, folder: Path) -> None:
        """Keeps it in the folder of a build: an interrupted one goes on with the same commands."""
        from hydractl.checkpoint.atomic import write_bytes

        write_bytes(folder / FILE, f"{json.dumps(asdict(self), indent=2)}\n".encode())

    def kept(self, network: Path, hydra: Path, device: torch.device) -> str:
        """A sentence that says how long the Hydra takes: measured now, as nothing before knew it."""
        from hydractl.evaluation.latency import time_ratios
        from hydractl.families.open import read_checkpoint

        ((_, ratio),) = time_ratios(read_checkpoint(network), [read_checkpoint(hydra)], device)
        return f"latency: {ratio:.2f} times the network's on this machine; {self.budget} was allowed."


class _Begun(Schema):
    """A `LatencyLimit` in a file."""

    budget: str
    multiply_adds: Annotated[float, Field(gt=0)]
    measured: Items[tuple[float, float]]


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
        begun = read_json(folder / FILE, origin).read(_Begun)
        if begun.budget == budget:
            return LatencyLimit(**dict(begun))
    watch.note("timing Hydras of random members beside the network")
    network = as_member(model)
    heads = sum(tower.layers * tower.heads for tower in network.spec.towers)
    points = time_ratios(network, sketches(network, max(members, 2), heads // 6), device)
    return LatencyLimit(budget, most_multiply_adds(points, limit), points)


def parse_ratio(name: str, text: str) -> float:
    """A multiple of what the network has, as in 1.3x.

    Args:
        name: of the option, for messages.

    Raises:
        OptionError: it is none.
    """
    value = real(text.removesuffix("x"), 0.01, 1000)
    if value is None:
        raise OptionError(f"`{name}` {text}: expected a multiple of the network's, as in 1.3x")
    return value
