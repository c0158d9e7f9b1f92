"""Choosing members by what they predict together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.artifacts import Artifact, write_json
from hydractl.bounds import MEMBERS, whole
from hydractl.checkpoint.calibration import Calibration
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import member_heads
from hydractl.checkpoint.output import claim, refuse_existing
from hydractl.circuit.head_files import Circuit, CircuitLike
from hydractl.circuit.objective import Material
from hydractl.data.reading import Reading
from hydractl.errors import OptionError
from hydractl.inputs.members import Limits, existing_members, named_circuits
from hydractl.inputs.models import Model, ModelLike, as_member
from hydractl.inputs.result import Result
from hydractl.inputs.search_data import LabelledData, open_material, origin_of
from hydractl.options import function, option, remembered
from hydractl.reports.describe import curve_lines
from hydractl.run_options import Compute, Force, Resume, Seed, output_option
from hydractl.selection.candidates import SelectionObjective, Sources, candidate_set, counts
from hydractl.selection.selection_file import selection_json
from hydractl.surgery.provenance import SEEN, samples_behind, trained_on, with_provenance
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    from hydractl.selection.pool import CandidatePool


@dataclass(frozen=True, eq=False, repr=False)
class Selected(Result):
    """The members that do best together.

    Attributes:
        content: the artifact `hydractl-selection`, plain JSON.
        checkpoint: the members, fused.
        output: where the artifact was written, if it was.
        hydra: where the fused file was written, if it was.
    """

    content: Mapping[str, Any]
    checkpoint: Checkpoint
    output: Path | None = None
    hydra: Path | None = None

    def to_json(self) -> dict[str, Any]:
        return dict(self.content)

    def lines(self) -> Iterator[str]:
        yield from curve_lines(self.content)
        yield from (str(path) for path in (self.output, self.hydra) if path is not None)

    def write(self, force: bool) -> None:
        """Writes the artifact and the fused members, where wanted."""
        from hydractl.families.load import write_checkpoint

        if self.hydra is not None:
            write_checkpoint(self.checkpoint, self.hydra, force)
        if self.output is not None:
            write_json(self.output, self.content, force)


def _if_given(value: Any) -> Any:
    return value or None


def _listed(about: str, metavar: str) -> str:
    """Declares numbers with commas between, by default none."""
    return option("", about, metavar=metavar, plain=_if_given, rare=True)


@dataclass(frozen=True)
class Candidates:
    """Candidates for members: from circuits, draws and files."""

    files: Sequence[ModelLike] = option(
        (), "Members and Hydras, as further candidates.", "Model", "FILE...", positional=True, remembered=False
    )
    circuit: Sequence[CircuitLike] = option(
        (), "Circuit that candidates follow; repeat it for several.", metavar="FILE", remembered=False
    )
    pools: str = _listed("Draw candidates from the first N heads of each circuit, for each N.", "25,40")
    draws: int = option(4, "Draws for each circuit, budget and pool.", within=(1, 1000), rare=True)
    random: int = option(0, "Draws from all heads for each budget.", within=(0, 1000), plain=_if_given)
    without_dense: bool = option(False, "Do not take the network itself as a member.", plain=_if_given, rare=True)

    @property
    def unused(self) -> Sequence[str]:
        return [*([] if self.pools else ["draws"]), *([] if self.pools or self.random else ["seed"])]

    def gather(
        self, network: Checkpoint, budgets: str, trunks: Sequence[int], seed: int
    ) -> tuple[CandidatePool, Sequence[Circuit]]:
        """Returns the candidates, and the circuits that they follow, whose samples the selection depends on."""
        from hydractl.selection.pool import gather

        circuits = named_circuits(self.circuit, network)
        heads = member_heads(network.heads, 0)
        sources = Sources(
            heads,
            {name: circuit.ranking for name, circuit in circuits.items()},
            pools=counts("pools", self.pools, len(heads)),
            draws=self.draws,
            random=self.random,
            seed=seed,
            dense=not self.without_dense,
        )
        sets = []
        for trunk in trunks:
            # Shares are of the heads that candidates may lack.
            free = sum(head.layer >= trunk for head in heads)
            above = replace(sources, budgets=counts("budgets", budgets, len(heads), free))
            sets.append(candidate_set(above, trunk))
        return gather(network, sets, existing_members(self.files, network)), [*circuits.values()]


@dataclass(frozen=True, kw_only=True)
class Select:
    """Choose members by what they predict together.

    Candidates are the network itself, the network without a circuit's first heads at each budget, random draws from
    these heads or from all heads, and files. Nothing is written for them, and layers that they share are computed once.
    A Hydra's file is one of them. Members join one by one: each time the candidate with which the mean of all members'
    probabilities is best.

    Example: hydractl select vit --circuit circuit.json --budgets 2,3 --id-data data/pets -o chosen.json --hydra hydra

    Prints the quality of the members together as they join, and of the network itself. Writes the selection as JSON,
    and with `hydra` the fused members as one safetensors file. Evaluations refuse the data it was made on.

    >>> chosen = hydractl.select("vit", circuit=["circuit.json"], budgets="1,2", members="2", id_data="data/pets")
    >>> hydractl.load(chosen).members
    2

    Raises:
        ArtifactError: a circuit cannot be read or is of another model, or the run to go on from had other options.
        DataError: data cannot be read, or its labels are not the model's.
        OptionError: no candidates, fewer than members, or options that do not go together.
        OutputError: an output exists and `force` is not set, or the disk refuses it.
    """

    model: Model
    candidates: Candidates = Candidates()
    budgets: str = _listed("Heads that candidates drop, as numbers or shares of all above the trunk.", "6,12,33%")
    objective: SelectionObjective = option("nll", "Select members by NLL, or by NLL at their best common temperature.")
    members: str = option("3", "Number of members, or the range to choose it from.", metavar="M|A-B")
    limits: Limits = Limits()
    trunks: str = _listed("Trunk depths to try: below layer L all candidates keep the same heads.", "0,2,4")
    seed: Seed = 0
    id_data: LabelledData
    reading: Reading = Reading()
    compute: Compute = Compute()
    output: str | Path | None = output_option("File for the record of the selection.", "SELECTION.json")
    hydra: str | Path | None = option(None, "File for the fused members.", "Output", "FILE", remembered=False)
    resume: Resume = False
    force: Force = False

    def run(self, watch: Watcher) -> Selected:
        if self.resume and self.output is None:
            raise OptionError("`resume` needs an `output`: the state of a selection lies beside its file")
        output, hydra = self._paths()
        members = parse_members(self.members)
        from hydractl.data.ranks import join_ranks
        from hydractl.selection.greedy import require_enough
        from hydractl.selection.pool import Criteria, choose
        from hydractl.selection.selection_run import SelectionRun

        criteria = Criteria(members, multiply_adds=self.limits.budget_macs, parameters=self.limits.budget_params)
        self._check_task()
        material = open_material(
            self.model, self.id_data, None, reading=self.reading, compute=self.compute, watch=watch
        )
        network = material.checkpoint
        if (warning := trained_on(network, material.id)) is not None:
            watch.warn(warning)
        trunks = counts("trunks", self.trunks, max(tower.layers for tower in network.spec.towers)) or [0]
        options = remembered(self, template=material.template, **dict.fromkeys(self.candidates.unused))
        with join_ranks(material.device) as ranks, claim(output if ranks.leads else None):
            run = SelectionRun(
                material,
                self.compute.batch_size,
                ranks,
                watch if ranks.leads else LOG,
                selection=output,
                options=options,
                resume=self.resume,
                force=self.force,
            )
            pool, circuits = self.candidates.gather(network, self.budgets, trunks, self.seed)
            require_enough((criteria.members[0], criteria.members[0]), max(map(len, pool.sets)))
            outcome = choose(run.answers(pool), pool, criteria)
            chosen, seen = outcome.curve.chosen, _seen(material, circuits)
            origin = {**origin_of(network, options), "search_data": seen}
            fused = pool.fused(chosen)
            fused = with_provenance(fused, "select", [network, *pool.files_among(chosen)], {**options, SEEN: seen})
            if self.objective == "nll":  # at this temperature they were chosen
                fused = replace(fused, calibration=Calibration(network.calibration.temperature))
            selected = Selected(selection_json(outcome, pool, self.objective, origin), fused, output, hydra)
            if ranks.leads:
                selected.write(self.force)
                run.remove_state()
        return selected

    def _paths(self) -> tuple[Path | None, Path | None]:
        """Returns the files of the record and of the fused members.

        Raises:
            OptionError: both are the same file.
            OutputError: one exists and `force` is not set.
        """
        output, hydra = (None if path is None else Path(path) for path in (self.output, self.hydra))
        if output is not None and hydra is not None and output.resolve() == hydra.resolve():
            raise OptionError(f"`output` and `hydra` are both {hydra}: name two files")
        for path in (output, hydra):
            if path is not None:
                refuse_existing(path, self.force)
        return output, hydra

    def _check_task(self) -> None:
        """Raises OptionError for a network that embeds."""
        from hydractl.tasks.all_tasks import find_task

        network = as_member(self.model)
        task = find_task(network.spec.task)
        if task.taught_only:
            raise OptionError(
                f"{network.name}: embeds, and averaging embeddings does not improve them: prune it by a circuit"
            )


select = function(Select)


def _seen(material: Material, artifacts: Sequence[Artifact]) -> Mapping[str, Any]:
    """Returns sketches of every sample that a choice depends on."""
    from hydractl.data.hashes import merged

    used = material.used("selection", "")
    sketches = {name: samples.sketch() for name, samples in used.items()}
    return merged([*(samples_behind(artifacts) or {}).items(), *sketches.items()], material.checkpoint.name)


def parse_members(members: str) -> tuple[int, int]:
    """Parses the least and the largest number of members, of `3` or `2-5`.

    Raises:
        OptionError: neither of these.
    """
    first, dash, last = str(members).partition("-")
    low, high = (whole(end, 1, MEMBERS) for end in (first, last if dash else first))
    if low is None or high is None or low > high:
        raise OptionError(f"`members` {members}: expected a number from 1 to {MEMBERS}, or two as in 2-5")
    return low, high
