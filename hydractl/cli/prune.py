"""`hydractl prune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    DtypeName,
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
from hydractl.cli.pruning import Artifacts, Choice, Method, Scope, choose_heads, kind_of, model_of, read_artifacts
from hydractl.cli.taylor import TaylorOptions, choose_by_taylor
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.heads import Head

# [HE] Prop. 1: such scores keep what lowers the loss on clean data, and lose more on noisy data than a circuit.
TAYLOR = "note: pruned by Taylor scores and not fine-tuned, a model loses accuracy and OOD detection: fine-tune it"
#: What each method goes by, of the options that not all do.
USED: dict[Method, frozenset[str]] = {
    "circuit": frozenset({"--circuit", "--pool", "--share-below"}),
    "scores": frozenset({"--scores", "--scope", "--share-below"}),
    "taylor": frozenset({"--scope", "--data", "--samples", "--towers"}),
    "taylor-oneshot": frozenset({"--scope", "--data", "--samples", "--towers"}),
    "random": frozenset({"--scope", "--share-below"}),
    "magnitude": frozenset({"--scope", "--share-below"}),
}

Model = Annotated[
    str | None,
    typer.Argument(help="A Hugging Face folder or a file of ours; without it, the model the artifact names."),
]
How = Annotated[
    Method,
    typer.Option(help="How heads are chosen; taylor scores anew after each layer, taylor-oneshot all at once."),
]
Budget = Annotated[int, typer.Option(min=0, help="Heads to remove, counted over the whole model.")]
CircuitFile = Annotated[
    str | None, typer.Option(metavar="FILE|-", help="The circuit to follow; circuit.json unless given.")
]
ScoresFile = Annotated[
    str | None, typer.Option(metavar="FILE|-", help="The head scores to follow; scores.json unless given.")
]
Share = Annotated[
    Scope | None,
    typer.Option(help="One ranking over all layers, or an even share of each; global unless given, taylor: layer."),
]
Pool = Annotated[int | None, typer.Option(min=1, help="Draw the heads at random from the first P of the circuit.")]
ShareBelow = Annotated[
    int | None,
    typer.Option(metavar="L", min=1, help="Below layer L, drop what --common-circuit drops: a common trunk."),
]
CommonCircuit = Annotated[
    str | None, typer.Option(metavar="FILE|-", help="The circuit that members share below --share-below.")
]
Data = Annotated[
    str | None, typer.Option(metavar="[NAME=]SOURCE[:SPLIT]", help="Labelled data that taylor takes gradients on.")
]
Drawn = Annotated[
    int | None, typer.Option(min=1, help="Let taylor see so many of them, drawn by the seed; all unless given.")
]
Towers = Annotated[
    str | None, typer.Option(metavar="vision,text", help="Towers taylor prunes; the first unless given.")
]


def prune(
    model: Model = None,
    *,
    method: How,
    budget: Budget,
    circuit: CircuitFile = None,
    scores: ScoresFile = None,
    scope: Share = None,
    pool: Pool = None,
    share_below: ShareBelow = None,
    common_circuit: CommonCircuit = None,
    data: Data = None,
    samples: Drawn = None,
    towers: Towers = None,
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
    given = {"--circuit": circuit, "--scores": scores, "--scope": scope, "--pool": pool, "--share-below": share_below}
    _refuse_unused(method, given | {"--data": data, "--samples": samples, "--towers": towers})
    artifacts = read_artifacts(method, circuit, scores, common_circuit)
    reference = model or model_of(artifacts.own)
    drawn = method == "random" or pool is not None or samples is not None
    choice = Choice(method, budget, scope, pool, seed if drawn else None, share_below)
    path = output or Path(_default_name(reference, artifacts, choice))
    reading = DataOptions(None, classes, template, image_column, text_column, label_column, match_labels)
    taylor = TaylorOptions(data, samples, towers, batch_size, device, reading)
    dropped = _write_pruned(path, reference, artifacts, choice, taylor, dtype, quiet, force)
    if "taylor" in (method.removesuffix("-oneshot"), kind_of(artifacts.own).get("scores")):
        console.note(TAYLOR, quiet)
    if json:
        console.print_json({"output": str(path), "dropped": [head._asdict() for head in dropped]})
    else:
        print(path)


def _refuse_unused(method: Method, given: dict[str, Any]) -> None:
    for option, value in given.items():
        if value is not None and option not in USED[method]:
            raise OptionError(f"{option} has no effect with --method {method}: leave it out or choose another method")


def _write_pruned(
    path: Path,
    reference: str,
    artifacts: Artifacts,
    choice: Choice,
    taylor: TaylorOptions,
    dtype: DtypeName | None,
    quiet: bool,
    force: bool,
) -> list[Head]:
    """Writes the pruned model; returns the heads it lost."""
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.families.open import read_checkpoint, write_checkpoint
    from hydractl.surgery.dtype import with_dtype
    from hydractl.surgery.provenance import with_provenance
    from hydractl.surgery.prune import drop_heads

    refuse_existing(path, force)
    checkpoint = read_checkpoint(reference)
    options = choice._asdict() | artifacts.options() | {"dtype": dtype}
    if choice.method in ("taylor", "taylor-oneshot"):
        dropped, how = choose_by_taylor(reference, choice, taylor, quiet)
        options |= how
    else:
        dropped = choose_heads(checkpoint, artifacts, choice)
    pruned = with_dtype(drop_heads(checkpoint, dropped), choose_dtype(dtype))
    write_checkpoint(with_provenance(pruned, "prune", [checkpoint], options), path, force)
    return dropped


def _default_name(reference: str, artifacts: Artifacts, choice: Choice) -> str:
    """E.g. `vit-circuit-avg-48-pool100-seed0.safetensors`: model, method, objective, budget, pool and seed."""
    parts = [Path(reference).resolve().name.removesuffix(".safetensors"), choice.method]
    parts += [value for value in kind_of(artifacts.own).values() if value]
    parts += [choice.scope] if choice.scope else []
    parts.append(str(choice.budget))
    parts += [f"pool{choice.pool}"] if choice.pool is not None else []
    parts += [f"seed{choice.seed}"] if choice.seed is not None else []
    parts += [f"share{choice.share_below}"] if choice.share_below is not None else []
    return "-".join(parts) + ".safetensors"
