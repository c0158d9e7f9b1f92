"""Taking attention heads and MLP units out of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from hydractl.artifacts import Artifact
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, Unit
from hydractl.checkpoint.output import make_folder, output_paths, refuse_existing
from hydractl.circuit.ranking import require_towers
from hydractl.data.reading import Reading
from hydractl.errors import CheckpointError, OptionError
from hydractl.inputs.models import ModelLike, as_checkpoint
from hydractl.inputs.refitting import RefitOptions, Refitter
from hydractl.inputs.result import MadeModel
from hydractl.inputs.search_data import open_material
from hydractl.options import Option, Rows, function, option, remembered
from hydractl.reports.summary import pruning_line
from hydractl.run_options import Compute, Force, Seed, output_option
from hydractl.steps.extract_circuit import ExtractCircuit
from hydractl.surgery.choose import heads_leaving, units_leaving
from hydractl.surgery.provenance import headless, samples_behind, telling_name, with_provenance
from hydractl.surgery.prune_methods import (
    CIRCUIT,
    PRUNE_METHODS,
    ByCircuit,
    Method,
    Pruning,
    UnitCut,
    choose_cut,
    choose_heads,
    notes,
)
from hydractl.watch import LOG, Watcher, tell

Budget = Any  #: a number, or a share as in 33%


@dataclass(frozen=True, eq=False)
class PrunedMember:
    """A network of one member without some of its heads and MLP units.

    Attributes:
        dropped: the heads it lost.
        output: where it was written, if it was.
        units: the MLP units it lost.
    """

    checkpoint: Checkpoint
    dropped: Sequence[Head]
    output: Path | None = None
    units: Sequence[Unit] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Pruned(MadeModel):
    """The pruned networks: one, or several members."""

    members: Sequence[PrunedMember]

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The networks, as every other step takes them."""
        return [member.checkpoint for member in self.members]

    @property
    def only(self) -> PrunedMember:
        """The one network that was pruned."""
        if len(self.members) > 1:
            raise OptionError(f"these are {len(self.members)} members: name one of the result's `members`")
        return self.members[0]

    @property
    def checkpoint(self) -> Checkpoint:
        """The one network that was pruned."""
        return self.only.checkpoint

    @property
    def dropped(self) -> Sequence[Head]:
        """The heads it lost."""
        return self.only.dropped

    @property
    def output(self) -> Path | None:
        """The file it was written to, if any."""
        return self.only.output

    def to_json(self) -> dict[str, Any]:
        listed = [
            {
                "output": None if member.output is None else str(member.output),
                "dropped": [head._asdict() for head in member.dropped],
                **({"units": len(member.units)} if member.units else {}),
            }
            for member in self.members
        ]
        return listed[0] if len(listed) == 1 else {"members": listed}

    def lines(self) -> Iterator[str]:
        yield from (str(member.output or member.checkpoint.name) for member in self.members)

    def facts(self) -> Mapping[str, object]:
        if len(self.members) > 1:
            return {
                str(member.output or member.checkpoint.name): f"{len(member.dropped)} heads dropped"
                for member in self.members
            }
        return super().facts()

    def guidance(self) -> Iterator[str]:
        for member in self.members:
            yield pruning_line(member.checkpoint, member.dropped, member.units, member.output)
        if written := [quote(str(member.output)) for member in self.members if member.output is not None]:
            members = " ".join(written) if len(written) > 1 else f"{written[0]} OTHER..."
            yield "with training data, finetune the members before fusing them"
            yield f"next: hydractl fuse {members} -o hydra.safetensors"


