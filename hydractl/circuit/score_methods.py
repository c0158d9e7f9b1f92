"""The ways to score heads; higher = keep, always.

A new one is a file of its own and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.data import ScoringData
    from hydractl.circuit.objective import Objective
    from hydractl.model.hydra import Hydra


@dataclass(frozen=True, eq=False)
class Scoring:
    """What heads are scored by; a method reads what its row names.

    Attributes:
        checkpoint: of one member.
        model: the checkpoint, loaded, and `data` to run it on: for methods that need data.
        objective: what ablation measures.
        normalize: whether gate scores are divided by the L2 norm of their layer.
        order: of OBA's Taylor term.
    """

    checkpoint: Checkpoint
    model: Hydra | None = None
    data: ScoringData | None = None
    objective: Objective = "avg"
    normalize: bool = False
    order: int = 2

    @property
    def network(self) -> tuple[Hydra, ScoringData]:
        """The model and what to run it on.

        Raises:
            OptionError: there is none.
        """
        if self.model is None or self.data is None:
            raise OptionError("this `method` needs `id_data`: labelled samples to run the model on")
        return self.model, self.data


@dataclass(frozen=True)
class Scored:
    """A score per head.

    Attributes:
        heads: the scores, higher = keep.
        details: other figures per head by name, where a method finds more than one; the scores are among them.
    """

    heads: Mapping[Head, float]
    details: Mapping[str, Mapping[Head, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class ScoreMethod:
    """A way to score the heads of a network of one member.

    Attributes:
        id_data: whether it runs the network on labelled ID samples; else the weights are enough.
        ood_data: whether it needs OOD samples as well.
        options: those that it goes by, of the ones that not all methods do.
        pictured: whether a picture also shows what some heads say of each sample.
        caution: what a user should know who prunes by these scores.
        each_tower: whether it goes over the samples once for each tower.
        per_tower: whether scores of two towers differ in scale, so that one ranking over both means little.
    """

    name: str
    help: str
    score: Callable[[Scoring], Scored]
    id_data: bool = True
    ood_data: bool = False
    options: frozenset[str] = frozenset()
    pictured: bool = False
    caution: str | None = None
    each_tower: bool = False
    per_tower: bool = False


def _taylor(asked: Scoring) -> Scored:
    from hydractl.checkpoint.heads import member_heads
    from hydractl.circuit.taylor import taylor_scores

    model, data = asked.network
    return Scored(taylor_scores(model, data, member_heads(model.heads, 0)))


def _oba(asked: Scoring) -> Scored:
    from hydractl.checkpoint.heads import member_heads
    from hydractl.circuit.oba import oba_scores

    model, data = asked.network
    return Scored(oba_scores(model, data, member_heads(model.heads, 0), asked.order))


def _gate(asked: Scoring) -> Scored:
    from hydractl.circuit.gate import gate_scores

    model, data = asked.network
    towers = [gate_scores(model, data, tower.name, asked.normalize) for tower in model.spec.towers]
    return Scored({head: score for scores in towers for head, score in scores.items()})


def _magnitude(asked: Scoring) -> Scored:
    from hydractl.circuit.magnitude import magnitude_scores

    return Scored(magnitude_scores(asked.checkpoint))


def _separation(asked: Scoring) -> Scored:
    from hydractl.circuit.separation import separations

    found = separations(*asked.network)
    details = {
        name: {head: getattr(distances, name) for head, distances in found.items()}
        for name in ("mahalanobis", "euclidean", "mean")
    }
    return Scored(details["mahalanobis"], details)


def _ablation(asked: Scoring) -> Scored:
    from hydractl.checkpoint.heads import member_heads
    from hydractl.circuit.ablation import ablation_scores

    model, data = asked.network
    return Scored(ablation_scores(model, data, member_heads(model.heads, 0), asked.objective))


SCORE_METHODS = (
    ScoreMethod(
        "taylor",
        "mean size of weight times gradient over the head's query, key and value weights",
        _taylor,
        # [HE] Prop. 1: such scores keep what lowers the loss on clean data, and lose more on noisy data than a circuit.
        caution="pruned by Taylor scores and not fine-tuned, a model loses accuracy and OOD detection: fine-tune it",
        per_tower=True,
    ),
    ScoreMethod(
        "gate",
        "mean size of the gradient of a gate on the head's output",
        _gate,
        options=frozenset({"normalize"}),
        each_tower=True,
    ),
    ScoreMethod(
        "oba",
        "sum of the saliencies of the head's weights, by products of the loss's Hessian with all weights",
        _oba,
        options=frozenset({"order"}),
        per_tower=True,
    ),
    ScoreMethod("magnitude", "L2 norm of the head's weights; needs no data", _magnitude, id_data=False),
    ScoreMethod(
        "separation",
        "distance between the head's mean outputs over ID and over OOD samples",
        _separation,
        ood_data=True,
        pictured=True,
    ),
    ScoreMethod(
        "ablation",
        "how much the objective falls if that head alone is turned off",
        _ablation,
        ood_data=True,
        options=frozenset({"objective"}),
    ),
)


def taking(option: str) -> tuple[str, ...]:
    """The methods that go by an option."""
    return tuple(method.name for method in SCORE_METHODS if option in method.options)
