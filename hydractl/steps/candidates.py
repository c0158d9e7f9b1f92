"""What members are selected among, by the options of `select`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hydractl.bounds import MEMBERS, whole
from hydractl.errors import OptionError
from hydractl.steps.inputs import CircuitLike
from hydractl.steps.references import named_circuits

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.circuit.artifact import Circuit


def parse_members(members: str) -> tuple[int, int]:
    """How many members at least and at most, of `3` or `2-5`.

    Raises:
        OptionError: neither of these.
    """
    first, dash, last = str(members).partition("-")
    low, high = (whole(end, 1, MEMBERS) for end in (first, last if dash else first))
    if low is None or high is None or low > high:
        raise OptionError(f"`members` {members}: expected a number from 1 to {MEMBERS}, or two as in 2-5")
    return low, high


def circuit_of_trunks(circuit: CircuitLike | None, trunks: Sequence[int], network: Checkpoint) -> Circuit | None:
    """The circuit that trunks follow; None where there are none, or they keep all their heads.

    Raises:
        OptionError: a circuit and no trunk.
    """
    if circuit is None:
        return None
    if not any(trunks):
        raise OptionError("`common_circuit` has no effect without `share_below`: leave it out")
    return next(iter(named_circuits([circuit], network).values()))
