"""The ways to choose the heads and MLP units that a member loses.

A new one is a row here: a dataclass whose fields are its own options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from hydractl import bounds
from hydractl.artifacts import Artifact
from hydractl.checkpoint.contents import Checkpoint, require_one_member
from hydractl.checkpoint.heads import TOWERS, Head, Unit, member_heads
from hydractl.checkpoint.layout import member_units
from hydractl.circuit.head_files import Circuit, CircuitLike, ScoresLike, ScoreTable, as_circuit, as_scores
from hydractl.circuit.objective import ScoringData
from hydractl.circuit.score_methods import SCORE_METHODS, random_scores
from hydractl.data.reading import OOD_SOURCE, SOURCE, DataLike, DataSetsLike
from hydractl.errors import ArtifactError, OptionError
from hydractl.options import Option, Without, option
from hydractl.run_options import ratio_option
from hydractl.surgery.choose import Scope, at_random, by_price, by_ranking, by_scores, by_taylor, dealt, units_leaving
from hydractl.surgery.provenance import require_same_model

if TYPE_CHECKING:
    from hydractl.model.hydra import Hydra

Budget = Any  #: a number, or a share as in 33%
CIRCUIT, SCORES = "circuit.json", "scores.json"
GRADIENTS = Option(
    "Labelled data for computing scores or searching a circuit; deviation needs no labels.",
    "Data",
    SOURCE,
    remembered=False,
)
SAMPLES: int | None = option(
    None,
    "Samples to draw from `id_data` by the seed. Default: all.",
    "Data",
    "N",
    within=(1, bounds.SAMPLES),
    rare=True,
)
SEARCHED = Option("OOD data for searching a circuit.", "Data", OOD_SOURCE, repeated=True, remembered=False)


@dataclass(frozen=True)
class Spread:
    """Says how a budget spreads over layers and towers."""

    scope: Scope | None = option(
        None,
        "Rank heads over all layers, or remove an even share of each layer. Default: global; layer for taylor.",
        rare=True,
    )
    towers: str | None = option(
        None,
        "Towers to prune. Default: every tower in the score file, or the first one for taylor.",
        metavar="vision,text",
        rare=True,
    )
    trunk: int | None = option(
        None,
        "Keep all heads below layer L, a trunk that members share.",
        metavar="L",
        within=(1, bounds.LAYERS),
        rare=True,
    )


@dataclass(frozen=True)
class UnitCut:
    """Says how many MLP units go, alone or in one budget with heads, and how several members divide those that stay.

    Raises:
        OptionError: members without units, or a budget of multiply-adds that is none.
    """

    units: Budget | None = option(
        None, "MLP units to remove, over the whole model: a number, or a share as in 33%.", metavar="N|N%"
    )
    budget_macs: float | None = ratio_option(
        "Multiply-adds to keep: remove heads and MLP units with the lowest scores per multiply-add.", "0.4x"
    )
    members: int | None = option(
        None,
        "Number of members to make; each draws its own heads and keeps different units.",
        metavar="M",
        within=(2, bounds.MEMBERS),
    )

    def __post_init__(self) -> None:
        if self.budget_macs is not None and self.units is not None:
            raise OptionError("`budget_macs` decides how many MLP units to drop: leave `units` out")
        if self.budget_macs is not None and self.budget_macs >= 1:
            raise OptionError(f"`budget_macs` {self.budget_macs:g}x: pruning only removes: choose a value below 1x")

    @property
    def heads_alone(self) -> bool:
        """True if no MLP units go."""
        return self.units is None and self.budget_macs is None


@dataclass(frozen=True, eq=False)
class Pruning:
    """The heads that a method chooses from."""

    checkpoint: Checkpoint  # of one member
    budget: int  # how many heads to drop
    scope: Scope = "global"
    towers: Sequence[str] = ()  # names of those to choose from; empty for all
    seed: int = 0
    # The checkpoint, loaded, and samples to run it on; for methods that take gradients.
    network: tuple[Hydra, ScoringData] | None = None
    first_layer: int = 0  # heads below are not chosen

    @property
    def candidates(self) -> list[Head]:
        """The heads, in candidate order."""
        heads = member_heads(self.checkpoint.heads, 0)
        return [h for h in heads if h.layer >= self.first_layer and (not self.towers or h.tower in self.towers)]

    @property
    def units(self) -> list[Unit]:
        """The MLP units, in candidate order."""
        units = member_units(self.checkpoint.layout, self.checkpoint.spec, 0)
        return [unit for unit in units if unit.layer >= self.first_layer and unit.tower in (self.towers or TOWERS)]

    def lowest(self, scores: Mapping[Head, float]) -> list[Head]:
        """Returns the candidates with the lowest scores."""
        return by_scores({h: scores[h] for h in self.candidates if h in scores}, self.budget, self.scope)


class Method(Protocol):
    """A way to choose heads; its fields are its options.

    Attributes:
        scope: how it spreads a budget by default.
        comparable: whether scores of heads and of MLP units are estimates of one quantity.
        id_data: labelled data to take gradients on, if it takes any; `samples` of them, all if None.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    scope: ClassVar[Scope] = "global"
    comparable: ClassVar[bool] = False
    spread: Spread
    id_data: DataLike | None = None
    samples: int | None = None

    @property
    def artifact(self) -> Artifact | None:
        """The circuit or the scores that it follows, read."""
        return None

    @property
    def origin(self) -> Mapping[str, str | None]:
        """The provenance of that artifact."""
        return {}

    @property
    def scored_by(self) -> str | None:
        """The name of the head scores that it goes by."""
        return None

    @property
    def seeded(self) -> bool:
        """True if it depends on the seed."""
        return self.samples is not None

    def heads(self, pruning: Pruning) -> list[Head]:
        """Returns the heads to drop, first dropped first."""

    def scored(self, pruning: Pruning) -> tuple[Mapping[Head, float], Mapping[Unit, float]]:
        """Returns scores of heads and of MLP units, higher = keep.

        Raises:
            OptionError: units have none.
        """
        raise OptionError(
            f"`units`: {self.name} scores heads only: choose `method` deviation, taylor, scores, magnitude or random"
        )


