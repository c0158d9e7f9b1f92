"""What members are selected among, by the options of `select`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hydractl.bounds import MEMBERS, whole
from hydractl.errors import OptionError
from hydractl.steps.inputs import CircuitLike, as_circuit

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


def named_circuits(circuit: Sequence[CircuitLike] | CircuitLike, network: Checkpoint) -> dict[str, Circuit]:
    """The circuits by name: their objectives, or numbers where these are not apart.

    Raises:
        ArtifactError: a circuit cannot be read or is of another model.
    """
    from hydractl.surgery.methods import require_same_model

    listed: Sequence[Any] = circuit if isinstance(circuit, list | tuple) else [circuit]
    found = [as_circuit(one) for one in listed]
    for one in found:
        require_same_model(network, one.name, one.model)
    names = [one.objective or "circuit" for one in found]
    return {
        name if names.count(name) == 1 else f"{name} {number}": one
        for number, (name, one) in enumerate(zip(names, found, strict=True), 1)
    }


def circuit_of_trunks(
    circuit: CircuitLike | None, circuits: Mapping[str, Circuit], trunks: Sequence[int], network: Checkpoint
) -> Circuit | None:
    """The circuit that trunks follow; None where there are no trunks.

    Raises:
        OptionError: a trunk and no circuit, or the other way round.
    """
    if not any(trunks):
        if circuit is not None:
            raise OptionError("`common_circuit` has no effect without `share_below`: leave it out")
        return None
    if circuit is not None:
        return next(iter(named_circuits([circuit], network).values()))
    if not circuits:
        raise OptionError("`share_below` needs a circuit to say what trunks drop: give `circuit` or `common_circuit`")
    return list(circuits.values())[-1]
