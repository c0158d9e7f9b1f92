"""Measuring what a network loses with each head that goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.data.like import DataSetsLike
from hydractl.data.reading import Reading
from hydractl.errors import OptionError
from hydractl.steps.candidates import existing_members, named_circuits, named_scores
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
    Plot,
    ScoresLike,
    Template,
    TextColumn,
    as_member,
    model_name,
)
from hydractl.steps.material import OOD_SETS, LabelledData, Material, open_material, origin_of
from hydractl.steps.options import Option, step
from hydractl.steps.result import Result
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    from hydractl.analysis.budgets import Cut, Quality
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.circuit.artifact import Circuit
    from hydractl.circuit.scores import Scores
    from hydractl.evaluation.leakage import Leak
    from hydractl.selection.answers import Answering

DENSE = "dense"


@dataclass(frozen=True)
class BudgetPoint:
    """A network at one budget.

    Attributes:
        method: what chose its heads: a circuit, scores, or the name of a file.
        dropped: how many heads it lacks of the network's.
    """

    method: str
    dropped: int
    quality: Quality

    def to_json(self) -> dict[str, Any]:
        quality = self.quality
        return {
            "method": self.method,
            "dropped": self.dropped,
            "accuracy": quality.accuracy,
            "nll": quality.nll,
            "ood": {name: asdict(found) for name, found in quality.ood.items()},
            **{f"mean_{name}": quality.mean(name) for name in ("auroc", "fpr95", "aupr_out") if quality.ood},
        }


@dataclass(frozen=True, eq=False, repr=False)
class AnalysedBudgets(Result):
    """How each method does at each budget; the network itself comes first.

    Attributes:
        origin: how the numbers were made, as plain JSON.
    """

    points: Sequence[BudgetPoint]
    origin: Mapping[str, Any]

    def of(self, method: str) -> list[BudgetPoint]:
        """The curve of one method."""
        return [point for point in self.points if point.method == method]

    def to_json(self) -> dict[str, Any]:
        return {"points": [point.to_json() for point in self.points], **self.origin}

    def lines(self) -> Iterator[str]:
        from hydractl.report.budgets import budget_lines

        return budget_lines(self.to_json()["points"])

    def facts(self) -> Mapping[str, object]:
        return {
            f"{point.method} {point.dropped}": f"accuracy {point.quality.accuracy:.2%}, NLL {point.quality.nll:.4f}"
            for point in self.points
        }

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@step
def analyse_budgets(
    model: Model,
    files: Annotated[
        Sequence[ModelLike],
        Option("Members that exist already, fine-tuned ones too.", heading="Model", metavar="FILE...", positional=True),
    ] = (),
    *,
    circuit: Annotated[
        Sequence[CircuitLike], Option("Circuit whose first heads go; repeat it for several.", metavar="FILE")
    ] = (),
    scores: Annotated[
        Sequence[ScoresLike], Option("Head scores whose lowest go; repeat it for several.", metavar="FILE")
    ] = (),
    budgets: Annotated[
        str,
        Option("How many heads go: of each layer, or numbers or shares of all.", metavar="2,4,6,8/layer|12,24,33%"),
    ] = "",
    id_data: LabelledData,
    ood_data: Annotated[DataSetsLike | None, OOD_SETS] = None,
    allow_leak: Annotated[
        bool, Option("Measure also on samples that heads were chosen on; the result says so.", heading="Data")
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
    plot: Plot = None,
    force: Force = False,
    watch: Watcher = LOG,
) -> AnalysedBudgets:
    """Measure what a network loses with each head that goes.

    Every method drops heads at every budget; the network itself, what is left of it each time, and files of members
    answer in one pass over the data, without a file being written.

    Example: hydractl analyse budgets vit --circuit circuit.json --budgets 1,2/layer --id-data data/pets

    Prints accuracy, NLL and, with `ood_data`, AUROC, FPR95 and AUPR of the maximum softmax probability, means over
    OOD sets; `plot` draws each against the heads that went.

    >>> found = hydractl.analyse_budgets("vit", circuit=["circuit.json"], budgets="1,2", id_data="data/pets",
    ...                                  ood_data="data/noise")
    >>> [(point.method, point.dropped) for point in found.points]
    [('dense', 0), ('circuit', 1), ('circuit', 2)]

    Source: [HE] B.3.

    Raises:
        ArtifactError: a circuit or scores cannot be read, or are of another model.
        DataError: data cannot be read, its labels are not the model's, or heads were chosen on it.
        OptionError: no budgets for a circuit or scores, or more heads than they rank.
        OutputError: the picture exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.analysis.budgets import measure_all
    from hydractl.evaluation.leakage import refuse_leaks
    from hydractl.report.budgets import budget_picture
    from hydractl.report.drawing import whole
    from hydractl.report.picture import check_picture, write_picture
    from hydractl.steps.compute import dtype_name

    if plot is not None:
        check_picture(Path(plot), force)
    checkpoint = as_member(model)
    members = existing_members(files, checkpoint)
    circuits = named_circuits(circuit, checkpoint)
    scored = named_scores(scores, checkpoint)
    cuts = _cuts(checkpoint, circuits, scored, budgets)
    reading = Reading(limit, classes, template, image_column, text_column, label_column, match_labels)
    material = open_material(checkpoint, id_data, ood_data, reading, device, dtype, watch)
    leaks = _leaks(material, [checkpoint, *members], [*circuits.values(), *scored.values()])
    if not allow_leak:
        refuse_leaks(leaks, or_else="pass `allow_leak`, which marks the result")
    with watch.progress("measure", len(material.id) + sum(map(len, material.ood.values()))) as advance:
        qualities = measure_all(
            _networks(material, cuts, members, batch_size),
            material.batches(material.id, batch_size),
            {name: material.batches(samples, batch_size) for name, samples in material.ood.items()},
            material.device,
            advance,
        )
    named = [(cut.method, len(cut.dropped)) for cut in cuts]
    named += [
        (model_name(file), _heads(checkpoint) - _heads(member)) for file, member in zip(files, members, strict=True)
    ]
    points = [BudgetPoint(*name, quality) for name, quality in zip(named, qualities, strict=True)]
    options = {"budgets": budgets or None, "batch_size": batch_size, "limit": limit, "dtype": dtype_name(dtype)}
    leaked = {"leaks": [leak.to_json() for leak in leaks]} if leaks else {}
    found = AnalysedBudgets(points, origin_of(checkpoint, options | {"template": material.template}) | leaked)
    if plot is not None:
        write_picture(whole(budget_picture(found.to_json()["points"])), Path(plot), force)
    return found


