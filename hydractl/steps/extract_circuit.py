"""Ranking heads by how well a model does without them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl import bounds
from hydractl.circuit.modes import MODES, taking
from hydractl.circuit.ranking import SHORTLIST, Search
from hydractl.data.like import DataLike, DataSetsLike
from hydractl.errors import OptionError
from hydractl.steps.extracted import Extracted
from hydractl.steps.inputs import (
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
    Model,
    Template,
    TextColumn,
)
from hydractl.steps.material import LABELLED, OOD_SETS, Reading, origin_of
from hydractl.steps.options import Option, step
from hydractl.steps.tasks import TASKS, TasksLike, open_tasks, parse_tasks, require_ood_sets
from hydractl.steps.watch import LOG, Watcher

if TYPE_CHECKING:
    from hydractl.circuit.ablation import Progress
    from hydractl.circuit.data import SearchData
    from hydractl.circuit.objective import Objective
    from hydractl.circuit.ranking import Ranking
    from hydractl.circuit.state import Journal
    from hydractl.model.hydra import Hydra

    Budget = int | str
    ModeName = str
else:
    Budget = Any
    ModeName = Literal[tuple(mode.name for mode in MODES)]


@step
def extract_circuit(
    model: Model,
    *,
    id_data: Annotated[DataLike | None, LABELLED] = None,
    ood_data: Annotated[DataSetsLike | None, OOD_SETS] = None,
    task: Annotated[TasksLike | None, TASKS] = None,
    budget: Annotated[Budget, Option("Heads to rank, over the whole model.", metavar="N|all")],
    objective: Annotated[
        str,
        Option("What to keep: ID accuracy, AUROC of MSP, or their mean.", metavar="acc|ood|avg[,...]"),
    ] = "avg",
    towers: Annotated[str | None, Option("Towers to take heads from; all unless given.", metavar="vision,text")] = None,
    layers: Annotated[str | None, Option("Layers to take heads from, both included, from 0 on.", metavar="A-B")] = None,
    tie_break: Annotated[
        Literal["order", "nll"], Option("Among equals the first head, or the one with the lowest ID loss.")
    ] = "order",
    search: Annotated[
        ModeName,
        Option(f"How candidates are measured. {' '.join(f'{mode.name}: {mode.help}.' for mode in MODES)}"),
    ] = "exact",
    heads_per_step: Annotated[
        int,
        Option(
            "Heads to drop at once: faster, and no longer the paper's search.",
            minimum=1,
            maximum=bounds.HEADS,
            goes_with={"search": taking("heads_per_step")},
        ),
    ] = 1,
    shortlist: Annotated[
        int | None,
        Option(
            f"Candidates on a shortlist; {SHORTLIST} unless given.",
            metavar="K",
            minimum=1,
            maximum=bounds.HEADS,
            goes_with={"search": taking("shortlist")},
        ),
    ] = None,
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
    output: Annotated[
        str | Path | None,
        Option(
            "File to write; {objective} in it stands for each objective.",
            heading="Output",
            metavar="FILE|-",
            flags=("--output", "-o"),
        ),
    ] = None,
    resume: Annotated[bool, Option("Go on where an interrupted search was, if one was.", heading="Output")] = False,
    force: Force = False,
    watch: Watcher = LOG,
) -> Extracted:
    """Rank heads by how well the model does without them.

    Example: hydractl extract-circuit vit --id-data cifar10:test --ood-data dtd:test --objective acc,ood,avg --budget 48
    -o circuit-{objective}.json

    Writes one JSON file per objective: the heads in the order in which the paper's greedy search drops them, with the
    ID accuracy and the AUROC after each. The objective acc needs no OOD data. No data that is searched on may be used
    in an evaluation later, and evaluate refuses it.
    Beside the output lies a .state file while the search runs; after an interruption `resume` goes on from it.

    >>> found = hydractl.extract_circuit("vit", id_data="data/pets", ood_data="data/noise", budget=2)
    >>> len(found.circuit.ranking)
    2
    >>> pruned = hydractl.prune("vit", method="circuit", circuit=found, budget=2)

    Raises:
        ArtifactError: the state to go on from is damaged, or of a search under other conditions.
        CheckpointError: the model cannot be read.
        DataError: data cannot be read, or their labels are not the model's; a logit is not finite.
        OptionError: a model of several members, or options that make no sense together or for this model.
        OutputError: an output exists, or an interrupted search that is neither gone on with nor given up.
    """
    from hydractl.circuit.objective import parse_objectives
    from hydractl.circuit.restriction import Restriction, heads_to_rank
    from hydractl.circuit.state import Journal, state_file
    from hydractl.data.ranks import join_ranks
    from hydractl.steps.compute import dtype_name

    objectives = parse_objectives(objective)
    asked = parse_tasks(task, id_data, ood_data)
    require_ood_sets(asked, objectives)
    outputs = _outputs(output, objectives, resume, force)
    reading = Reading(limit, classes, template, image_column, text_column, label_column, match_labels)
    tasks = open_tasks(model, asked, reading, device, dtype, watch)
    candidates = Restriction(towers, layers).of_member(tasks.model.heads)
    mode = next(mode for mode in MODES if mode.name == search)
    mode.check(tasks.model)
    listed = (shortlist or SHORTLIST) if "shortlist" in mode.options else None
    count = heads_to_rank(budget, len(candidates))
    wanted = Search(candidates, count, mode, tie_break, heads_per_step, listed or SHORTLIST)
    options = {
        "budget": count,
        "towers": towers,
        "layers": layers,
        "tie_break": tie_break,
        "heads_per_step": heads_per_step,
        "search": None if search == "exact" else search,
        "shortlist": listed,
        "batch_size": batch_size,
        "limit": limit,
        "dtype": dtype_name(dtype),
        "template": tasks.template,
        "tasks": tasks.names,
    }
    origin = origin_of(tasks.checkpoint, options, tasks.used())
    conditions = {"model": origin["model"]["sha256"], **tasks.data_identity(), **options}
    journal = None if output is None else Journal(state_file(Path(output), objectives), conditions)
    with join_ranks(tasks.device) as ranks, _claimed(journal if ranks.leads else None):
        data = tasks.scoring_data(batch_size, ranks)
        begun = _begun(journal, objectives, resume, force, watch if ranks.leads else LOG)
        found = _searched(tasks.model, data, wanted, begun, journal, watch if ranks.leads else LOG)
        extracted = Extracted({ranking.objective: ranking for ranking in found}, origin, outputs)
        if ranks.leads:
            _write(extracted, force)
            if journal is not None:
                journal.remove()
    return extracted


def _outputs(
    output: str | Path | None, objectives: Sequence[Objective], resume: bool, force: bool
) -> dict[Objective, Path]:
    """Where the circuit of each objective goes; nowhere without an output."""
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.circuit.state import circuit_files

    if output is None:
        if resume:
            raise OptionError(
                "`resume` has nothing to go on from: a search's state lies beside its file, so name one as `output`"
            )
        return {}
    paths = circuit_files(Path(output), objectives)
    for one in paths.values():
        refuse_existing(one, force)
    return paths


def _begun(
    journal: Journal | None, objectives: Sequence[Objective], resume: bool, force: bool, watch: Watcher
) -> Sequence[Ranking]:
    """The rankings to grow: those of an interrupted search, or empty ones."""
    from hydractl.circuit.ranking import Ranking

    nothing: Sequence[Ranking] = [Ranking(objective) for objective in objectives]
    if journal is None:
        return nothing
    if resume and not journal.path.exists():
        # A Makefile always says so: the first time there is nothing yet.
        watch.note(f"note: {journal.path} is not there: starting afresh")
    return journal.begin(nothing, resume, force)


def _claimed(journal: Journal | None) -> AbstractContextManager[None]:
    """The search's state, and with it what it makes, as this process's alone."""
    from hydractl.checkpoint.locks import claim

    return nullcontext() if journal is None else claim(journal.path)


def _searched(
    model: Hydra, data: SearchData, search: Search, begun: Sequence[Ranking], journal: Journal | None, watch: Watcher
) -> list[Ranking]:
    """Runs the search, notes each step down, and tells the watcher of it."""
    from hydractl.circuit.cost import networks, round_progress, search_cost, seconds_of
    from hydractl.circuit.pace import reading_seconds
    from hydractl.circuit.search import extract_circuits

    total = sum(search_cost(model.spec, model.heads, search, len(ranking.steps)) for ranking in begun)
    samples = (data.id_samples + data.ood_samples) / data.ranks.size
    told = {ranking.objective: len(ranking.steps) for ranking in begun}
    # Reading comes first: it is timed on batches that nothing has asked for yet.
    reading = reading_seconds(data, next(model.parameters()).device) if total else 0.0
    if total and (seconds := seconds_of(model, data, search, begun)) is not None:
        count = sum(networks(search, len(ranking.steps)) for ranking in begun)
        watch.note(f"note: {count:.0f} networks to measure: this takes about {_duration(reading + seconds)}")
    with watch.progress("search", total) as advance:

        def on_round(network: Hydra, growing: Sequence[Ranking]) -> Progress:
            return round_progress(model, network, search, growing, samples, advance)

        def on_step(rankings: Sequence[Ranking], grown: Ranking) -> None:
            if journal is not None and data.ranks.leads:
                journal.save(rankings)
            for number in range(told[grown.objective], len(grown.steps)):
                watch.note(grown.line(number))
            told[grown.objective] = len(grown.steps)

        try:
            found = extract_circuits(model, data, search, begun, on_round, on_step)
        except KeyboardInterrupt:
            if journal is not None:
                watch.note(f"{journal.path}: holds what was found; `resume` goes on from it")
            raise
    for ranking in found:
        if account := search.mode.account(ranking):
            watch.note(f"note: {account}")
    return found


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _write(extracted: Extracted, force: bool) -> None:
    from hydractl.artifacts import write_json

    artifacts = extracted.to_json()
    for objective, path in extracted.outputs.items():
        write_json(path, artifacts[objective], force)