@dataclass(frozen=True)
class Prune:
    """Remove attention heads and MLP units from a model.

    The file shrinks and the forward pass gets faster; nothing is masked, the heads are gone. `units` removes units of
    the MLPs likewise, by the same `method`, and `budget_macs` both, whichever is worth least for its arithmetic.
    `refit` then fits the maps that stay to what the network said before, on inputs without labels.

    Example: hydractl prune --method circuit --budget 48

    Writes one safetensors file, with `members` one for each, and prints its path.

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

    model: ModelLike | None = option(
        None,
        "A hydractl file, a folder, or a hub id. Default: the model that the artifact names.",
        "Model",
        "MODEL",
        positional=True,
        remembered=False,
    )
    budget: Budget | None = option(
        None, "Heads to remove, over the whole model: a number, or a share as in 33%.", metavar="N|N%"
    )
    method: Annotated[
        Method | None,
        Option(f"Method of choosing heads: {'; '.join(f'{row.name}: {row.help}' for row in PRUNE_METHODS)}."),
        Rows(PRUNE_METHODS),
    ] = None
    unit_cut: UnitCut = UnitCut()
    seed: Seed = 0
    refitting: RefitOptions = RefitOptions()
    reading: Reading = Reading()
    compute: Compute = Compute()
    output: str | Path | None = output_option(
        "File to write, or a folder for a file whose name says how it was made. Several members need a folder, or "
        "a name with {member}."
    )
    force: Force = False

    def run(self, watch: Watcher) -> Pruned:
        data = (self.refitting.refit, None if self.method is None else self.method.id_data)
        if self.reading.limit is not None and data == (None, None):
            raise OptionError("`limit` has no effect without data: give `id_data` or `refit`, or leave it out")
        method, cut = self.method, self.unit_cut
        if method is None or (self.budget is None and cut.units is None and cut.budget_macs is None):
            raise OptionError("no option chooses heads to drop: give `method` and `budget`")
        if self.budget is not None and cut.budget_macs is not None:
            raise OptionError("`budget_macs` decides how many heads to drop: leave `budget` out")
        method = self._searched(method, watch)
        checkpoint = _model_of(method.artifact) if self.model is None else as_checkpoint(self.model)
        leaving = heads_leaving(self.budget or 0, checkpoint)
        options = {
            **remembered(
                self,
                budget=leaving if cut.budget_macs is None else None,
                seed=self.seed if method.seeded else None,
                batch_size=None if method.id_data is None else self.compute.batch_size,
                template=None,
            ),
            **method.origin,
        }
        if cut.units is not None:
            options["units"] = units_leaving(cut.units, checkpoint)
        named = options if self.refitting.refit is None else options | {"refit": ""}
        paths = self._paths(checkpoint, cut.members, telling_name(checkpoint, named), self._inputs(method.artifact))
        from hydractl.surgery.slicing import drop_heads, drop_units

        pruning, seen = self._pruning(method, checkpoint, leaving, watch)
        tell(watch, notes(method, pruning))
        members, (dropped, shares) = [], choose_cut(method, pruning, cut)
        with self.refitting.opened(checkpoint, self.reading, self.compute, watch) as refitter:
            for number, (units, path) in enumerate(zip(shares, paths, strict=True)):
                if number and method.seeded and (method.id_data is None or cut.heads_alone):
                    again = replace(self, seed=self.seed + number)  # each member draws heads or samples of its own
                    if method.id_data is not None:
                        pruning, seen = again._pruning(method, checkpoint, leaving, LOG)
                    dropped = choose_heads(method, replace(pruning, budget=len(dropped), seed=again.seed))
                made = _Made(drop_units(drop_heads(checkpoint, dropped), units), checkpoint, refitter)
                of_member = options | {"search_data": seen} | ({} if cut.members is None else {"member": number})
                members.append(PrunedMember(self._write(made, of_member, path, watch), dropped, path, units))
        return Pruned(tuple(members))

    def _searched(self, method: Method, watch: Watcher) -> Method:
        """Returns the method with a circuit that is searched, if it has data to search on."""
        if not isinstance(method, ByCircuit) or (method.id_data is None and method.ood_data is None):
            return method
        if self.model is None or str(method.circuit) != CIRCUIT:
            raise OptionError("`id_data` is for searching a circuit: name the `model`, and leave `circuit` out")
        search = ExtractCircuit(
            self.model,
            method.id_data,
            method.ood_data,
            budget="all" if method.spread.trunk is not None else method.pool or self.budget,
            objective="acc" if method.ood_data is None else None,
            reading=self.reading,
            compute=replace(self.compute, dtype=None),
        )
        return replace(method, circuit=search.run(watch).circuit, id_data=None, ood_data=None)

    def _write(self, made: _Made, options: Mapping[str, Any], path: Path | None, watch: Watcher) -> Checkpoint:
        """Returns a network with its dtype and its history, refitted if it shall be, and written if there is a path."""
        from hydractl.families.load import write_checkpoint
        from hydractl.surgery.slicing import with_dtype

        refitter, pruned = made.refitter, made.network
        if refitter is not None:
            pruned = refitter.refitted(pruned)
            seen = {**(options.get("search_data") or {}), **refitter.used}
            options = {**options, **refitter.origin, "search_data": seen}
        pruned = with_provenance(with_dtype(pruned, self.compute.torch_dtype), "prune", [made.made_of], options)
        if path is not None and (refitter is None or refitter.ranks.leads):
            write_checkpoint(pruned, path, self.force)
        tell(watch, headless(pruned))
        return pruned

    def _inputs(self, artifact: Artifact | None) -> list[object]:
        """Returns the files that are read: the model, or the one that the artifact names, and the artifact."""
        if artifact is None:
            return [self.model]
        reference = None if artifact.model is None else artifact.model.reference
        return [artifact.name, reference if self.model is None else self.model]

    def _paths(self, network: Checkpoint, count: int | None, name: str, inputs: list[object]) -> Sequence[Path | None]:
        """Returns the file of each member; a folder gets `name` if there is one network."""
        if self.output is None:
            return [None] * (count or 1)
        stem = Path(network.name).resolve().name.removesuffix(".safetensors")
        names = [f"{stem}-member{number}" for number in range(count or 0)] or [name.removesuffix(".safetensors")]
        paths = output_paths(self.output, names)
        if str(self.output).endswith("/"):
            make_folder(Path(self.output))
        for path in paths:
            refuse_existing(path, self.force, inputs)
        return paths

    def _pruning(
        self, method: Method, checkpoint: Checkpoint, budget: int, watch: Watcher
    ) -> tuple[Pruning, Mapping[str, Any] | None]:
        """Returns the heads to choose from, and sketches of all samples that the choice depends on."""
        from hydractl.data.ranks import Ranks

        spread = method.spread
        towers = require_towers(spread.towers, checkpoint.heads) if spread.towers else []
        if self.unit_cut.budget_macs is not None:  # the other tower of a zero-shot model costs a sample nothing
            towers = towers or [checkpoint.spec.towers[0].name]
        pruning = Pruning(checkpoint, budget, spread.scope or method.scope, towers, seed=self.seed)
        if method.id_data is None:
            return pruning, samples_behind([method.artifact])
        material = open_material(
            checkpoint,
            method.id_data,
            ood_data=None,
            reading=self.reading,
            compute=replace(self.compute, dtype=None),
            watch=watch,
            by_loss=True,
        )
        if method.samples is not None:
            cut, count = self.unit_cut, len(material.id)
            if cut.members is not None and cut.heads_alone and method.samples >= count:
                raise OptionError(
                    f"`samples` {method.samples}: {cut.members} members would all be pruned on the same {count} "
                    "samples, alike: draw fewer"
                )
            material = replace(material, id=material.id.draw(method.samples, self.seed))
        # Scores of two towers differ in scale. By default only the one that reads samples is pruned.
        towers = towers or [checkpoint.spec.towers[0].name]
        network = material.model, material.scoring_data(self.compute.batch_size, Ranks())
        return replace(pruning, towers=towers, network=network), {"calibration": material.id.sketch()}


prune = function(Prune)


@dataclass(frozen=True)
class _Made:
    """A network that lost heads and units, what it was made of, and what refits it, if anything does."""

    network: Checkpoint
    made_of: Checkpoint
    refitter: Refitter | None = None


def _model_of(artifact: Artifact | None) -> Checkpoint:
    """Returns the model that an artifact was made from, from where the artifact says it lies."""
    if artifact is None:
        raise OptionError("`model` is missing: name a Hugging Face folder or a hydractl file")
    if artifact.model is None:
        raise OptionError(f"{artifact.name}: names no model: name `model`")
    place = artifact.model.reference
    try:
        return as_checkpoint(place)
    except CheckpointError as error:
        raise CheckpointError(f"{artifact.name} names the model {place}: give it as `model` ({error})") from error