@dataclass(frozen=True)
class ByCircuit(Method):
    """Follows a circuit, from a file or searched on data."""

    name = "circuit"
    help = "the first heads of a circuit"

    circuit: CircuitLike = option(CIRCUIT, "The circuit to follow.", metavar="FILE|-", remembered=False)
    id_data: Annotated[DataLike | None, GRADIENTS] = None
    ood_data: Annotated[DataSetsLike | None, SEARCHED] = None
    pool: int | None = option(
        None,
        "Draw the heads at random from the first P of the circuit.",
        metavar="P",
        within=(1, bounds.HEADS),
        rare=True,
    )
    spread: Annotated[Spread, Without("scope", "towers")] = Spread()

    @cached_property
    def artifact(self) -> Circuit:
        if str(self.circuit) == CIRCUIT and not Path(CIRCUIT).exists():
            raise ArtifactError(f"{CIRCUIT} is missing: run extract-circuit first, or give `id_data` beside `model`")
        return as_circuit(self.circuit)

    @property
    def origin(self) -> Mapping[str, str | None]:
        return {"objective": self.artifact.objective}

    @property
    def seeded(self) -> bool:
        return self.pool is not None

    def heads(self, pruning: Pruning) -> list[Head]:
        above = [head for head in self.artifact.ranking if head.layer >= pruning.first_layer]
        pool = self.pool
        if pool is not None and pool <= len(self.artifact.ranking):  # those of the first that lie above the trunk
            pool = sum(head.layer >= pruning.first_layer for head in self.artifact.ranking[:pool])
        return by_ranking(above, pruning.budget, pool, pruning.seed)