def _cuts(
    checkpoint: Checkpoint, circuits: Mapping[str, Circuit], scores: Mapping[str, Scores], budgets: str
) -> list[Cut]:
    """The network itself, and what each method leaves of it at each budget.

    Raises:
        OptionError: methods without budgets or the other way round, or budgets that a method cannot have.
    """
    from hydractl.analysis.budgets import Cut, cuts_of_ranking, cuts_of_scores, parse_budgets
    from hydractl.checkpoint.heads import member_heads

    if bool(budgets) != bool(circuits or scores):
        raise OptionError("`budgets` goes with `circuit` or `scores`, and these with it: give both, or files alone")
    cuts = [Cut(DENSE, frozenset())]
    if not budgets:
        return cuts
    heads = member_heads(checkpoint.heads, 0)
    asked = parse_budgets(budgets, heads)
    for name, one in circuits.items():
        cuts += cuts_of_ranking(name, one.ranking, asked, heads)
    for name, own in scores.items():
        cuts += cuts_of_scores(name, own.of_heads(checkpoint.heads, checkpoint.spec), asked)
    return cuts


def _leaks(material: Material, models: Sequence[Checkpoint], artifacts: Sequence[Circuit | Scores]) -> list[Leak]:
    """The sets with samples that heads were chosen on, or that weights were trained on."""
    from hydractl.evaluation.leakage import find_leaks
    from hydractl.evaluation.sets import EvaluationData, SetKey

    outside = {SetKey("ood", name): samples for name, samples in material.ood.items()}
    data = EvaluationData({SetKey("id", "id"): material.id, **outside})
    histories = [(model.name, model.provenance) for model in models]
    histories += [(artifact.name, {"search_data": artifact.search_data}) for artifact in artifacts]
    return [leak for name, history in histories for leak in find_leaks(name, [history], data)]


def _networks(
    material: Material, cuts: Sequence[Cut], members: Sequence[Checkpoint], batch_size: int
) -> list[Answering]:
    from hydractl.circuit.data import prompt_batches
    from hydractl.inference import load_checkpoint
    from hydractl.selection.forward import Candidates, Members

    model = material.model
    networks: list[Answering] = [
        Candidates(model, [cut.dropped for cut in cuts], prompt_batches(model.class_prompts, batch_size))
    ]
    dtype = next(model.parameters()).dtype
    return networks + [Members(load_checkpoint(member, material.device, dtype)) for member in members]


def _heads(checkpoint: Checkpoint) -> int:
    from hydractl.checkpoint.heads import member_heads

    return len(member_heads(checkpoint.heads, 0))
