"""Limits on what a Hydra may cost against the network, and the MLP units that its members lose for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.arithmetic import plain_multiply_adds
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, without
from hydractl.checkpoint.layout import member_units, side_by_side, stored_shapes
from hydractl.checkpoint.slots import parameter_count
from hydractl.circuit.scores import ScoresLike, ScoreTable, as_scores
from hydractl.errors import OptionError
from hydractl.options import option
from hydractl.run_options import ratio_option
from hydractl.surgery.choose import units_leaving
from hydractl.surgery.provenance import require_same_model

if TYPE_CHECKING:
    from hydractl.selection.pool import UnitDeal


@dataclass(frozen=True)
class Limits:
    """Limits on the cost of a Hydra, as multiples of the network's; None for no limit."""

    budget_macs: float | None = ratio_option("Multiply-adds that the Hydra may have against the network's.", "1.3x")
    budget_params: float | None = ratio_option("Parameters that the Hydra may have against the network's.", "1.2x")

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
                fact = f"{members} members without any head have {fewest:.2f}x"
                raise OptionError(f"`{name}` {most:g}x: {fact}: give more, or fewer `members`")

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
        "MLP units that each chosen member loses above the trunk, a number or a share of all: members keep the best in "
        "common and divide the rest. They are chosen with all units: fine-tune them.",
        metavar="N|N%",
    )
    unit_scores: ScoresLike | None = option(
        None, "Scores of MLP units, by score-heads --units.", metavar="FILE", remembered=False
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
