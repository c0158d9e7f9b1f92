"""Ranking heads by how well a model does without them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.artifacts import write_json
from hydractl.checkpoint.output import claim, refuse_existing
from hydractl.circuit.head_files import Circuit, SearchJournal, circuit_files, circuit_json, circuit_of, state_file
from hydractl.circuit.objective import Objective, SearchData, settle_objectives
from hydractl.circuit.ranking import Progress, Ranking, Restriction, Search, heads_to_rank
from hydractl.data.reading import DataLike, DataSetsLike, Reading
from hydractl.errors import OptionError
from hydractl.inputs.models import Model, as_member
from hydractl.inputs.result import Result
from hydractl.inputs.search_data import LABELLED, OOD_SETS, TASKS, TasksLike, open_tasks, origin_of, parse_tasks
from hydractl.options import function, option, remembered, required
from hydractl.run_options import Compute, Force, Resume, output_option
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    from hydractl.model.hydra import Hydra
    from hydractl.tasks.task import Task

Budget = Any  #: a number, or a share as in 33%


@dataclass(frozen=True, eq=False, repr=False)
class Extracted(Result):
    """The circuits of a search, one for each objective.

    Attributes:
        rankings: the heads in the order in which they were dropped, by objective.
        origin: the model, options and samples of the search, as plain JSON.
        outputs: the written file of each circuit.
        task: what the model answers.
    """

    rankings: Mapping[Objective, Ranking]
    origin: Mapping[str, Any]
    outputs: Mapping[Objective, Path]
    task: Task

    @property
    def circuits(self) -> dict[Objective, Circuit]:
        """The circuits as `hydractl.prune` follows them, by objective."""
        return {name: circuit_of(ranking, self.origin, self.task.key) for name, ranking in self.rankings.items()}

    @property
    def circuit(self) -> Circuit:
        """The one circuit that was searched for.

        Raises:
            OptionError: there are several.
        """
        if len(self.rankings) > 1:
            raise OptionError(f"these are circuits of {', '.join(self.rankings)}: name one of the result's `circuits`")
        return next(iter(self.circuits.values()))

    def to_json(self) -> dict[str, Any]:
        return {name: circuit_json(ranking, self.origin, self.task.key) for name, ranking in self.rankings.items()}

    def write(self, force: bool) -> None:
        """Writes each circuit to its file, if it has one."""
        artifacts = self.to_json()
        for objective, path in self.outputs.items():
            write_json(path, artifacts[objective], force)

    def lines(self) -> Iterator[str]:
        if self.outputs:
            yield from map(str, self.outputs.values())
        else:
            for ranking in self.rankings.values():
                yield from (ranking.line(number, self.task.measured) for number in range(len(ranking.steps)))

    def facts(self) -> Mapping[str, object]:
        return {f"{name} circuit": ranking.summary(self.task.measured) for name, ranking in self.rankings.items()}


@dataclass(frozen=True)
class ExtractCircuit:
    """Rank heads by how well the model does without them.

    Example: hydractl extract-circuit vit --id-data cifar10:test --ood-data dtd:test --objective acc,ood,avg --budget 48
    -o circuit-{objective}.json

    Writes one JSON file per objective: the heads in the order in which the paper's greedy search drops them, with the
    ID accuracy and the AUROC after each. A model that chooses no class is measured as its task is: see the guide on
    search. The objective acc needs no OOD data. Do not evaluate on data that was searched on: evaluate refuses it.
    While the search runs, a .state file lies beside the output; after an interruption, `resume` continues from it.

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

    model: Model
    id_data: Annotated[DataLike | None, LABELLED] = None
    ood_data: Annotated[DataSetsLike | None, OOD_SETS] = None
    task: Annotated[TasksLike | None, TASKS] = None
    budget: Budget = field(kw_only=True, metadata=required("Heads to rank, over the whole model.", metavar="N|all"))
    objective: str | None = option(
        None,
        "Objective to keep: ID accuracy, AUROC, or their mean. Default: avg; acc where answers have no confidence.",
        metavar="acc|ood|avg[,...]",
        remembered=False,
    )
    towers: str | None = option(None, "Towers to take heads from. Default: all.", metavar="vision,text", rare=True)
    layers: str | None = option(
        None, "Layers to take heads from, both included, counted from 0.", metavar="A-B", rare=True
    )
    reading: Reading = Reading()
    compute: Compute = Compute()
    output: str | Path | None = output_option("File to write; {objective} in it stands for each objective.", "FILE|-")
    resume: Resume = False
    force: Force = False

    def run(self, watch: Watcher) -> Extracted:
        from hydractl.checkpoint.manifest import fingerprint
        from hydractl.data.ranks import join_ranks
        from hydractl.tasks.all_tasks import find_task

        checkpoint = as_member(self.model)
        task = find_task(checkpoint.spec.task)
        sources = parse_tasks(self.task, self.id_data, self.ood_data)
        objectives = settle_objectives(self.objective, task, [ood_data or None for _, ood_data in sources.values()])
        outputs = self._outputs(objectives)
        tasks = open_tasks(checkpoint, sources, self.reading, compute=self.compute, watch=watch)
        model = tasks.first.model
        candidates = Restriction(self.towers, self.layers).of_member(model.heads)
        budget = heads_to_rank(self.budget, len(candidates))
        search = Search(candidates, budget)
        options = remembered(self, budget=search.budget, template=tasks.first.template, task=tasks.names)
        origin = origin_of(tasks.first.checkpoint, options, tasks.used())
        conditions = {"model": fingerprint(tasks.first.checkpoint), **tasks.data_identity(), **options}
        conditions["objective"] = ",".join(objectives)
        journal = None if self.output is None else SearchJournal(state_file(Path(self.output), objectives), conditions)
        with join_ranks(tasks.first.device) as ranks, claim(journal.path if journal and ranks.leads else None):
            data = tasks.scoring_data(self.compute.batch_size, ranks)
            begun: Sequence[Ranking] = [Ranking(objective) for objective in objectives]
            if journal is not None:
                begun = journal.begin(begun, self.resume, self.force)
            rankings = _searched(model, data, search, begun, journal=journal, watch=watch if ranks.leads else LOG)
            extracted = Extracted({ranking.objective: ranking for ranking in rankings}, origin, outputs, task)
            if ranks.leads:
                extracted.write(self.force)
                if journal is not None:
                    journal.remove()
        return extracted

    def _outputs(self, objectives: Sequence[Objective]) -> dict[Objective, Path]:
        """Returns the file of each objective's circuit; none without an output."""
        if self.output is None:
            if self.resume:
                raise OptionError("`resume` needs an `output`: a search's state lies beside its file")
            return {}
        paths = circuit_files(Path(self.output), objectives)
        for path in paths.values():
            refuse_existing(path, self.force, [self.model])
        return paths


