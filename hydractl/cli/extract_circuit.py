"""`hydractl extract-circuit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from hydractl.cli import console
from hydractl.cli.material import DataOptions, open_material
from hydractl.cli.options import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_TEMPLATE,
    BatchSize,
    Classes,
    Device,
    Dtype,
    Force,
    ImageColumn,
    LabelColumn,
    Limit,
    MatchLabels,
    Quiet,
    Template,
    TextColumn,
    Token,
)
from hydractl.cli.search import search_and_write
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.ranking import Search
    from hydractl.model.hydra import Hydra
    from hydractl.scoring.objective import Objective

ALL = "all"
PLACEHOLDER = "{objective}"
SHORTLIST = 16

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face folder or a file of ours.")]
IdData = Annotated[str, typer.Option(metavar="[NAME=]SOURCE[:SPLIT]", help="Labelled in-distribution data.")]
OodData = Annotated[str, typer.Option(metavar="[NAME=]SOURCE[:SPLIT]", help="Out-of-distribution data.")]
Budget = Annotated[str, typer.Option(metavar="N|all", help="Heads to rank, over the whole model.")]
Objectives = Annotated[
    str, typer.Option(metavar="acc|ood|avg[,...]", help="What to keep: ID accuracy, AUROC of MSP, or their mean.")
]
Towers = Annotated[str | None, typer.Option(metavar="vision,text", help="Towers to take heads from; all unless given.")]
Layers = Annotated[str | None, typer.Option(metavar="A-B", help="Layers to take heads from, both included, from 0 on.")]
TieBreak = Annotated[
    Literal["order", "nll"], typer.Option(help="Among equals the first head, or the one with the lowest ID loss.")
]
HeadsPerStep = Annotated[
    int, typer.Option(min=1, help="Heads to drop at once: faster, and no longer the paper's search.")
]
How = Annotated[
    Literal["exact", "screened", "shortlist", "headmap"],
    typer.Option(
        help="exact: the paper's search. screened: half precision, and what comes near the best again in float32. "
        "shortlist: only candidates with a low gradient. headmap: layer by layer, each giving up its share at once."
    ),
]
Shortlist = Annotated[
    int | None, typer.Option(metavar="K", min=1, help=f"Candidates on a shortlist; {SHORTLIST} unless given.")
]
CircuitOutput = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE|-", help="{objective} in it stands for each objective.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where an interrupted search was, if one was.")]


class Wanted(NamedTuple):
    """The options that say what is searched for, and how; None where one was not given or does not count."""

    budget: str
    towers: str | None
    layers: str | None
    tie_break: Literal["order", "nll"]
    heads_per_step: int
    search: Literal["screened", "shortlist", "headmap"] | None
    shortlist: int | None


def extract_circuit(
    model: Model,
    id_data: IdData,
    ood_data: OodData,
    budget: Budget,
    objective: Objectives = "avg",
    towers: Towers = None,
    layers: Layers = None,
    tie_break: TieBreak = "order",
    heads_per_step: HeadsPerStep = 1,
    search: How = "exact",
    shortlist: Shortlist = None,
    output: CircuitOutput = Path("circuit.json"),
    resume: Resume = False,
    limit: Limit = None,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    image_column: ImageColumn = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    match_labels: MatchLabels = "name",
    device: Device = "auto",
    dtype: Dtype = None,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    quiet: Quiet = False,
    force: Force = False,
    token: Token = None,
) -> None:
    """Rank heads by how well the model does without them.

    Example: hydractl extract-circuit vit --id-data cifar10:test --ood-data dtd:test --objective acc,ood,avg --budget 48
    -o circuit-{objective}.json

    Writes one JSON file per objective: the heads in the order in which the paper's greedy search drops them, with the
    ID accuracy and the AUROC after each. Neither data set may be used in an evaluation later, and evaluate refuses it.
    Beside the output lies a .state file while the search runs; after an interruption --resume goes on from it.
    """
    wanted = _wanted(budget, towers, layers, tie_break, heads_per_step, search, shortlist)
    outputs = _outputs(output, objective, resume)
    reading = DataOptions(limit, classes, template, image_column, text_column, label_column, match_labels)
    material = open_material(model, id_data, ood_data, reading, device, dtype)
    searched = _search(material.model, wanted)
    chosen = wanted._asdict() | {"budget": searched.budget, "batch_size": batch_size, "limit": limit, "dtype": dtype}
    chosen["template"] = template if material.model.spec.task == "zero-shot" else None
    state = None if str(output) == console.STDOUT else _state_file(output, objective)
    search_and_write(material, searched, chosen, outputs, state, resume, force, quiet)


def _wanted(
    budget: str,
    towers: str | None,
    layers: str | None,
    tie_break: Literal["order", "nll"],
    heads_per_step: int,
    search: Literal["exact", "screened", "shortlist", "headmap"],
    shortlist: int | None,
) -> Wanted:
    """The options, those that have no effect refused."""
    if shortlist is not None and search != "shortlist":
        raise OptionError(f"--shortlist has no effect with --search {search}: leave it out, or take --search shortlist")
    if search == "headmap" and heads_per_step > 1:
        raise OptionError("--heads-per-step has no effect with --search headmap: a layer gives up its share at once")
    size = None if search != "shortlist" else shortlist or SHORTLIST
    if size is not None and size < heads_per_step:
        raise OptionError(f"--shortlist {size} is shorter than --heads-per-step {heads_per_step}")
    return Wanted(budget, towers, layers, tie_break, heads_per_step, None if search == "exact" else search, size)


def _search(model: Hydra, wanted: Wanted) -> Search:
    """What is searched for in this model."""
    from hydractl.circuit.modes import MODES
    from hydractl.circuit.ranking import Search

    candidates = _candidates(model, wanted.towers, wanted.layers)
    budget = _budget(wanted.budget, len(candidates))
    mode = next(mode for mode in MODES if mode.name == (wanted.search or "exact"))
    return Search(candidates, budget, mode, wanted.tie_break, wanted.heads_per_step, wanted.shortlist or SHORTLIST)


def _outputs(output: Path, objective: str, resume: bool) -> dict[Objective, Path]:
    """Where the circuit of each objective goes."""
    from hydractl.scoring.objective import OBJECTIVES

    wanted = [name.strip() for name in objective.split(",")]
    known = [name for name in OBJECTIVES if name in wanted]
    if len(known) != len(wanted):
        raise OptionError(f"--objective {objective}: expected acc, ood, avg or several of them with commas between")
    if len(known) > 1 and (str(output) == console.STDOUT or PLACEHOLDER not in output.name):
        raise OptionError(f"--objective {objective} makes {len(known)} files: put {PLACEHOLDER} into the name after -o")
    if resume and str(output) == console.STDOUT:
        raise OptionError("--resume has nothing to go on from with -o -: a search keeps its state beside its file")
    return {name: output.with_name(output.name.replace(PLACEHOLDER, name)) for name in known}


def _state_file(output: Path, objective: str) -> Path:
    return output.with_name(output.name.replace(PLACEHOLDER, objective.replace(",", "-")) + ".state")


def _candidates(model: Hydra, towers: str | None, layers: str | None) -> tuple[Head, ...]:
    """The heads to choose from, in candidate order."""
    from hydractl.checkpoint.heads import member_heads
    from hydractl.circuit.scope import Scope

    there = [tower.name for tower in model.spec.towers]
    scope = Scope(towers, layers)
    if unknown := [name for name in scope.tower_names if name not in there]:
        raise OptionError(f"--towers {towers}: the model has no {unknown[0]} tower, only {' and '.join(there)}")
    found = scope.of(member_heads(model.heads, 0))
    if not found:
        raise OptionError(f"--layers {layers}: the model has no head there")
    return found


def _budget(budget: str, candidates: int) -> int:
    if budget == ALL:
        return candidates
    if not budget.isdecimal() or not 1 <= int(budget) <= candidates:
        raise OptionError(f"--budget {budget}: expected 1 to {candidates}, the heads there are to choose from, or all")
    return int(budget)
