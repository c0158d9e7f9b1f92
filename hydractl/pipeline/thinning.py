"""The shapes of members that lose heads and MLP units above a trunk, by what their Hydra may cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from hydractl.checkpoint.arithmetic import multiply_adds
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Unit, member_heads, without
from hydractl.checkpoint.layout import every_unit, side_by_side
from hydractl.errors import OptionError
from hydractl.inputs.members import Limits
from hydractl.options import declared, flat
from hydractl.pipeline.build_options import BuildOptions
from hydractl.selection.candidates import counts

#: Multiples of the network's multiply-adds that untrained Hydras are tried at.
LEVELS = (1.1, 1.3, 1.9, 2.7)
#: How far from a half the share of units that stay may be, and up to where depths of the trunk are equally good.
FAR, NEAR = 0.35, 0.12
MOST = 2.0  # from this multiple of the network's multiply-adds on, members need not lose units
#: Options of a build that choose among candidates, of which this plan has none.
CHOOSING = ("budgets", "random", "trunks")


@dataclass(frozen=True)
class Family:
    """Members that lose heads and MLP units above a trunk."""

    trunk: int  # the layers below, which stay whole
    heads: int  # that each loses; members draw them
    units: int  # that it loses; members share the best half of the others and divide the rest
    refit: bool = False  # whether the maps that stay are fitted again
    network: bool = False  # whether the network is a member beside them

    @property
    def name(self) -> str:
        """Its name in files, by the parts that its members lose."""
        return f"trunk{self.trunk}-heads{self.heads}-units{self.units}{'-refit' * self.refit}"


def thinning(build: BuildOptions, network: Checkpoint, limits: Limits) -> Family | None:
    """Returns what members lose to keep to a limit of multiply-adds; None if they lose no units.

    Raises:
        OptionError: `units` is wanted and cannot be had.
    """
    most = limits.budget_macs
    options = flat(build)
    choosing = [
        option.name
        for option in declared(type(build))
        if option.name in CHOOSING and options[option.name] != option.default
    ]
    fits = (
        build.data.train_data is not None
        and most is not None
        and limits.budget_params is None
        and build.choice.members > 1
    )
    if build.units is None and (not fits or choosing or (most or MOST) >= MOST):
        return None
    if build.units == "no":
        return None
    if not fits:
        raise OptionError("`units` yes: give `train_data`, `budget_macs` and several `members`, and no `budget_params`")
    if choosing:
        raise OptionError(f"`{choosing[0]}` has no effect with `units` yes, which tries no candidates: leave it out")
    thinned = sized(network, build.choice.members, most or MOST)
    if thinned is None and build.units is not None:
        raise OptionError(f"`units` yes: no members of this network fit {most:g}x: allow more, or leave `units` out")
    return thinned


def sized(network: Checkpoint, members: int, most: float, family: Family | None = None) -> Family | None:
    """Returns a family that loses as few units as a limit requires.

    Returns None if members would lose all units, or if the network has two towers or norms its units together.

    Args:
        most: multiply-adds of the Hydra, as a multiple of the network's.
        family: Default: a trunk of half the layers, and a third of the heads gone above.
    """
    tower = network.spec.towers[0]
    if len(network.spec.towers) > 1 or tower.unit_norm:
        return None
    if family is None:
        trunk = tower.layers // 2
        heads = min(len(kept) for (kept,) in network.heads[tower.name][trunk:])
        family = Family(trunk, (tower.layers - trunk) * (heads // 3), 0)
    width = min(_widths(network, family.trunk))
    if members > width - 2:
        return None
    layers, costs = tower.layers - family.trunk, [cost(network, family, members, lost) for lost in (1, 2)]
    allowed = most * multiply_adds(network.spec, network.layout)
    units = max(ceil((1 + (costs[0] - allowed) / (costs[0] - costs[1])) * layers), layers)
    return replace(family, units=units) if units <= layers * (width - 1) else None


def _widths(network: Checkpoint, trunk: int) -> list[int]:
    """Returns how many MLP units each layer of the first tower has above a trunk."""
    return [len(kept) for (kept,) in every_unit(network.layout, network.spec, network.spec.towers[0].name)[trunk:]]


def cost(network: Checkpoint, family: Family, members: int, lost: int = 0) -> int:
    """Returns the multiply-adds of a family's members, each of which lacks so many units in each layer above."""
    spec, table, whole = network.spec, network.slots(), network.layout
    free = [head for head in member_heads(network.heads, 0) if head.layer >= family.trunk]
    gone = {*sorted(free, key=lambda head: (head.head, head.layer))[: family.heads]}
    thin = replace(whole, heads=without(network.heads, gone))
    apart = {name for name in table if gone and table[name].is_attention and (table[name].layer or 0) >= family.trunk}
    layers = [(tower.name, every_unit(whole, spec, tower.name)) for tower in spec.towers]
    above = [(name, i, kept) for name, rows in layers for i, (kept,) in enumerate(rows) if i >= family.trunk]
    lacking = [[Unit(name, i, unit) for name, i, kept in above for unit in kept[m : m + lost]] for m in range(members)]
    kept = [thin.without_units(spec, units) for units in lacking] + [whole] * family.network
    return multiply_adds(spec, side_by_side(spec, kept, frozenset(table) - apart))


def families(build: BuildOptions, network: Checkpoint, limits: Limits, tries: int) -> dict[str, list[Family]]:
    """Returns the families to try without training, by what their Hydras may cost: none for a single member.

    At each cost the depths of the trunk, with and without the network, decide how many MLP units go; those that leave
    about half of them come first, and few of these are refitted too. Others lose heads alone, and are refitted.

    Args:
        tries: how many at each cost lose units.
    """
    members, limit = build.choice.members, limits.budget_macs
    if members < 2 or build.data.train_data is not None:
        return {}
    depth = max(tower.layers for tower in network.spec.towers)
    depths = counts("trunks", build.choice.trunks or "", depth) or {depth * part // 6 for part in range(6)}
    trunks = sorted({trunk for trunk in depths if trunk < depth}, reverse=True)
    heads = {trunk: sum(head.layer >= trunk for head in member_heads(network.heads, 0)) // 3 for trunk in trunks}
    whole = multiply_adds(network.spec, network.layout)

    def far(family: Family) -> float:
        """Returns how far from a half the share of units that stay above the trunk is."""
        return abs(0.5 - family.units / sum(_widths(network, family.trunk)))

    shapes = [Family(trunk, 0, 0, network=beside) for beside in (False, True) for trunk in trunks]
    cuts = [replace(shape, heads=heads[shape.trunk], refit=True) for shape in shapes if heads[shape.trunk]]
    tried, below = dict[str, list[Family]](), 0.0
    for most in sorted({*(level for level in LEVELS if level < (limit or level + 1)), *([limit] if limit else [])}):
        sizes = (sized(network, members, most, shape) for shape in shapes)
        fitting = [family for family in sizes if family is not None and far(family) < FAR]
        rows = sorted(fitting, key=lambda family: (max(far(family), NEAR), -family.trunk))[:tries]
        if limits.budget_params is None:  # what is refitted is stored for each member
            rows += [replace(family, refit=True) for family in rows[: tries // 3]]
            costs = {cut: cost(network, cut, members) / whole for cut in cuts}
            rows += [cut for cut in cuts if below < costs[cut] <= most][: max(tries // 3, tries - len(rows))]
        below = most
        if rows:
            tried[f"{most:g}x"] = rows
    return tried
