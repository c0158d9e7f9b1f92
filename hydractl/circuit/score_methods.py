"""The ways to score heads, and MLP units beside them; higher = keep, always.

A new one is a row here, a dataclass whose fields are its own options, and a function for what it computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol

from hydractl.bounds import SEED
from hydractl.data.reading import SOURCE, DataLike
from hydractl.options import Option, option

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.checkpoint.heads import Head, Piece, Unit
    from hydractl.circuit.objective import ScoringData
    from hydractl.model.hydra import Hydra
    from hydractl.tasks.task import Task

IdData = Annotated[DataLike, Option("Labelled in-distribution data.", "Data", SOURCE, remembered=False)]
OOD = Option("Out-of-distribution data.", "Data", SOURCE, remembered=False)
Units = Annotated[bool, Option("Score the units of the MLPs too.", remembered=False)]


@dataclass(frozen=True, eq=False)
class Scoring:
    """The network whose heads are scored."""

    checkpoint: Checkpoint  # of one member
    # The same, ready to run, and samples to run it on; None for methods without data.
    loaded: tuple[Hydra, ScoringData] | None = None

    @property
    def network(self) -> tuple[Hydra, ScoringData]:
        """The loaded network and its samples."""
        assert self.loaded is not None
        return self.loaded


@dataclass(frozen=True)
class Scored:
    """A score per head."""

    heads: Mapping[Head, float]  # the scores, higher = keep
    # Other figures per head by name, the scores among them; empty if there is only one.
    details: Mapping[str, Mapping[Head, float]] = field(default_factory=dict)
    units: Mapping[Unit, float] = field(default_factory=dict)  # those of MLP units; empty if units are not scored


class ScoreMethod(Protocol):
    """A way to score the heads of a network of one member; its fields are its options."""

    name: ClassVar[str]
    help: ClassVar[str]
    pictured: ClassVar[bool] = False  # whether a picture also shows the outputs of some heads for each sample
    caution: ClassVar[str | None] = None  # a warning for users who prune by these scores
    # Whether scores of two towers differ in scale, so that one ranking over both means little.
    per_tower: ClassVar[bool] = False
    units: bool = False  # whether it scores MLP units too
    by_loss: ClassVar[bool] = False  # whether nothing but the task's loss reads labels

    def for_task(self, task: Task) -> ScoreMethod:
        """Returns the same with what depends on the task settled; raises OptionError for what the task has not."""
        return self

    def score(self, scoring: Scoring) -> Scored:
        """Returns a score for each head."""


def random_scores(pieces: Sequence[Piece], seed: str) -> dict[Piece, float]:
    """Returns uniform draws from 0 to 1."""
    random = Random(seed)
    return {piece: random.random() for piece in pieces}


@dataclass(frozen=True)
class Taylor(ScoreMethod):
    """Scores by the loss's gradient of the weights."""

    name = "taylor"
    help = "mean size of weight times gradient over the head's query, key and value weights"
    by_loss = True
    # [HE] Prop. 1: such scores keep what lowers the loss on clean data, and lose more on noisy data than a circuit.
    caution = "pruned by Taylor scores and not fine-tuned, a model loses accuracy and OOD detection: fine-tune it"
    per_tower = True

    id_data: IdData
    units: Units = False

    def score(self, scoring: Scoring) -> Scored:
        from hydractl.circuit.saliency import taylor_scores, taylor_scores_of_activations

        units = taylor_scores_of_activations(*scoring.network)[1] if self.units else {}
        return Scored(taylor_scores(*scoring.network), units=units)


@dataclass(frozen=True)
class Deviation(ScoreMethod):
    """Scores by how much what a head says varies."""

    name = "deviation"
    help = "deviation of what the head adds to the hidden state; needs no labels"
    by_loss = True

    id_data: IdData
    units: Units = False

    def score(self, scoring: Scoring) -> Scored:
        from hydractl.circuit.saliency import deviations

        heads, units = deviations(*scoring.network)
        return Scored(heads, units=units if self.units else {})


@dataclass(frozen=True)
class Magnitude(ScoreMethod):
    """Scores by the size of the weights."""

    name = "magnitude"
    help = "L2 norm of the head's weights; needs no data"

    units: Units = False

    def score(self, scoring: Scoring) -> Scored:
        from hydractl.circuit.saliency import magnitude_scores, magnitudes_of_units

        units = magnitudes_of_units(scoring.checkpoint) if self.units else {}
        return Scored(magnitude_scores(scoring.checkpoint), units=units)


@dataclass(frozen=True)
class Drawn(ScoreMethod):
    """Draws scores, a baseline for the others."""

    name = "random"
    help = "drawn by the seed; needs no data"

    seed: int = option(0, "Seed of the draws.", "Compute", within=(0, SEED))
    units: Units = False

    def score(self, scoring: Scoring) -> Scored:
        from hydractl.checkpoint.heads import member_heads
        from hydractl.checkpoint.layout import member_units

        network = scoring.checkpoint
        pieces = member_units(network.layout, network.spec, 0) if self.units else []
        units = random_scores(pieces, f"units {self.seed}")
        return Scored(random_scores(member_heads(network.heads, 0), f"heads {self.seed}"), units=units)


@dataclass(frozen=True)
class Separating(ScoreMethod):
    """Scores by how far apart ID and OOD samples lie."""

    name = "separation"
    help = "distance between the head's mean outputs over ID and over OOD samples"
    by_loss = True
    pictured = True

    id_data: IdData
    ood_data: Annotated[DataLike, OOD]

    def score(self, scoring: Scoring) -> Scored:
        from hydractl.circuit.separation import separations

        by_head = separations(*scoring.network)
        details = {
            name: {head: getattr(distances, name) for head, distances in by_head.items()}
            for name in ("mahalanobis", "euclidean", "mean")
        }
        return Scored(details["mahalanobis"], details)


@dataclass(frozen=True)
class Ablation(ScoreMethod):
    """Scores by the first step of a circuit search."""

    name = "ablation"
    help = "how much the objective falls if that head alone is turned off"

    id_data: IdData
    ood_data: Annotated[DataLike | None, OOD] = None
    objective: Literal["acc", "ood", "avg"] | None = option(
        None, "Measure ID accuracy, AUROC, or their mean. Default: avg; acc where answers have no confidence."
    )

    def for_task(self, task: Task) -> Ablation:
        from hydractl.circuit.objective import settle_objectives

        (objective,) = settle_objectives(self.objective, task, [self.ood_data])
        return replace(self, objective=objective)

    def score(self, scoring: Scoring) -> Scored:
        from hydractl.circuit.search import ablation_scores

        assert self.objective is not None
        return Scored(ablation_scores(*scoring.network, self.objective))


SCORE_METHODS = (Taylor, Deviation, Magnitude, Drawn, Separating, Ablation)
