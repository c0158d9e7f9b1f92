"""The plan of a Hydra whose members lose MLP units too, above a trunk: for few multiply-adds and training data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from hydractl.checkpoint.arithmetic import plain_multiply_adds
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, Unit, without
from hydractl.checkpoint.layout import side_by_side
from hydractl.circuit.score_methods import Taylor
from hydractl.errors import OptionError
from hydractl.inputs.members import Limits
from hydractl.options import declared, flat
from hydractl.pipeline.build_options import BuildOptions
from hydractl.pipeline.stages import Given, Made, Stage
from hydractl.steps.fuse import Fuse
from hydractl.steps.prune import Prune
from hydractl.steps.score_heads import ScoreHeads
from hydractl.surgery.prune_methods import AtRandom, ByScores, Spread, UnitCut

if TYPE_CHECKING:
    from hydractl.data.reading import Reading

MOST = 2.0  # from this multiple of the network's multiply-adds on, members need not lose units
SAMPLES = 1000  # that units are scored on
#: Options of a build that choose among candidates, of which this plan has none.
CHOOSING = ("objective", "budgets", "draws", "random", "trunks", "max_accuracy_drop", "search", "search_samples")


@dataclass(frozen=True)
class Thinning:
    """Heads and units that each member loses above a trunk."""

    trunk: int  # the layers below, which stay whole
    heads: int  # that it loses; members draw them
    units: int  # that it loses; members share the best half of the others and divide the rest


def thinning(build: BuildOptions, network: Checkpoint, limits: Limits) -> Thinning | None:
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
        raise OptionError(f"`units` yes: no members of this network fit {most:g}x: give more, or leave `units` out")
    return thinned


def sized(network: Checkpoint, members: int, most: float) -> Thinning | None:
    """Returns a trunk of half the layers, a third of the heads above it, and as few units as a limit requires.

    Returns None if members would lose all units, or if the network has two towers.

    Args:
        most: multiply-adds of the Hydra, as a multiple of the network's.
    """
    spec, tower = network.spec, network.spec.towers[0]
    trunk = tower.layers // 2
    layers, dropped = range(trunk, tower.layers), tower.heads // 3
    if len(spec.towers) > 1 or members > tower.mlp_width - 2:
        return None
    gone = {Head(tower.name, layer, head) for layer in layers for head in range(dropped)}
    thin = replace(network.layout, heads=without(network.heads, gone))
    table = network.slots()
    apart = {name for name in table if dropped and table[name].is_attention and (table[name].layer or 0) >= trunk}

    def cost(lost: int) -> int:
        """Returns the multiply-adds of members each of which lacks so many units in each layer above the trunk."""
        lost_units = [[Unit(tower.name, i, m + n) for i in layers for n in range(lost)] for m in range(members)]
        kept = [thin.without_units(spec, units) for units in lost_units]
        return plain_multiply_adds(spec, side_by_side(spec, kept, frozenset(table) - apart))

    allowed, slope = most * plain_multiply_adds(spec, network.layout), cost(1) - cost(2)
    units = max(ceil((1 + (cost(1) - allowed) / slope) * len(layers)), len(layers))
    fewest = len(layers) * (tower.mlp_width - 1)
    return Thinning(trunk, len(gone), units) if units <= fewest else None


def thinned_members(
    build: BuildOptions, thin: Thinning, id_data: Given, reading: Reading, *, network: Given, fused: Made
) -> list[Stage]:
    """Returns the commands that make members without some heads and units, and fuse them.

    Args:
        id_data: labelled, to score units on.
    """
    scores, numbers = Made("work/units.json"), range(build.choice.members)
    thinned, members = ([Made(f"work/{name}{m}.safetensors") for m in numbers] for name in ("units", "member"))
    limit, compute = min(reading.limit or SAMPLES, SAMPLES), replace(build.compute, dtype=None)
    score = ScoreHeads(
        model=network,
        method=Taylor(id_data, units=True),
        reading=replace(reading, limit=limit),
        compute=compute,
        output=scores,
    )
    units = Prune(
        network,
        method=ByScores(scores, Spread("layer", trunk=thin.trunk)),
        unit_cut=UnitCut(str(thin.units), members=build.choice.members),
        output=Made("work/units{member}.safetensors"),
    )
    spread = Spread("layer", trunk=thin.trunk)
    heads = [
        Prune(thinned[m], str(thin.heads), AtRandom(spread), seed=build.seed + m, output=members[m]) for m in numbers
    ]
    return [
        Stage(score, (scores,)),
        Stage(units, tuple(thinned)),
        *(Stage(prune, (member,)) for prune, member in zip(heads, members, strict=True)),
        Stage(Fuse(members, output=fused), (fused,)),
    ]
