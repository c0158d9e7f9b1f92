"""`hydractl extract-circuit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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
from hydractl.errors import OptionError, OutputError

if TYPE_CHECKING:
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.objective import Objective
    from hydractl.circuit.round import Progress, SearchData
    from hydractl.circuit.search import Plan, Ranking
    from hydractl.circuit.state import Journal
    from hydractl.model.hydra import Hydra

ALL = "all"
PLACEHOLDER = "{objective}"


def extract_circuit(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face folder or a file of ours.")],
    id_data: Annotated[str, typer.Option(metavar="[NAME=]SOURCE[:SPLIT]", help="Labelled in-distribution data.")],
    ood_data: Annotated[str, typer.Option(metavar="[NAME=]SOURCE[:SPLIT]", help="Out-of-distribution data.")],
    budget: Annotated[str, typer.Option(metavar="N|all", help="Heads to rank, over the whole model.")],
    objective: Annotated[
        str, typer.Option(metavar="acc|ood|avg[,...]", help="What to keep: ID accuracy, AUROC of MSP, or their mean.")
    ] = "avg",
    towers: Annotated[
        str | None, typer.Option(metavar="vision,text", help="Towers to take heads from; all unless given.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(metavar="A-B", help="Layers to take heads from, both included, from 0 on.")
    ] = None,
    tie_break: Annotated[
        Literal["order", "nll"], typer.Option(help="Among equals the first head, or the one with the lowest ID loss.")
    ] = "order",
    heads_per_step: Annotated[
        int, typer.Option(min=1, help="Heads to drop at once: faster, and no longer the paper's search.")
    ] = 1,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE|-", help="{objective} in it stands for each objective.")
    ] = Path("circuit.json"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted search was, if one was.")
    ] = False,
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
    from hydractl.circuit.artifact import circuit_json
    from hydractl.circuit.search import Plan
    from hydractl.circuit.state import Journal
    from hydractl.data.ranks import join_ranks

    outputs = _outputs(output, objective)
    if resume and str(output) == console.STDOUT:
        raise OptionError("--resume has nothing to go on from with -o -: a search keeps its state beside its file")
    options = DataOptions(limit, classes, template, image_column, text_column, label_column, match_labels)
    material = open_material(model, id_data, ood_data, options, device, dtype)
    candidates = _candidates(material.model, towers, layers)
    plan = Plan(candidates, _budget(budget, len(candidates)), tie_break, heads_per_step)
    chosen = {
        "budget": plan.budget,
        "towers": towers,
        "layers": layers,
        "tie_break": tie_break,
        "heads_per_step": heads_per_step,
        "batch_size": batch_size,
        "limit": limit,
        "dtype": dtype,
        "template": template if material.model.spec.task == "zero-shot" else None,
    }
    origin = material.origin(chosen)
    conditions = {"model": origin["model"]["sha256"], **material.data_identity(), **chosen}
    journal = None if str(output) == console.STDOUT else Journal(_state_file(output, objective), conditions)
    begun = _begin(journal, outputs, resume, force, quiet)
    with join_ranks(material.device) as ranks:
        data = material.search_data(batch_size, ranks)
        rankings = _search(material.model, data, plan, begun, journal, quiet)
        if ranks.leads:
            for ranking in rankings:
                console.write_json(outputs[ranking.objective], circuit_json(ranking, origin), force)
            if journal is not None:
                journal.remove()
                print("\n".join(str(path) for path in outputs.values()))


def _outputs(output: Path, objective: str) -> dict[Objective, Path]:
    """Where the circuit of each objective goes."""
    from hydractl.circuit.objective import OBJECTIVES

    wanted = [name.strip() for name in objective.split(",")]
    known = [name for name in OBJECTIVES if name in wanted]
    if len(known) != len(wanted):
        raise OptionError(f"--objective {objective}: expected acc, ood, avg or several of them with commas between")
    if len(known) > 1 and (str(output) == console.STDOUT or PLACEHOLDER not in output.name):
        raise OptionError(f"--objective {objective} makes {len(known)} files: put {PLACEHOLDER} into the name after -o")
    return {name: output.with_name(output.name.replace(PLACEHOLDER, name)) for name in known}


def _state_file(output: Path, objective: str) -> Path:
    return output.with_name(output.name.replace(PLACEHOLDER, objective.replace(",", "-")) + ".state")


def _candidates(model: Hydra, towers: str | None, layers: str | None) -> tuple[Head, ...]:
    """The heads to choose from, in candidate order."""
    from hydractl.checkpoint.heads import member_heads

    there = [tower.name for tower in model.spec.towers]
    wanted = [name.strip() for name in towers.split(",")] if towers else there
    if unknown := [name for name in wanted if name not in there]:
        raise OptionError(f"--towers {towers}: the model has no {unknown[0]} tower, only {' and '.join(there)}")
    first, last = _layer_range(layers)
    heads = member_heads(model.heads, 0)
    found = tuple(head for head in heads if head.tower in wanted and first <= head.layer <= last)
    if not found:
        raise OptionError(f"--layers {layers}: the model has no head there")
    return found


def _layer_range(layers: str | None) -> tuple[int, int]:
    if layers is None:
        return 0, 10**9
    first, dash, last = layers.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise OptionError(f"--layers {layers}: expected two layers as in 0-5, both included, or one")
    return int(first), int(last or first)


def _budget(budget: str, candidates: int) -> int:
    if budget == ALL:
        return candidates
    if not budget.isdecimal() or not 1 <= int(budget) <= candidates:
        raise OptionError(f"--budget {budget}: expected 1 to {candidates}, the heads there are to choose from, or all")
    return int(budget)


def _begin(
    journal: Journal | None, outputs: Mapping[Objective, Path], resume: bool, force: bool, quiet: bool
) -> list[Ranking]:
    """The rankings to grow: those of an interrupted search, or empty ones."""
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.circuit.search import Ranking

    if journal is not None:
        for path in outputs.values():
            refuse_existing(path, force)
        if resume and journal.path.exists():
            return journal.read()
        if resume:
            # A Makefile passes --resume always: the first time there is nothing yet.
            console.note(f"note: {journal.path} is not there: starting afresh", quiet)
        if journal.path.exists() and not force:
            raise OutputError(f"{journal.path}: an interrupted search: go on with --resume, or start over with --force")
    return [Ranking(objective) for objective in outputs]


def _search(
    model: Hydra, data: SearchData, plan: Plan, begun: list[Ranking], journal: Journal | None, quiet: bool
) -> list[Ranking]:
    """Runs the search, saving each step and saying what it is."""
    from hydractl.circuit.cost import candidate_costs, expected_costs
    from hydractl.circuit.search import extract_circuits

    quiet = quiet or not data.ranks.leads
    rounds = expected_costs(model.spec, model.heads, plan.candidates, plan.budget)
    total = sum(sum(rounds[len(ranking.steps) :: plan.heads_per_step]) for ranking in begun)
    samples = (data.id_samples + data.ood_samples) / data.ranks.size
    with console.progress("search", total, quiet) as advance:

        def on_round(network: Hydra, growing: Sequence[Ranking]) -> Progress:
            left = [head for head in plan.candidates if head not in growing[0].dropped]
            costs = candidate_costs(network.spec, network.heads, left)
            share = sum(rounds[len(ranking.steps)] for ranking in growing) / sum(costs.values()) / samples
            return lambda group, count: advance(share * count * sum(costs[head] for head in group))

        def on_step(rankings: Sequence[Ranking], grown: Ranking) -> None:
            if journal is not None and data.ranks.leads:
                journal.save(rankings)
            console.note(_step_line(grown), quiet)

        try:
            return extract_circuits(model, data, plan, begun, on_round, on_step)
        except KeyboardInterrupt:
            if journal is not None:
                console.note(f"{journal.path}: holds what was found; --resume goes on from it", not data.ranks.leads)
            raise


def _step_line(ranking: Ranking) -> str:
    step = ranking.steps[-1]
    numbers = f"accuracy {step.measure.accuracy:.4f}  AUROC {step.measure.auroc:.4f}"
    return f"{ranking.objective}  {len(ranking.steps):3}  {step.head}  {numbers}"
