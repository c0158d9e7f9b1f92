"""Limits on what a Hydra may cost against the network; a limit on time is measured once and kept by its build."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hydractl.bounds import real
from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import OptionError, OutputError
from hydractl.options import option
from hydractl.schema import Origin, read_json
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.evaluation.latency_limit import LatencyLimit
    from hydractl.steps.build import Build


@dataclass(frozen=True)
class Limits:
    """Limits on the cost of a Hydra, as multiples of the network's; None for no limit."""

    budget_macs: str | None = option(
        None, "Multiply-adds that the Hydra may have against the network's.", metavar="1.3x"
    )
    budget_params: str | None = option(
        None, "Parameters that the Hydra may have against the network's.", metavar="1.2x"
    )

    def __post_init__(self) -> None:
        _ = self.multiply_adds, self.parameters  # raises OptionError for a text that is not a multiple

    @property
    def multiply_adds(self) -> float | None:
        """The multiple of the network's multiply-adds."""
        return None if self.budget_macs is None else parse_ratio("budget_macs", self.budget_macs)

    @property
    def parameters(self) -> float | None:
        """The multiple of the network's parameters."""
        return None if self.budget_params is None else parse_ratio("budget_params", self.budget_params)

    def within(self, latency: LatencyLimit | None) -> Limits:
        """Returns the limits that keep to a latency as well."""
        if latency is None or (self.multiply_adds or latency.multiply_adds) < latency.multiply_adds:
            return self
        return replace(self, budget_macs=f"{latency.multiply_adds}x")

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
    value = real(str(text).removesuffix("x"), 0.01, 1000)
    if value is None:
        raise OptionError(f"`{name}` {text}: expected a multiple of the network's, as in 1.3x")
    return value


def latency_limit(build: Build, network: Checkpoint, watch: Watcher) -> LatencyLimit | None:
    """Returns a build's latency limit in multiply-adds; times Hydras of random members if no earlier run did.

    Raises:
        OptionError: the budget is not a multiple, or no network is that fast.
        OutputError: the record of an earlier run is damaged.
    """
    from hydractl.evaluation.latency_limit import FILE, LatencyLimit, most_multiply_adds, sketches, time_ratios

    budget, file = build.budget_latency, build.folder / FILE
    if budget is None:
        return None
    ratio = parse_ratio("budget_latency", budget)
    if file.is_file():
        origin = Origin(str(file), OutputError, "remove it, or name another folder")
        begun: LatencyLimit = read_json(file, origin).read(LatencyLimit)
        if begun.budget == budget:
            return begun
    watch.note("note: timing Hydras of random members beside the network")
    heads = sum(tower.layers * tower.heads for tower in network.spec.towers)
    points = time_ratios(network, sketches(network, max(build.members, 2), heads // 6), build.compute.torch_device)
    return LatencyLimit(budget=budget, multiply_adds=most_multiply_adds(points, ratio), measured=tuple(points))
