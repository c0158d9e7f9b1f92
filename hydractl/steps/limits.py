"""What the Hydra of a build may cost against the network: multiply-adds and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydractl.bounds import real
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.steps.latency import LatencyLimit


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
