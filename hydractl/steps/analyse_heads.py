"""Asking whether the heads that a circuit drops tell ID from OOD samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    Limit,
    MatchLabels,
    Model,
    Plot,
    Template,
    TextColumn,
)
from hydractl.steps.material import SOURCE, LabelledData, open_material, origin_of
from hydractl.steps.options import Option, step
from hydractl.steps.result import Result
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hydractl.analysis.heads import Group, Separated
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.artifact import Circuit
    from hydractl.circuit.data import ScoringData
    from hydractl.model.hydra import Hydra
    from hydractl.report.separation import Projection


@dataclass(frozen=True, eq=False, repr=False)
class AnalysedHeads(Result):
    """How well the heads that a circuit keeps and drops tell ID from OOD samples.

    Attributes:
        separated: all numbers; what each means stands there.
        origin: how they were made, as plain JSON.
    """

    separated: Separated
    origin: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        found, dropped = self.separated, set(self.separated.dropped)
        heads = [
            {**head._asdict(), "dropped": head in dropped, **asdict(separation)}
            for head, separation in found.heads.items()
        ]
        return {
            "last_layer": _as_json(found.last),
            "all_layers": _as_json(found.all),
            "dropped": [head._asdict() for head in found.dropped],
            "heads": heads,
            **self.origin,
        }

    def lines(self) -> Iterator[str]:
        from hydractl.report.heads import separated_lines

        return separated_lines(self.separated)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.heads import separated_facts

        return separated_facts(self.separated)

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@step
def analyse_heads(
    model: Model,
    *,
    circuit: Annotated[CircuitLike, Option("The circuit whose heads are compared.", metavar="FILE|-")],
    budget: Annotated[
        int | None,
        Option("Heads that are dropped; all that it ranks unless given.", minimum=1, maximum=bounds.HEADS),
    ] = None,
    id_data: LabelledData,
    ood_data: Annotated[DataLike, Option("Out-of-distribution data.", heading="Data", metavar=SOURCE)],
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
) -> AnalysedHeads:
    """Compare how dropped and kept heads tell ID from OOD.

    Of each head of the dense network, the distance between the mean outputs over ID and over OOD samples: Euclidean,
    and Mahalanobis by the ID samples' covariance. Reported are their means over the heads that the circuit keeps and
    drops, in the last layer and in all.

    Example: hydractl analyse heads vit --circuit avg.json --id-data data/digits:test --ood-data data/far_test

    Prints four lines; `plot` draws each head's distances, dropped ones crossed out, and what the six heads that are
    dropped first and the six that are dropped last say of each sample, on their two principal components.

    >>> found = hydractl.analyse_heads("vit", circuit="circuit.json", budget=2, id_data="data/pets",
    ...                                ood_data="data/noise")
    >>> found.separated.all["dropped"].heads
    2

    Source: [HE] B.2.

    Raises:
        ArtifactError: a circuit that cannot be read, or of another model.
        CheckpointError: the model cannot be read.
        DataError: data cannot be read, or their labels are not the model's.
        OptionError: a budget that the circuit does not rank, or one that leaves no head to compare with.
        OutputError: the picture exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.analysis.heads import separated
    from hydractl.circuit.separation import separations
    from hydractl.data.ranks import Ranks
    from hydractl.data.spec import parse_data
    from hydractl.report.picture import check_picture, write_picture
    from hydractl.steps.compute import dtype_name
    from hydractl.steps.inputs import as_circuit, as_member

    if plot is not None:
        check_picture(Path(plot), force)
    parse_data(ood_data, "OOD data")  # refuses several sets, which have no one centroid
    checkpoint, followed = as_member(model), as_circuit(circuit)
    ranking = _ranking(checkpoint, followed, budget)
    reading = Reading(limit, classes, template, image_column, text_column, label_column, match_labels)
    material = open_material(checkpoint, id_data, ood_data, reading, device, dtype, watch)
    drawn = 2 * (plot is not None)  # once more for each of the two groups of heads that are shown
    with watch.progress("analyse", (1 + drawn) * material.samples) as advance:
        data = material.scoring_data(batch_size, Ranks(), advance=advance)
        found = separated(separations(material.model, data), ranking)
        figure = _figure(found, material.model, data) if plot is not None else None
    options: dict[str, Any] = {"budget": len(ranking), "batch_size": batch_size, "limit": limit}
    options |= {"dtype": dtype_name(dtype), "template": material.template}
    if plot is not None and figure is not None:
        write_picture(figure, Path(plot), force)
    return AnalysedHeads(found, origin_of(checkpoint, options))


def _ranking(checkpoint: Checkpoint, circuit: Circuit, budget: int | None) -> Sequence[Head]:
    """The heads that the circuit drops."""
    from hydractl.checkpoint.heads import member_heads
    from hydractl.surgery.choose import by_ranking
    from hydractl.surgery.provenance import require_same_model

    require_same_model(checkpoint, circuit.name, circuit.model)
    ranking = by_ranking(circuit.ranking, budget or len(circuit.ranking))
    kept = set(member_heads(checkpoint.heads, 0))
    if foreign := [head for head in ranking if head not in kept]:
        raise OptionError(f"{circuit.name}: drops {foreign[0]}, which {checkpoint.name} has not: name its own model")
    return ranking


def _figure(found: Separated, model: Hydra, data: ScoringData) -> Figure:
    from hydractl.analysis.heads import shown
    from hydractl.circuit.scores import as_towers
    from hydractl.report.heads import heads_figure

    maps: dict[str, list[list[float | None]]] = {}
    crossed: dict[str, list[tuple[int, int]]] = {}
    for name in ("euclidean", "mahalanobis"):
        values = {head: getattr(separation, name) for head, separation in found.heads.items()}
        for tower, rows in as_towers(values, model.spec).items():
            title = f"{tower} {name}"
            maps[title] = rows
            crossed[title] = [(head.layer, head.head) for head in found.dropped if head.tower == tower]
    first, last = (_projections(heads, found, model, data) for heads in shown(found.dropped))
    return heads_figure(maps, crossed, first, last)


def _projections(heads: Sequence[Head], found: Separated, model: Hydra, data: ScoringData) -> list[Projection]:
    from hydractl.circuit.separation import outputs_of
    from hydractl.report.separation import project

    if not heads:
        return []
    sets = ((data.id, data.id_samples), (data.ood, data.ood_samples))
    inside, outside = (outputs_of(model, batches, heads, count, data.ranks) for batches, count in sets)
    return [
        project(
            f"{found.dropped.index(head) + 1}: layer {head.layer}, head {head.head}\n"
            f"Mahalanobis {found.heads[head].mahalanobis:.3g}",
            inside[head],
            outside[head],
        )
        for head in heads
    ]


def _as_json(groups: Mapping[str, Group]) -> dict[str, Any]:
    return {name: asdict(group) for name, group in groups.items()}
