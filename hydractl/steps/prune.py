"""Taking attention heads out of a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl import bounds
from hydractl.data.like import DataLike
from hydractl.data.reading import Reading
from hydractl.errors import OptionError
from hydractl.steps.inputs import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_TEMPLATE,
    BatchSize,
    CircuitLike,
    Classes,
    Device,
    Dtype,
    Force,
    ImageColumn,
    LabelColumn,
    MatchLabels,
    ModelLike,
    ScoresLike,
    Seed,
    Template,
    TextColumn,
    as_circuit,
    as_scores,
)
from hydractl.steps.material import SOURCE, drawn_data
from hydractl.steps.options import Option, step
from hydractl.steps.pruned import Pruned, PrunedMember, output_file, prune_members
from hydractl.steps.selected import SelectionLike, follow
from hydractl.surgery.choose import Scope, heads_leaving
from hydractl.surgery.methods import PRUNE_METHODS, Pruning, Trunk, choose_heads, notes, resolved, taking
from hydractl.watch import LOG, Watcher

METHODS = PRUNE_METHODS

if TYPE_CHECKING:
    from hydractl.circuit.artifact import Circuit
    from hydractl.circuit.scores import Scores

    MethodName = str
    Budget = int | str
else:
    Budget = Any
    MethodName = Literal[tuple(method.name for method in METHODS)]


@step
def prune(
    model: Annotated[
        ModelLike | None,
        Option(
            "A file of ours, a folder, or a hub id; without it, the model that the artifact names.",
            heading="Model",
            metavar="MODEL",
            positional=True,
        ),
    ] = None,
    *,
    method: Annotated[
        MethodName | None,
        Option(f"How heads are chosen: {'; '.join(f'{method.name}: {method.help}' for method in METHODS)}."),
    ] = None,
    budget: Annotated[
        Budget | None, Option("Heads to remove, over the whole model: a number, or a share as in 33%.", metavar="N|N%")
    ] = None,
    selection: Annotated[
        SelectionLike | None,
        Option(
            "Make every member that hydractl select has chosen, in place of `method` and `budget`.", metavar="FILE|-"
        ),
    ] = None,
    circuit: Annotated[
        CircuitLike | None,
        Option(
            "The circuit to follow; circuit.json unless given.",
            metavar="FILE|-",
            goes_with={"method": taking("circuit")},
        ),
    ] = None,
    pool: Annotated[
        int | None,
        Option(
            "Draw the heads at random from the first P of the circuit.",
            metavar="P",
            minimum=1,
            maximum=bounds.HEADS,
            goes_with={"method": taking("pool")},
        ),
    ] = None,
    scores: Annotated[
        ScoresLike | None,
        Option(
            "The head scores to follow; scores.json unless given.",
            metavar="FILE|-",
            goes_with={"method": taking("scores")},
        ),
    ] = None,
    scope: Annotated[
        Scope | None,
        Option(
            "One ranking over all layers, or an even share of each; global unless given, taylor: layer.",
            goes_with={"method": taking("scope")},
        ),
    ] = None,
    share_below: Annotated[
        int | None,
        Option(
            "Keep all heads below layer L, a trunk that members have in common.",
            metavar="L",
            minimum=1,
            maximum=bounds.LAYERS,
            goes_with={"method": taking("share_below")},
        ),
    ] = None,
    common_circuit: Annotated[
        CircuitLike | None,
        Option("A circuit that says what all members drop below `share_below`.", metavar="FILE|-"),
    ] = None,
    towers: Annotated[
        str | None,
        Option(
            "Towers to prune by scores; of a file's all, for Taylor scores the first, unless given.",
            metavar="vision,text",
            goes_with={"method": taking("towers")},
        ),
    ] = None,
    seed: Seed = 0,
    data: Annotated[
        DataLike | None,
        Option(
            "Labelled data that Taylor scores take gradients on.",
            heading="Data",
            metavar=SOURCE,
            goes_with={"method": taking("data")},
        ),
    ] = None,
    samples: Annotated[
        int | None,
        Option(
            "Use so many of them, drawn by the seed; all unless given.",
            heading="Data",
            metavar="N",
            minimum=1,
            maximum=bounds.SAMPLES,
            goes_with={"method": taking("samples")},
        ),
    ] = None,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    image_column: ImageColumn = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    match_labels: MatchLabels = "name",
    device: Device = "auto",
    dtype: Dtype = None,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    output: Annotated[
        str | Path | None,
        Option(
            "File to write, or a folder: there its name says how it was made. For several members a folder, or a name "
            "with {member}.",
            heading="Output",
            flags=("--output", "-o"),
        ),
    ] = None,
    force: Force = False,
    watch: Watcher = LOG,
) -> Pruned:
    """Remove attention heads from a model.

    The file shrinks and the forward pass gets faster; nothing is masked, the heads are gone.

    Example: hydractl prune --method circuit --budget 48

    Writes one safetensors file, with `selection` one for each member, and prints its path.

    >>> member = hydractl.prune("vit", method="random", budget=3, seed=1)
    >>> len(member.dropped)
    3

    Raises:
        ArtifactError: a circuit or scores that cannot be read, or of another model.
        CheckpointError: the model cannot be read.
        DataError: data cannot be read, or their labels are not the model's.
        OptionError: a model of several members, a budget that it does not have, or options that make no sense.
        OutputError: the output exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.circuit.restriction import require_towers
    from hydractl.families.open import write_checkpoint
    from hydractl.steps.compute import choose_dtype, dtype_name
    from hydractl.steps.inputs import as_checkpoint
    from hydractl.surgery.degenerate import headless
    from hydractl.surgery.dtype import with_dtype
    from hydractl.surgery.provenance import samples_behind, with_provenance
    from hydractl.surgery.prune import drop_heads

    trunk = _trunk(share_below, common_circuit)
    if selection is not None:
        if method is not None or budget is not None:
            raise OptionError("`selection` says which heads go: leave `method` and `budget` out")
        return prune_members(follow(selection, [] if model is None else [model]), output, dtype, force)
    reading = Reading(None, classes, template, image_column, text_column, label_column, match_labels)
    if method is None or budget is None:
        missing = "`method`" if method is None else "`budget`"
        raise OptionError(f"{missing} is missing: `method` and `budget` say which heads go, or a `selection` does")
    chosen = next(row for row in PRUNE_METHODS if row.name == method)
    if chosen.needs_data and data is None:
        raise OptionError(f"`method` {method} needs `data`: labelled samples to take gradients on")
    followed = as_circuit(circuit or "circuit.json") if "circuit" in chosen.options else None
    scored = as_scores(scores or "scores.json") if "scores" in chosen.options else None
    checkpoint = as_checkpoint(_model_of(followed or scored) if model is None else model)
    leaving = heads_leaving(budget, checkpoint)
    drawn = seed if chosen.draws or pool is not None or samples is not None else None
    options: dict[str, Any] = {
        "method": method,
        "budget": leaving,
        "scope": scope,
        "towers": towers,
        "pool": pool,
        "seed": drawn,
        "share_below": share_below,
        **({"objective": followed.objective} if followed else {"scores": scored.method} if scored else {}),
        "search_data": samples_behind([followed, scored, trunk.circuit if trunk else None]),
        "dtype": dtype_name(dtype),
    }
    path = output_file(output, checkpoint, options, force)
    names = require_towers(towers, checkpoint.heads) if towers else ()
    asked = Pruning(checkpoint, leaving, scope, towers=names, seed=seed, circuit=followed, pool=pool, scores=scored)
    if data is not None:
        network, scoring, used = drawn_data(checkpoint, data, samples, seed, reading, device, batch_size, watch)
        asked = replace(asked, model=network, data=scoring)
        options |= used
    asked = resolved(chosen, asked)
    dropped = choose_heads(chosen, asked, trunk)
    pruned = with_dtype(drop_heads(checkpoint, dropped), choose_dtype(dtype))
    pruned = with_provenance(pruned, "prune", [checkpoint], options)
    if path is not None:
        write_checkpoint(pruned, path, force)
    for note in (*notes(chosen, asked), *headless(pruned)):
        watch.note(f"note: {note}")
    return Pruned((PrunedMember(pruned, dropped, path),))


def _trunk(share_below: int | None, common_circuit: CircuitLike | None) -> Trunk | None:
    if share_below is not None:
        return Trunk(share_below, None if common_circuit is None else as_circuit(common_circuit))
    if common_circuit is not None:
        raise OptionError("`common_circuit` has no effect without `share_below`: leave it out")
    return None


def _model_of(artifact: Circuit | Scores | None) -> str:
    """Where the model lies that an artifact was made from."""
    if artifact is None:
        raise OptionError("`model` is missing: name a Hugging Face folder or a file of ours")
    if artifact.model is None:
        raise OptionError(f"{artifact.name}: names no model: name `model`")
    return artifact.model.reference
