"""`hydractl prune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from hydractl.cli import console
from hydractl.cli.device import choose_dtype
from hydractl.cli.material import DataOptions
from hydractl.cli.options import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_TEMPLATE,
    BatchSize,
    Classes,
    Device,
    Dtype,
    Force,
    ImageColumn,
    Json,
    LabelColumn,
    MatchLabels,
    Output,
    Quiet,
    Seed,
    Template,
    TextColumn,
    Token,
)
from hydractl.cli.taylor import TaylorOptions, choose_by_taylor
from hydractl.errors import ArtifactError, OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.artifact import Circuit
    from hydractl.scoring.artifact import Scores

Method = Literal["circuit", "scores", "taylor", "random", "magnitude"]
Scope = Literal["global", "layer"]


# [HE] Prop. 1: such scores keep what lowers the loss on clean data, and lose more on noisy data than a circuit.
TAYLOR = "note: pruned by Taylor scores and not fine-tuned, a model loses accuracy and OOD detection: fine-tune it"


class Choice(NamedTuple):
    """The options that say which heads go; None where one was not given."""

    method: Method
    budget: int
    scope: Scope | None
    pool: int | None
    seed: int | None
    share_below: int | None


def prune(
    model: Annotated[
        str | None,
        typer.Argument(help="A Hugging Face folder or a file of ours; without it, the model the artifact names."),
    ] = None,
    *,
    method: Annotated[Method, typer.Option(help="How the heads to remove are chosen.")],
    budget: Annotated[int, typer.Option(min=0, help="Heads to remove, counted over the whole model.")],
    circuit: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="The circuit to follow; circuit.json unless given.")
    ] = None,
    scores: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="The head scores to follow; scores.json unless given.")
    ] = None,
    scope: Annotated[
        Scope | None,
        typer.Option(help="One ranking over all layers, or an even share of each; global unless given, taylor: layer."),
    ] = None,
    pool: Annotated[
        int | None, typer.Option(min=1, help="Draw the heads at random from the first P of the circuit.")
    ] = None,
    share_below: Annotated[
        int | None,
        typer.Option(metavar="L", min=1, help="Below layer L, drop what --common-circuit drops: a common trunk."),
    ] = None,
    common_circuit: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="The circuit that members share below --share-below.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="[NAME=]SOURCE[:SPLIT]", help="Labelled data that taylor takes gradients on.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Let taylor see so many of them, drawn by the seed; all unless given.")
    ] = None,
    towers: Annotated[
        str | None, typer.Option(metavar="vision,text", help="Towers taylor prunes; the first unless given.")
    ] = None,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    image_column: ImageColumn = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    match_labels: MatchLabels = "name",
    device: Device = "auto",
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    seed: Seed = 0,
    dtype: Dtype = None,
    output: Output = None,
    json: Json = False,
    quiet: Quiet = False,
    force: Force = False,
    token: Token = None,
) -> None:
    """Remove attention heads from a model.

    The file shrinks and the forward pass gets faster; nothing is masked, the heads are gone.

    Example: hydractl prune --method circuit --budget 48

    Writes one safetensors file and prints its path. Without --output its name says how it was made.
    """
    if (share_below is None) != (common_circuit is None):
        raise OptionError("--share-below and --common-circuit belong together: give both or neither")
    given: dict[str, object] = {"--circuit": circuit, "--scores": scores, "--scope": scope, "--pool": pool}
    _refuse_unused(method, given | {"--data": data, "--samples": samples, "--towers": towers})
    if method == "taylor" and share_below is not None:
        raise OptionError("--share-below has no effect with --method taylor: score-heads and --method scores take it")
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.families.open import read_checkpoint, write_checkpoint
    from hydractl.scoring.artifact import Scores
    from hydractl.surgery.dtype import with_dtype
    from hydractl.surgery.provenance import with_provenance
    from hydractl.surgery.prune import drop_heads

    artifact = _read_artifact(method, circuit, scores)
    common = _read_artifact("circuit", common_circuit, None) if common_circuit else None
    reference = model or _model_of(artifact)
    drawn = method == "random" or pool is not None or samples is not None
    choice = Choice(method, budget, scope, pool, seed if drawn else None, share_below)
    path = output or Path(_default_name(reference, artifact, choice))
    refuse_existing(path, force)
    checkpoint = read_checkpoint(reference)
    options = choice._asdict() | _artifact_options(artifact) | _search_data(artifact, common) | {"dtype": dtype}
    if method == "taylor":
        reading = DataOptions(None, classes, template, image_column, text_column, label_column, match_labels)
        taylor = TaylorOptions(data, samples, towers, batch_size, device, reading)
        dropped, how = choose_by_taylor(reference, budget, scope or "layer", seed, taylor, quiet)
        options |= how
    else:
        shared = _below(checkpoint, common, choice)
        dropped = shared + _choose(checkpoint, artifact, choice._replace(budget=budget - len(shared)))
    pruned = with_dtype(drop_heads(checkpoint, dropped), choose_dtype(dtype))
    pruned = with_provenance(pruned, "prune", [checkpoint], options)
    write_checkpoint(pruned, path, force)
    if method == "taylor" or (isinstance(artifact, Scores) and (artifact.method or "").startswith("taylor")):
        console.note(TAYLOR, quiet)
    if json:
        console.print_json({"output": str(path), "dropped": [head._asdict() for head in dropped]})
    else:
        print(path)


def _refuse_unused(method: Method, given: dict[str, object]) -> None:
    uses = {
        "circuit": {"--circuit", "--pool"},
        "scores": {"--scores", "--scope"},
        "taylor": {"--scope", "--data", "--samples", "--towers"},
        "random": {"--scope"},
        "magnitude": {"--scope"},
    }[method]
    for option, value in given.items():
        if value is not None and option not in uses:
            raise OptionError(f"{option} has no effect with --method {method}: leave it out or choose another method")


def _read_artifact(method: Method, circuit: str | None, scores: str | None) -> Circuit | Scores | None:
    from hydractl.circuit.artifact import read_circuit
    from hydractl.scoring.artifact import read_scores

    if method == "circuit":
        return read_circuit(circuit or "circuit.json")
    return read_scores(scores or "scores.json") if method == "scores" else None


def _model_of(artifact: Circuit | Scores | None) -> str:
    if artifact is None:
        raise OptionError("MODEL is missing: name a Hugging Face folder or a file of ours")
    if artifact.model is None:
        raise OptionError(f"{artifact.name}: names no model: name MODEL on the command line")
    return artifact.model.reference


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


def _artifact_options(artifact: Circuit | Scores | None) -> dict[str, object]:
    from hydractl.circuit.artifact import Circuit

    if artifact is None:
        return {}
    kind = {"objective": artifact.objective} if isinstance(artifact, Circuit) else {"scores": artifact.method}
    return {**kind, "search_data": artifact.search_data}


def _search_data(artifact: Circuit | Scores | None, common: Circuit | Scores | None) -> dict[str, object]:
    """What both circuits were chosen on: an evaluation must refuse all of it."""
    from hydractl.data.seen import merged

    named = [pair for source in (artifact, common) if source for pair in (source.search_data or {}).items()]
    return {"search_data": merged(named, artifact.name if artifact else "the common circuit") or None}


def _default_name(reference: str, artifact: Circuit | Scores | None, choice: Choice) -> str:
    """E.g. `vit-circuit-avg-48-pool100-seed0.safetensors`: model, method, objective, budget, pool and seed."""
    parts = [Path(reference).resolve().name.removesuffix(".safetensors"), choice.method]
    parts += [str(value) for name, value in _artifact_options(artifact).items() if name != "search_data" and value]
    parts += [choice.scope] if choice.scope else []
    parts.append(str(choice.budget))
    parts += [f"pool{choice.pool}"] if choice.pool is not None else []
    parts += [f"seed{choice.seed}"] if choice.seed is not None else []
    parts += [f"share{choice.share_below}"] if choice.share_below is not None else []
    return "-".join(parts) + ".safetensors"