@dataclass(frozen=True)
class ByScores(Method):
    """Follows the head scores of a file."""

    name = "scores"
    help = "those with the lowest scores of a file"

    scores: ScoresLike = option(SCORES, "The head scores to follow.", metavar="FILE|-", remembered=False)
    spread: Spread = Spread()

    @cached_property
    def artifact(self) -> ScoreTable:
        if str(self.scores) == SCORES and not Path(SCORES).exists():
            raise ArtifactError(f"{SCORES} is missing: run score-heads first, or choose `method` taylor with `id_data`")
        return as_scores(self.scores)

    @property
    def origin(self) -> Mapping[str, str | None]:
        return {"scores": self.artifact.method}

    @property
    def scored_by(self) -> str | None:
        return self.artifact.method

    def heads(self, pruning: Pruning) -> list[Head]:
        scores = self.artifact
        if missing := [tower for tower in pruning.towers if tower not in scores.towers]:
            raise OptionError(f"`towers`: {scores.name} has no scores of the {missing[0]} tower: name another")
        return pruning.lowest(scores.of_heads(pruning.checkpoint.heads))

    def scored(self, pruning: Pruning) -> tuple[Mapping[Head, float], Mapping[Unit, float]]:
        return self.artifact.of_heads(pruning.checkpoint.heads), self.artifact.of_units(pruning.units)


@dataclass(frozen=True)
class ByTaylor(Method):
    """Takes gradients anew for each layer."""

    name = "taylor"
    help = "layer by layer the lowest Taylor scores, with new gradients after each layer"
    scope = "layer"
    comparable = True
    scored_by = "taylor"

    spread: Spread = Spread()
    id_data: Annotated[DataLike, GRADIENTS] = field(kw_only=True)
    samples: int | None = SAMPLES

    def heads(self, pruning: Pruning) -> list[Head]:
        assert pruning.network is not None
        return by_taylor(*pruning.network, pruning.candidates, budget=pruning.budget, scope=pruning.scope)

    def scored(self, pruning: Pruning) -> tuple[Mapping[Head, float], Mapping[Unit, float]]:
        from hydractl.circuit.saliency import taylor_scores_of_activations

        assert pruning.network is not None
        return taylor_scores_of_activations(*pruning.network)


@dataclass(frozen=True)
class ByTaylorAtOnce(ByTaylor):
    """Takes gradients once."""

    name = "taylor-oneshot"
    help = "the lowest Taylor scores, computed once for all layers"

    def heads(self, pruning: Pruning) -> list[Head]:
        from hydractl.circuit.saliency import taylor_scores

        assert pruning.network is not None
        return pruning.lowest(taylor_scores(*pruning.network, pruning.candidates))


@dataclass(frozen=True)
class ByDeviation(Method):
    """Compares how much the hidden state varies with each head and unit."""

    name = "deviation"
    help = "those that vary the hidden state least; needs no labels"
    comparable = True
    scored_by = "deviation"

    spread: Spread = Spread()
    id_data: Annotated[DataLike, GRADIENTS] = field(kw_only=True)
    samples: int | None = SAMPLES

    def heads(self, pruning: Pruning) -> list[Head]:
        return pruning.lowest(self.scored(pruning)[0])

    def scored(self, pruning: Pruning) -> tuple[Mapping[Head, float], Mapping[Unit, float]]:
        from hydractl.circuit.saliency import deviations

        assert pruning.network is not None
        return deviations(*pruning.network)


@dataclass(frozen=True)
class AtRandom(Method):
    """Draws heads."""

    name = "random"
    help = "drawn by the seed"
    seeded = True

    spread: Annotated[Spread, Without("towers")] = Spread()

    def heads(self, pruning: Pruning) -> list[Head]:
        return at_random(pruning.candidates, pruning.budget, pruning.seed, pruning.scope)

    def scored(self, pruning: Pruning) -> tuple[Mapping[Head, float], Mapping[Unit, float]]:
        heads = random_scores(pruning.candidates, f"heads {pruning.seed}")
        return heads, random_scores(pruning.units, f"units {pruning.seed}")


