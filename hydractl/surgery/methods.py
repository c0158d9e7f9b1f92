"""The ways to choose which heads a member loses.

A new one is a file of its own and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hydractl.checkpoint.heads import Head, layer_budgets, member_heads
from hydractl.circuit.score_methods import SCORE_METHODS
from hydractl.errors import ArtifactError, OptionError
from hydractl.surgery.choose import Scope, at_random, by_ranking, by_scores

if TYPE_CHECKING:
    from hydractl.artifacts import ModelReference
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.circuit.artifact import Circuit
    from hydractl.circuit.data import ScoringData
    from hydractl.circuit.scores import Scores
    from hydractl.model.hydra import Hydra


@dataclass(frozen=True, eq=False)
class Pruning:
    """What heads are chosen by; of the optional parts each method needs those that its row names.

    Attributes:
        checkpoint: of one member.
        budget: how many heads leave.
        scope: one ranking over all layers, or an even share of each; None: as the method has it.
        first_layer: heads below are not chosen.
        towers: names of those to choose from; all of them where empty.
        circuit: for the method of that name, which draws from its first `pool` heads where that is set.
        scores: for the method of that name.
        model: the checkpoint, loaded, and `data` to run it on: for methods that need data.
    """

    checkpoint: Checkpoint
    budget: int
    scope: Scope | None = None
    first_layer: int = 0
    towers: Sequence[str] = ()
    seed: int = 0
    circuit: Circuit | None = None
    pool: int | None = None
    scores: Scores | None = None
    model: Hydra | None = None
    data: ScoringData | None = None

    @property
    def candidates(self) -> list[Head]:
        """The heads there are to choose from, in candidate order."""
        heads = member_heads(self.checkpoint.heads, 0)
        return [h for h in heads if h.layer >= self.first_layer and (not self.towers or h.tower in self.towers)]


@dataclass(frozen=True)
class PruneMethod:
    """A way to choose heads.

    Attributes:
        choose: the heads to drop, first dropped first.
        options: the names of those that it goes by, of the options that not all methods do.
        scope: what it does where no scope is asked for.
        draws: whether it is random, so that the seed tells members apart.
        scored_by: the head scores that it computes itself.
    """

    name: str
    help: str
    choose: Callable[[Pruning], list[Head]]
    options: frozenset[str]
    scope: Scope = "global"
    draws: bool = False
    scored_by: str | None = None

    @property
    def needs_data(self) -> bool:
        """Whether it runs the network on labelled samples."""
        return "data" in self.options


@dataclass(frozen=True, eq=False)
class Trunk:
    """What all members drop below a layer: those heads there that a common circuit drops first, or none."""

    below: int
    circuit: Circuit | None = None


def resolved(method: PruneMethod, asked: Pruning) -> Pruning:
    """With what the method does where nothing else is asked for: its scope, and its towers."""
    # Scores of two towers differ in scale, so by default the one that reads samples is pruned, or the only one.
    towers = asked.towers or ([asked.checkpoint.spec.towers[0].name] if method.needs_data else ())
    return replace(asked, scope=asked.scope or method.scope, towers=towers)


def choose_heads(method: PruneMethod, asked: Pruning, trunk: Trunk | None = None) -> list[Head]:
    """The heads to drop, those of the trunk first.

    Raises:
        ArtifactError: a circuit or scores of another model, or of one with other towers.
        DataError: samples without labels.
        OptionError: a checkpoint of several members, or more heads asked for than there are.
    """
    from hydractl.checkpoint.contents import require_one_member

    checkpoint = asked.checkpoint
    require_one_member(checkpoint)
    for artifact in (asked.circuit, asked.scores, trunk.circuit if trunk else None):
        if artifact is not None:
            require_same_model(checkpoint, artifact.name, artifact.model)
    asked = resolved(method, asked)
    if trunk is None:
        return method.choose(asked)
    first = by_ranking(trunk.circuit.ranking, asked.budget) if trunk.circuit else []
    shared = [head for head in first if head.layer < trunk.below]
    return shared + method.choose(replace(asked, budget=asked.budget - len(shared), first_layer=trunk.below))


def require_same_model(checkpoint: Checkpoint, artifact: str, model: ModelReference | None) -> None:
    """Raises ArtifactError where an artifact of some name speaks of another model; one written by hand names none."""
    from hydractl.checkpoint.contents import identity

    if model is not None and (found := identity(checkpoint)) != model.sha256:
        raise ArtifactError(
            f"{artifact}: was made from another model (sha256 {model.sha256[:12]}...) than "
            f"{checkpoint.name} ({found[:12]}...): name that model, or make the artifact again"
        )


def notes(method: PruneMethod, asked: Pruning) -> Iterator[str]:
    """What a user should know of heads chosen like this, `asked` with what `resolved` adds to it."""
    if method.needs_data and asked.scope == "layer":
        shares = set(layer_budgets(asked.candidates, asked.budget).values())
        if len(shares) > 1:
            yield f"{asked.budget} heads do not divide over the layers: {min(shares)} to {max(shares)} each"
    scored_by = method.scored_by or (asked.scores.method if asked.scores else None)
    row = next((row for row in SCORE_METHODS if row.name == scored_by), None)
    if row is None:
        return
    if row.per_tower and asked.scope == "global" and len({head.tower for head in asked.candidates}) > 1:
        yield f"{row.name} scores of two towers differ in scale: name one of them with `towers`, or `scope` layer"
    if row.caution:
        yield row.caution


def _by_circuit(asked: Pruning) -> list[Head]:
    if asked.circuit is None:
        raise OptionError("`method` circuit needs `circuit`: name one, or make it with hydractl extract-circuit")
    ranking = [head for head in asked.circuit.ranking if head.layer >= asked.first_layer]
    return by_ranking(ranking, asked.budget, asked.pool, asked.seed)


def _by_scores(asked: Pruning) -> list[Head]:
    if asked.scores is None:
        raise OptionError("`method` scores needs `scores`: name them, or make them with hydractl score-heads")
    if missing := [tower for tower in asked.towers if tower not in asked.scores.towers]:
        raise OptionError(f"`towers`: {asked.scores.name} scores no {missing[0]} tower: name another")
    return _lowest(asked, asked.scores.of_heads(asked.checkpoint.heads, asked.checkpoint.spec))


def _by_magnitude(asked: Pruning) -> list[Head]:
    from hydractl.circuit.magnitude import magnitude_scores

    return _lowest(asked, magnitude_scores(asked.checkpoint))


def _lowest(asked: Pruning, scores: Mapping[Head, float]) -> list[Head]:
    return by_scores({h: scores[h] for h in asked.candidates if h in scores}, asked.budget, asked.scope or "global")


def _at_random(asked: Pruning) -> list[Head]:
    return at_random(asked.candidates, asked.budget, asked.seed, asked.scope or "global")


def _by_taylor(asked: Pruning) -> list[Head]:
    from hydractl.surgery.layerwise import by_taylor

    model, data = _network(asked)
    return by_taylor(model, data, asked.candidates, asked.budget, asked.scope or "layer")


def _by_taylor_at_once(asked: Pruning) -> list[Head]:
    from hydractl.circuit.taylor import taylor_scores

    model, data = _network(asked)
    return _lowest(asked, taylor_scores(model, data, asked.candidates))


def _network(asked: Pruning) -> tuple[Hydra, ScoringData]:
    if asked.model is None or asked.data is None:
        raise OptionError("this `method` needs `data`: labelled samples to take gradients on")
    return asked.model, asked.data


#: What the methods that run the network on samples go by.
WITH_DATA = frozenset({"scope", "data", "samples", "towers"})

PRUNE_METHODS = (
    PruneMethod("circuit", "the first heads of a circuit", _by_circuit, frozenset({"circuit", "pool", "share_below"})),
    PruneMethod(
        "scores",
        "those with the lowest scores of a file",
        _by_scores,
        frozenset({"scores", "scope", "share_below", "towers"}),
    ),
    PruneMethod(
        "taylor",
        "layer by layer the lowest Taylor scores, with new gradients after each layer",
        _by_taylor,
        WITH_DATA,
        scope="layer",
        scored_by="taylor",
    ),
    PruneMethod(
        "taylor-oneshot",
        "the lowest Taylor scores, computed once for all layers",
        _by_taylor_at_once,
        WITH_DATA,
        scope="layer",
        scored_by="taylor",
    ),
    PruneMethod("random", "drawn by the seed", _at_random, frozenset({"scope", "share_below"}), draws=True),
    PruneMethod("magnitude", "those with the smallest weights", _by_magnitude, frozenset({"scope", "share_below"})),
)


def taking(option: str) -> tuple[str, ...]:
    """The methods that go by an option."""
    return tuple(method.name for method in PRUNE_METHODS if option in method.options)
