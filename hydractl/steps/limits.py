"""Limits of what the Hydra of a build may cost against the network: multiply-adds and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydractl.bounds import real
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.steps.latency import LatencyLimit


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