@dataclass(frozen=True)
class ByMagnitude(Method):
    """Compares weights."""

    name = "magnitude"
    help = "those with the smallest weights"

    spread: Annotated[Spread, Without("towers")] = Spread()

    def heads(self, pruning: Pruning) -> list[Head]:
        from hydractl.circuit.saliency import magnitude_scores

        return pruning.lowest(magnitude_scores(pruning.checkpoint))

    def scored(self, pruning: Pruning) -> tuple[Mapping[Head, float], Mapping[Unit, float]]:
        from hydractl.circuit.saliency import magnitude_scores, magnitudes_of_units

        return magnitude_scores(pruning.checkpoint), magnitudes_of_units(pruning.checkpoint)


PRUNE_METHODS = (ByCircuit, ByScores, ByTaylor, ByTaylorAtOnce, ByDeviation, AtRandom, ByMagnitude)


def choose_heads(method: Method, pruning: Pruning) -> list[Head]:
    """Returns the heads to drop, none of the trunk.

    Raises:
        ArtifactError: a circuit or scores of another model, or of one with other towers.
        DataError: samples without labels.
        OptionError: a checkpoint of several members, or a budget of more heads than there are.
    """
    _require_fit(method, pruning.checkpoint)
    return method.heads(replace(pruning, first_layer=method.spread.trunk or 0))


def _require_fit(method: Method, checkpoint: Checkpoint) -> None:
    require_one_member(checkpoint)
    if method.artifact is not None:
        require_same_model(checkpoint, method.artifact.name, method.artifact.model)


def choose_cut(method: Method, pruning: Pruning, cut: UnitCut) -> tuple[list[Head], list[list[Unit]]]:
    """Returns the heads to drop, and the MLP units that each member drops, none of the trunk.

    Raises:
        ArtifactError, DataError: see `choose_heads`.
        OptionError: there too; the method has no scores of units, less can go than wanted, or members would be alike.
    """
    if cut.members is not None and cut.heads_alone and not method.seeded:
        raise OptionError(
            f"`members` {cut.members}: all would be the same by {method.name}: draw from a `pool` of a circuit, or "
            "give `units`"
        )
    above, checkpoint = replace(pruning, first_layer=method.spread.trunk or 0), pruning.checkpoint
    if cut.budget_macs is not None:
        _require_fit(method, checkpoint)
        heads, dropped, scores = _by_price(method, above, cut.budget_macs)
    else:
        heads = choose_heads(method, pruning)
        if cut.units is None:
            return heads, [[] for _ in range(cut.members or 1)]
        leaving, by_unit = units_leaving(cut.units, checkpoint), method.scored(above)[1]
        scores = {unit: by_unit[unit] for unit in above.units}
        dropped = by_scores(scores, leaving, pruning.scope)
    if cut.members is None:
        return heads, [dropped]
    return heads, dealt(scores, dropped, cut.members)


def _by_price(method: Method, pruning: Pruning, share: float) -> tuple[list[Head], list[Unit], dict[Unit, float]]:
    """Returns the heads and units to drop, and the scores of units, for a share of the multiply-adds."""
    if method.spread.scope == "layer":
        raise OptionError("`budget_macs` ranks all layers together: leave `scope` layer out")
    of_heads, of_units = method.scored(pruning)
    heads = {head: of_heads[head] for head in pruning.candidates}
    units = {unit: of_units[unit] for unit in pruning.units}
    return *by_price(pruning.checkpoint, heads, units, share, comparable=method.comparable), units


def notes(method: Method, pruning: Pruning) -> Iterator[str]:
    """Yields what a user should know of heads chosen by such scores."""
    row = next((row for row in SCORE_METHODS if row.name == method.scored_by), None)
    if row is None:
        return
    if row.per_tower and pruning.scope == "global" and len({head.tower for head in pruning.candidates}) > 1:
        yield f"{row.name} scores of two towers differ in scale: name one of them with `towers`, or `scope` layer"
    if row.caution:
        yield row.caution
