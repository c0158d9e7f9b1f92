"""Choosing members by what they predict together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl.checkpoint.heads import member_heads
from hydractl.data.reading import DataSetsLike, Reading
from hydractl.selection.candidates import Family, Sources, counts, family
from hydractl.selection.objectives import Objective
from hydractl.steps.answered import answers_of, journal_beside, selection_data, store_beside
from hydractl.steps.candidates import circuit_of_trunks, parse_members
from hydractl.steps.compute import Compute
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
    Limit,
    MatchLabels,
    Model,
    ModelLike,
    Output,
    Seed,
    Template,
    TextColumn,
    as_path,
)
from hydractl.steps.joint import Questions, joint_families, joint_searches
from hydractl.steps.material import OOD_SETS, LabelledData, Material, open_material, origin_of
from hydractl.steps.options import Option, step
from hydractl.steps.references import existing_members, named_circuits
from hydractl.steps.selected import Selected, write_selected
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    from hydractl.circuit.artifact import Circuit
    from hydractl.selection.run import Asked, Choice, Pool

#: What says which candidates there are, which a joint search makes itself.
LISTED = {"search": ("candidates",)}


@step
def select(
    model: Model,
    files: Annotated[
        Sequence[ModelLike],
        Option(
            "Members that exist already, as candidates besides.", "Model", "FILE...", positional=True, goes_with=LISTED
        ),
    ] = (),
    *,
    search: Annotated[
        Literal["candidates", "joint"],
        Option(
            "candidates: members join one by one, from circuits, draws and files. joint: they drop heads in turn, each "
            "the one without which all of them do best together."
        ),
    ] = "candidates",
    circuit: Annotated[
        Sequence[CircuitLike],
        Option("Circuit that candidates follow; repeat it for several.", metavar="FILE", goes_with=LISTED),
    ] = (),
    budgets: Annotated[
        str, Option("How many heads candidates drop, as numbers or shares of all above the trunk.", metavar="6,12,33%")
    ] = "",
    pools: Annotated[
        str,
        Option("Draw candidates from so many first heads of each circuit.", metavar="25,40", goes_with=LISTED),
    ] = "",
    draws: Annotated[
        int, Option("Draws for each circuit, budget and pool.", minimum=1, maximum=1000, goes_with=LISTED)
    ] = 4,
    random: Annotated[
        int, Option("Draws from all heads for each budget.", minimum=0, maximum=1000, goes_with=LISTED)
    ] = 0,
    objective: Annotated[
        Objective, Option("What members do best together: NLL, accuracy, AUROC of MSP, or the mean of these two.")
    ] = "nll",
    members: Annotated[str, Option("How many members, or between which numbers to choose.", metavar="M|A-B")] = "3",
    max_accuracy_drop: Annotated[
        float | None, Option("How much accuracy they may lose against the network, 0 to 1.", minimum=0, maximum=1)
    ] = None,
    max_cost: Annotated[
        float | None,
        Option("Multiply-adds they may have together, as multiples of the network's.", minimum=0.01, maximum=1000),
    ] = None,
    max_parameters: Annotated[
        float | None,
        Option("Parameters they may store together, as multiples of the network's.", minimum=0.01, maximum=1000),
    ] = None,
    share_below: Annotated[
        str, Option("Depths of trunks to try: below layer L all candidates are alike.", metavar="0,2,4")
    ] = "",
    common_circuit: Annotated[
        CircuitLike | None,
        Option(
            "A circuit that says what trunks drop; unless given they keep all heads.",
            metavar="FILE",
            goes_with=LISTED,
        ),
    ] = None,
    without_dense: Annotated[bool, Option("Do not take the network itself as a member.", goes_with=LISTED)] = False,
    seed: Seed = 0,
    id_data: LabelledData,
    ood_data: Annotated[DataSetsLike | None, OOD_SETS] = None,
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
    selection: Annotated[
        str | Path | None, Option("File for the selection, which prune and fuse read.", "Output", "FILE")
    ] = None,
    output: Output = None,
    resume: Annotated[bool, Option("Go on where an interrupted selection was, if one was.", "Output")] = False,
    force: Force = False,
    watch: Watcher = LOG,
) -> Selected:
    """Choose members by what they predict together.

    Candidates are the network itself, what circuits drop at each budget, random draws from their first heads or from
    all, and files. None is written to disk: heads are turned off in memory, and layers that candidates share are
    computed once. Members join one by one, each the one with which the mean of all members' probabilities is best.
    With `search` joint there are none: members drop heads in turn, up to the largest of `budgets`, of which the best
    is taken. That takes as long as a circuit search for each member.

    Example: hydractl select vit --circuit circuit.json --budgets 2,3 --id-data data/pets --ood-data data/noise -o hydra

    Prints how the members do together as they join, and the network itself for comparison; writes the selection as
    JSON, and with `output` the fused members as one safetensors file. Evaluations refuse the data it was made on.

    >>> chosen = hydractl.select("vit", circuit=["circuit.json"], budgets="1,2", members="2",
    ...                          id_data="data/pets", ood_data="data/noise")
    >>> hydractl.load(chosen).members
    2

    Raises:
        ArtifactError: a circuit cannot be read or is of another model, or the run to go on from had other options.
        DataError: data cannot be read, or its labels are not the model's.
        OptionError: no candidates, fewer than members, or options that do not go together.
        OutputError: an output exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.data.ranks import join_ranks
    from hydractl.selection.greedy import require_enough, require_measurable
    from hydractl.selection.run import Asked, choose, pool

    selection, output = as_path(selection), as_path(output)
    _check_outputs(selection, output, force)
    asked = Asked(objective, parse_members(members), max_accuracy_drop, max_cost, max_parameters)
    reading = Reading(limit, classes, template, image_column, text_column, label_column, match_labels)
    material = open_material(model, id_data, ood_data, reading=reading, compute=Compute(device, dtype), watch=watch)
    network = material.checkpoint
    circuits = named_circuits(circuit, network)
    heads = member_heads(network.heads, 0)
    trunks = counts("share_below", share_below, max(tower.layers for tower in network.spec.towers)) or [0]
    common = circuit_of_trunks(common_circuit, trunks, network)
    existing = existing_members(files, network)

    def above(trunk: int) -> Family:
        """The candidates over a trunk; shares are of the heads that they may lack."""
        free = len(heads) if common else sum(head.layer >= trunk for head in heads)
        rankings = {name: one.ranking for name, one in circuits.items()}
        lacking, pooled = counts("budgets", budgets, len(heads), free), counts("pools", pools, len(heads))
        sources = Sources(heads, rankings, lacking, pooled, draws, random, seed, not without_dense)
        return family(sources, trunk, common.ranking if common else ())

    searches = joint_searches(heads, trunks, budgets, members, asked) if search == "joint" else {}
    listed = None if searches else pool(network, [above(trunk) for trunk in trunks], existing)
    # Known before anything has answered.
    require_measurable(objective, bool(material.ood))
    if listed is not None:
        require_enough((asked.members[0],) * 2, max(map(len, listed.families)))
    options = {
        "search": search if searches else None,
        "objective": objective,
        "members": members,
        "max_accuracy_drop": max_accuracy_drop,
        "max_cost": max_cost,
        "max_parameters": max_parameters,
        "budgets": budgets or None,
        "pools": pools or None,
        "draws": draws if pools else None,
        "random": random or None,
        "share_below": share_below or None,
        "without_dense": without_dense or None,
        "seed": seed if pools or random else None,
        **_how(material, batch_size, limit, dtype),
    }
    with join_ranks(material.device) as ranks, _claimed(selection if ranks.leads else None):
        told = watch if ranks.leads else LOG
        data = selection_data(material, batch_size, ranks)
        journal = journal_beside(selection, material, options) if searches else None
        candidates = listed or pool(
            network,
            joint_families(searches, Questions(material, data, batch_size), asked, journal, resume, force, told),
        )
        store = store_beside(selection, material, candidates, options, resume, force) if ranks.leads else None
        choice = choose(answers_of(material, candidates, data, batch_size, store, told), candidates, asked)
        followed = [*circuits.values(), common]
        selected = _selected(material, followed, candidates, choice, asked, options, selection, output)
        if ranks.leads:
            write_selected(selected, force)
            for kept in (store, journal):
                if kept is not None:
                    kept.remove()
    return selected


