"""Which heads `hydractl prune` takes out: by a circuit, by scores, at random, or by the size of their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from hydractl.errors import ArtifactError, OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.artifact import Circuit
    from hydractl.scoring.artifact import Scores

Method = Literal["circuit", "scores", "taylor", "taylor-oneshot", "random", "magnitude"]
Scope = Literal["global", "layer"]


class Choice(NamedTuple):
    """The options that say which heads go; None where one was not given."""

    method: Method
    budget: int
    scope: Scope | None
    pool: int | None
    seed: int | None
    share_below: int | None


class Artifacts(NamedTuple):
    """The circuit or scores to go by, and the circuit that members share below a layer."""

    own: Circuit | Scores | None
    common: Circuit | Scores | None

    def options(self) -> dict[str, object]:
        """What a manifest says of them: their kind, and all samples that they were chosen on."""
        from hydractl.data.seen import merged

        given = [artifact for artifact in self if artifact is not None]
        seen = [named for artifact in given for named in (artifact.search_data or {}).items()]
        return kind_of(self.own) | {"search_data": merged(seen, given[0].name) if seen else None}


def read_artifacts(method: Method, circuit: str | None, scores: str | None, common: str | None) -> Artifacts:
    """The artifacts that a method goes by, from their files.

    Raises:
        ArtifactError: one cannot be read.
    """
    own = _read(method, circuit, scores)
    return Artifacts(own, _read("circuit", common, None) if common else None)


def _read(method: Method, circuit: str | None, scores: str | None) -> Circuit | Scores | None:
    from hydractl.circuit.artifact import read_circuit
    from hydractl.scoring.artifact import read_scores

    if method == "circuit":
        return read_circuit(circuit or "circuit.json")
    return read_scores(scores or "scores.json") if method == "scores" else None


def kind_of(artifact: Circuit | Scores | None) -> dict[str, str | None]:
    """The objective of a circuit or the method of scores, under its name."""
    from hydractl.circuit.artifact import Circuit

    if artifact is None:
        return {}
    return {"objective": artifact.objective} if isinstance(artifact, Circuit) else {"scores": artifact.method}


def model_of(artifact: Circuit | Scores | None) -> str:
    """Where the model lies that an artifact was made from.

    Raises:
        OptionError: there is no artifact, or it names none.
    """
    if artifact is None:
        raise OptionError("MODEL is missing: name a Hugging Face folder or a file of ours")
    if artifact.model is None:
        raise OptionError(f"{artifact.name}: names no model: name MODEL on the command line")
    return artifact.model.reference


def choose_heads(checkpoint: Checkpoint, artifacts: Artifacts, choice: Choice) -> list[Head]:
    """The heads to drop.

    Raises:
        ArtifactError: an artifact is of another model.
        OptionError: a model of several members, or a budget that it does not have.
    """
    shared = _below(checkpoint, artifacts.common, choice)
    return shared + _choose(checkpoint, artifacts.own, choice._replace(budget=choice.budget - len(shared)))


def _below(checkpoint: Checkpoint, common: Circuit | Scores | None, choice: Choice) -> list[Head]:
    """What every member drops below `--share-below`: of the common circuit's first `--budget` heads, those there."""
    from hydractl.circuit.artifact import Circuit
    from hydractl.surgery.choose import by_ranking

    if not isinstance(common, Circuit) or choice.share_below is None:
        return []
    _require_same_model(checkpoint, common)
    return [head for head in by_ranking(common.ranking, choice.budget) if head.layer < choice.share_below]


def _choose(checkpoint: Checkpoint, artifact: Circuit | Scores | None, choice: Choice) -> list[Head]:
    from hydractl.checkpoint.heads import member_heads
    from hydractl.circuit.artifact import Circuit
    from hydractl.scoring.magnitude import magnitude_scores
    from hydractl.surgery.choose import at_random, by_ranking, by_scores

    if checkpoint.members > 1:
        raise OptionError(f"{checkpoint.name}: has {checkpoint.members} members: prune each before fusing them")
    if artifact is not None:
        _require_same_model(checkpoint, artifact)
    scope, start = choice.scope or "global", choice.share_below or 0
    if isinstance(artifact, Circuit):
        ranking = [head for head in artifact.ranking if head.layer >= start]
        return by_ranking(ranking, choice.budget, choice.pool, choice.seed or 0)
    if artifact is None and choice.method == "random":
        heads = [head for head in member_heads(checkpoint.heads, 0) if head.layer >= start]
        return at_random(heads, choice.budget, choice.seed or 0, scope)
    every = artifact.of_heads(checkpoint.heads, checkpoint.spec) if artifact else magnitude_scores(checkpoint)
    return by_scores({head: score for head, score in every.items() if head.layer >= start}, choice.budget, scope)


def _require_same_model(checkpoint: Checkpoint, artifact: Circuit | Scores) -> None:
    from hydractl.checkpoint.contents import identity

    if artifact.model is not None and (found := identity(checkpoint)) != artifact.model.sha256:
        raise ArtifactError(
            f"{artifact.name}: was made from another model (sha256 {artifact.model.sha256[:12]}...) than "
            f"{checkpoint.name} ({found[:12]}...): name that model, or make the artifact again"
        )
