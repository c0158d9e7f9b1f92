"""Members as options name them: circuits and networks; limits of their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hydractl.checkpoint.arithmetic import multiply_adds
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, without
from hydractl.checkpoint.layout import side_by_side, stored_shapes
from hydractl.checkpoint.slots import parameter_count
from hydractl.circuit.head_files import Circuit, CircuitLike, as_circuit
from hydractl.errors import OptionError
from hydractl.inputs.models import ModelLike, as_checkpoint, as_several
from hydractl.run_options import ratio_option
from hydractl.surgery.provenance import require_same_model
from hydractl.text import composed_all


def named_circuits(circuits: Sequence[CircuitLike] | CircuitLike, network: Checkpoint) -> dict[str, Circuit]:
    """Returns circuits by name: their objectives, with numbers if these are not unique.

    Raises:
        ArtifactError: a circuit cannot be read or is of another model.
    """
    read = [as_circuit(circuit) for circuit in as_several(circuits)]
    for circuit in read:
        require_same_model(network, circuit.name, circuit.model)
    names = [circuit.objective or "circuit" for circuit in read]
    return {
        name if names.count(name) == 1 else f"{name} {number}": circuit
        for number, (name, circuit) in enumerate(zip(names, read, strict=True), 1)
    }


def existing_members(files: Sequence[ModelLike], network: Checkpoint) -> list[Checkpoint]:
    """Returns the networks in some files, of one member or several each, to measure beside a network.

    Raises:
        CheckpointError: a file cannot be read.
        OptionError: it has other classes, another task, preprocessing or dtype than the network.
    """
    members = [as_checkpoint(file) for file in files]
    for member in members:
        differ = member.labels and network.labels and composed_all(member.labels) != composed_all(network.labels)
        if differ or _task(member) != _task(network):
            raise OptionError(
                f"{member.name}: its task or classes differ from those of {network.name}: name members of one network"
            )
        if member.preprocessing != network.preprocessing:  # all are measured on the same inputs
            raise OptionError(
                f"{member.name}: prepares inputs in another way than {network.name}: name members of one network"
            )
        if member.dtype != network.dtype:
            here, there = (str(each.dtype).removeprefix("torch.") for each in (member, network))
            raise OptionError(
                f"{member.name}: its weights are {here}, those of {network.name} {there}: write one of them anew by "
                "prune with `method` random, `budget` 0 and `dtype`"
            )
    return members


def _task(model: Checkpoint) -> tuple[str, int | None]:
    return model.spec.task, len(model.labels or ()) or model.spec.classes


@dataclass(frozen=True)
class Limits:
    """Limits on the cost of a Hydra, as multiples of the network's; None for no limit."""

    budget_macs: float | None = ratio_option("Limit on the Hydra's multiply-adds, relative to the network's.", "1.3x")
    budget_params: float | None = ratio_option("Limit on the Hydra's parameters, relative to the network's.", "1.2x")

    def require_possible(self, network: Checkpoint, members: int) -> None:
        """Raises OptionError for limits below members without any head that share all but the attention of a layer."""
        spec, table = network.spec, network.slots()
        gone = {Head(t.name, layer, head) for t in spec.towers for layer in range(t.layers) for head in range(t.heads)}
        bare = replace(network.layout, heads=without(network.heads, gone))
        last = {(tower.name, tower.layers - 1) for tower in spec.towers}
        apart = {name for name, slot in table.items() if slot.is_attention and (slot.tower, slot.layer) in last}
        least = side_by_side(spec, [bare] * members, frozenset(table) - apart)
        macs = multiply_adds(spec, least) / multiply_adds(spec, network.layout)
        stored = [parameter_count(stored_shapes(spec, layout)) for layout in (least, network.layout)]
        limits = {"budget_macs": (self.budget_macs, macs), "budget_params": (self.budget_params, stored[0] / stored[1])}
        for name, (most, fewest) in limits.items():
            if most is not None and most < fewest:
                fact = f"{members} members without heads already take {fewest:.2f}x"
                raise OptionError(f"`{name}` {most:g}x: {fact}: allow more, or fewer `members`")

    def trunks(self, network: Checkpoint) -> str:
        """Returns the trunk depths to try by default: several where the cost is limited, else no trunk."""
        if self == Limits():
            return "0"
        depth = max(tower.layers for tower in network.spec.towers)
        return ",".join(map(str, sorted({0, depth // 2, 3 * depth // 4, depth - 1})))