def _claimed(selection: Path | None) -> AbstractContextManager[None]:
    """The selection's file, and with it its state, as this process's alone."""
    from hydractl.checkpoint.output import claim

    return nullcontext() if selection is None else claim(selection)


def _check_outputs(selection: Path | None, output: Path | None, force: bool) -> None:
    from hydractl.checkpoint.output import refuse_existing

    for path in (selection, output):
        if path is not None:
            refuse_existing(path, force)


def _how(material: Material, batch_size: int, limit: int | None, dtype: Any) -> dict[str, Any]:
    from hydractl.steps.compute import dtype_name

    template = material.template
    return {"batch_size": batch_size, "limit": limit, "dtype": dtype_name(dtype), "template": template}


def _selected(
    material: Material,
    circuits: Sequence[Circuit | None],
    candidates: Pool,
    choice: Choice,
    asked: Asked,
    options: Mapping[str, Any],
    selection: Path | None,
    output: Path | None,
) -> Selected:
    """The result: the artifact, and the members fused; both remember every sample that had a say in them."""
    from hydractl.data.hashes import merged, sketch
    from hydractl.selection.artifact import selection_json
    from hydractl.selection.members import with_selection
    from hydractl.surgery.provenance import samples_behind

    network = material.checkpoint
    used = material.used("selection", "selection OOD")
    own = {name: sketch(samples.content_hashes()) for name, samples in used.items()}
    seen = merged([*(samples_behind(circuits) or {}).items(), *own.items()], network.name)
    origin = {**origin_of(network, options), "search_data": seen}
    fused, files = candidates.fused(choice.selection.chosen), candidates.files_among(choice.selection.chosen)
    return Selected(
        selection_json(choice, candidates, asked, origin),
        with_selection(fused, network, files, options, seen),
        selection,
        output,
    )