extract_circuit = function(ExtractCircuit)


def _searched(
    model: Hydra,
    data: SearchData,
    search: Search,
    begun: Sequence[Ranking],
    *,
    journal: SearchJournal | None,
    watch: Watcher,
) -> list[Ranking]:
    """Runs the search, and saves and reports each step."""
    from hydractl.circuit.search import extract_circuits

    total = sum(search.networks(len(ranking.steps)) for ranking in begun)
    ranks = data[0].ranks
    samples = sum(task.id_samples + task.ood_samples for task in data) / ranks.size
    reported = {ranking.objective: len(ranking.steps) for ranking in begun}
    if total:
        kept = "" if journal is None else f"; {journal.path} holds the progress, and `resume` continues from it"
        watch.note(f"note: {total:.0f} networks to measure{kept}")
    with watch.progress("search", total) as advance:

        def on_round(growing: Sequence[Ranking]) -> Progress:
            return lambda group, count: advance(len(growing) * len(group) * count / samples)

        def on_step(rankings: Sequence[Ranking], grown: Ranking) -> None:
            if journal is not None and ranks.leads:
                journal.save(rankings)
            for number in range(reported[grown.objective], len(grown.steps)):
                watch.note(grown.line(number, model.task.measured))
            reported[grown.objective] = len(grown.steps)

        return extract_circuits(model, data, search, begun, on_round=on_round, on_step=on_step)
