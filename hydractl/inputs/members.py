"""Members as options name them: circuits, selections and networks; limits of their cost, and the units they lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.artifacts import ModelReference
from hydractl.checkpoint.arithmetic import plain_multiply_adds
from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.checkpoint.heads import Head, without
from hydractl.checkpoint.layout import member_units, side_by_side, stored_shapes
from hydractl.checkpoint.slots import parameter_count
from hydractl.circuit.head_files import Circuit, CircuitLike, ScoresLike, ScoreTable, as_circuit, as_scores
from hydractl.errors import OptionError
from hydractl.inputs.models import ModelLike, as_checkpoint, as_several
from hydractl.options import option
from hydractl.run_options import ratio_option
from hydractl.selection.selection_file import Followed, Selection, read_selection, selection_of
from hydractl.surgery.choose import units_leaving
from hydractl.surgery.provenance import require_same_model
from hydractl.text import composed_all

if TYPE_CHECKING:
    from hydractl.selection.pool import UnitDeal

SelectionLike = Any  #: a path, or the result of `select`


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
        OptionError: it has other classes or another task than the network.
    """
    members = [as_checkpoint(file) for file in files]
    for member in members:
        differ = member.labels and network.labels and composed_all(member.labels) != composed_all(network.labels)
        if differ or _task(member) != _task(network):
            raise OptionError(
                f"{member.name}: its task or classes differ from those of {network.name}: name members of one network"
            )
    return members


def _task(model: Checkpoint) -> tuple[str, int | None]:
    return model.spec.task, len(model.labels or ()) or model.spec.classes


def follow(selection: SelectionLike, models: Sequence[ModelLike]) -> Followed:
    """Returns a selection and the networks that it names.

    Args:
        models: the network or members, if they have moved since.

    Raises:
        ArtifactError: the file cannot be read, or is no selection; a network that it names has changed.
        CheckpointError: a network cannot be read.
        OptionError: not a selection, a missing network, or a model that is not in it.
    """
    if isinstance(selection, str | Path):
        followed = read_selection(str(selection))
    elif isinstance(content := getattr(selection, "content", None), Mapping):
        followed = selection_of(content)
    else:
        raise OptionError(f"expected a selection (a path or the result of select), got {type(selection).__name__}")
    by_hash = {identity(model): model for model in map(as_checkpoint, models)}
    references = [member.file for member in followed.members if member.file is not None]
    files = {file.sha256: _found(followed, file, by_hash) for file in references}
    others = [model for sha256, model in by_hash.items() if sha256 not in files]
    if followed.model is not None:
        network = _found(followed, followed.model, by_hash)
    elif others:
        network = others[0]
    else:
        raise OptionError(f"{followed.name}: names no network: name the `model`")
    if foreign := [model.name for model in others if identity(model) != identity(network)]:
        raise OptionError(f"{foreign[0]}: is neither the network nor a member of {followed.name}: leave it out")
    return Followed(followed, network, files)


def _found(selection: Selection, reference: ModelReference, by_hash: Mapping[str, Checkpoint]) -> Checkpoint:
    """Returns a network that a selection names, from those given or from where the selection says it lies."""
    if reference.sha256 in by_hash:
        return by_hash[reference.sha256]
    network = as_checkpoint(reference.reference)
    require_same_model(network, selection.name, reference)
    return network


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
        macs = plain_multiply_adds(spec, least) / plain_multiply_adds(spec, network.layout)
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


@dataclass(frozen=True)
class UnitLoss:
    """Says how many MLP units chosen members lose.

    Raises:
        OptionError: units without scores, or scores without units.
    """

    units: Any = option(
        None,
        "MLP units that each chosen member loses above the trunk, as a number or a share. Members share the best units "
        "and divide the rest. Selection measures them with all units: fine-tune them.",
        metavar="N|N%",
    )
    unit_scores: ScoresLike | None = option(
        None, "Scores of MLP units, by score-heads --units.", metavar="FILE", remembered=False, rare=True
    )

    def __post_init__(self) -> None:
        if (self.units is None) != (self.unit_scores is None):
            raise OptionError("`units` and `unit_scores` go together: give both or neither")

    @cached_property
    def artifact(self) -> ScoreTable | None:
        """The scores, read."""
        return None if self.unit_scores is None else as_scores(self.unit_scores)

    def deal(self, network: Checkpoint, trunks: Sequence[int]) -> UnitDeal | None:
        """Returns what members will lose.

        Raises:
            ArtifactError: the scores are of another network, or of heads alone.
            OptionError: a network whose units cannot be dropped, or that has fewer above a trunk.
        """
        if self.units is None or self.artifact is None:
            return None
        from hydractl.selection.pool import UnitDeal
        from hydractl.surgery.slicing import drop_units

        require_same_model(network, self.artifact.name, self.artifact.model)
        scores = self.artifact.of_units(member_units(network.layout, network.spec, 0))
        deal = UnitDeal(scores, units_leaving(self.units, network))
        for trunk in trunks:
            drop_units(network, *deal.dropped(1, trunk))
        return deal
