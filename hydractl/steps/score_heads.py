"""Scoring heads by how much a model needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl.circuit.score_methods import SCORE_METHODS, ScoreMethod, Scoring, taking
from hydractl.data.like import DataLike
from hydractl.data.reading import Reading
from hydractl.errors import OptionError
from hydractl.steps.compute import Compute
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
    Output,
    Plot,
    Template,
    TextColumn,
    as_path,
)
from hydractl.steps.material import SOURCE, open_material, origin_of
from hydractl.steps.options import Option, step
from hydractl.steps.result import Result
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.data import ScoringData
    from hydractl.circuit.objective import Objective
    from hydractl.circuit.score_methods import Scored
    from hydractl.circuit.scores import Scores
    from hydractl.model.hydra import Hydra
    from hydractl.report.separation import Projection

    MethodName = str
else:
    MethodName = Literal[tuple(method.name for method in SCORE_METHODS)]

Rows = list[list[float | None]]

ON_ID_DATA = tuple(method.name for method in SCORE_METHODS if method.id_data)
ON_OOD_DATA = tuple(method.name for method in SCORE_METHODS if method.ood_data)


@dataclass(frozen=True, eq=False, repr=False)
class HeadScores(Result):
    """A score per head, higher = keep.

    Attributes:
        artifact: the scores and how they were made, as plain JSON.
        maps: what there is to see, [L][H] by name.
        output: where the artifact was written, if it was.
    """

    artifact: Mapping[str, Any]
    maps: Mapping[str, Rows]
    output: Path | None = None

    @property
    def scores(self) -> Scores:
        """The scores as `hydractl.prune` goes by them."""
        from hydractl.circuit.scores import scores_of

        return scores_of(self.artifact)

    def to_json(self) -> dict[str, Any]:
        return dict(self.artifact)

    def lines(self) -> Iterator[str]:
        from hydractl.report.heatmap import heat_map

        for name, rows in self.maps.items():
            yield from heat_map(name, rows)
        if self.output is not None:
            yield str(self.output)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.heatmap import extent

        ends = {name: extent(rows) for name, rows in self.maps.items()}
        ranges = {name: f"{low:.4g} to {high:.4g}" for name, (low, high) in ends.items()}
        return {"method": self.artifact["method"]} | ranges

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@step
def score_heads(
    model: Model,
    *,
    method: Annotated[
        MethodName,
        Option(f"How heads are scored: {'; '.join(f'{method.name}: {method.help}' for method in SCORE_METHODS)}."),
    ],
    objective: Annotated[
        Literal["acc", "ood", "avg"],
        Option("What is measured: ID accuracy, AUROC, or their mean.", goes_with={"method": taking("objective")}),
    ] = "avg",
    normalize: Annotated[
        bool, Option("Divide scores by the L2 norm of their layer.", goes_with={"method": taking("normalize")})
    ] = False,
    order: Annotated[
        int,
        Option(
            "Order of the Taylor term that saliencies are of: 2 as published, or 3.",
            minimum=2,
            maximum=3,
            goes_with={"method": taking("order")},
        ),
    ] = 2,
    id_data: Annotated[
        DataLike | None,
        Option(
            "Labelled in-distribution data.",
            heading="Data",
            metavar=SOURCE,
            flags=("--id-data", "--data"),
            goes_with={"method": ON_ID_DATA},
        ),
    ] = None,
    ood_data: Annotated[
        DataLike | None,
        Option("Out-of-distribution data.", heading="Data", metavar=SOURCE, goes_with={"method": ON_OOD_DATA}),
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
    output: Output = None,
    plot: Plot = None,
    force: Force = False,
    watch: Watcher = LOG,
) -> HeadScores:
    """Score each head by how much the model needs it.

    Example: hydractl score-heads vit --id-data cifar10:train --limit 1000 --method taylor

    Writes the scores as JSON, higher = keep, and prints a heat map; prune --method scores goes by them. Separation
    scores by the Mahalanobis distance, and adds the Euclidean distance and the mean of both; with `plot` it also
    draws what the most and the least separating heads say of ID and OOD samples.

    >>> scored = hydractl.score_heads("vit", method="taylor", id_data="data/pets")
    >>> pruned = hydractl.prune("vit", method="scores", scores=scored, budget=3)

    Raises:
        CheckpointError: the model cannot be read.
        DataError: data cannot be read, or their labels are not the model's.
        OptionError: a model of several members, or a method without the data that it needs.
        OutputError: an output exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.checkpoint.heads import require_heads
    from hydractl.data.ranks import join_ranks
    from hydractl.steps.compute import choose_device, dtype_name
    from hydractl.steps.inputs import as_member

    chosen = next(row for row in SCORE_METHODS if row.name == method)
    _require_data(chosen, objective, id_data, ood_data)
    output, plot = as_path(output), as_path(plot)
    _check_outputs(output, plot, force)
    checkpoint, material, options = as_member(model), None, {}
    require_heads(checkpoint.heads, checkpoint.name)
    if id_data is not None:
        reading = Reading(limit, classes, template, image_column, text_column, label_column, match_labels)
        material = open_material(
            checkpoint, id_data, ood_data, reading=reading, compute=Compute(device, dtype), watch=watch
        )
        options = {
            "objective": objective if "objective" in chosen.options else None,
            "normalize": normalize or None,
            "order": order if "order" in chosen.options else None,
            "batch_size": batch_size,
            "limit": limit,
            "dtype": dtype_name(dtype),
            "template": material.template,
        }
    place, pictured = choose_device("cpu") if material is None else material.device, plot and chosen.pictured
    passes = (len(checkpoint.spec.towers) if chosen.each_tower else 1) + bool(pictured)
    total = None if material is None else passes * material.samples
    with join_ranks(place) as ranks, (watch if ranks.leads else LOG).progress("score", total) as advance:
        asked = Scoring(checkpoint, objective=objective, normalize=normalize, order=order)
        if material is not None:
            data = material.scoring_data(batch_size, ranks, advance=lambda done: advance(done * ranks.size))
            asked = replace(asked, model=material.model, data=data)
        found = chosen.score(asked)
        used = {} if material is None else material.used("id", "ood")
        artifact = _artifact(found, checkpoint, method, origin_of(checkpoint, options, used))
        result = HeadScores(artifact, _maps(artifact), output)
        projections = _projections(found, *asked.network) if pictured else ()
        if ranks.leads:
            _write(result, projections, plot, force)
    return result


def _require_data(method: ScoreMethod, objective: Objective, id_data: object, ood_data: DataLike | None) -> None:
    from hydractl.circuit.objective import require_ood_data
    from hydractl.data.spec import parse_data

    if method.id_data and id_data is None:
        raise OptionError(f"`method` {method.name} needs `id_data`: labelled in-distribution samples")
    if "objective" in method.options:
        require_ood_data([objective], ood_data)
    elif method.ood_data and ood_data is None:
        raise OptionError(f"`method` {method.name} needs `ood_data`: out-of-distribution samples")
    if ood_data is not None:
        parse_data(ood_data, "OOD data")  # refuses several sets, of which distances between centroids would be none


def _check_outputs(output: Path | None, plot: Path | None, force: bool) -> None:
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.report.picture import check_picture

    if output is not None:
        refuse_existing(output, force)
    if plot is not None:
        check_picture(plot, force)


def _artifact(found: Scored, checkpoint: Checkpoint, method: str, origin: Mapping[str, Any]) -> dict[str, Any]:
    from hydractl.circuit.scores import as_towers, scores_json

    details = {name: as_towers(values, checkpoint.spec) for name, values in found.details.items()}
    extra = {"distances": details} if details else {}
    return scores_json(found.heads, checkpoint.spec, method, {**extra, **origin})


def _maps(artifact: Mapping[str, Any]) -> dict[str, Rows]:
    """What there is to see: the scores, or in their place all figures there are of a head."""
    details = artifact.get("distances", {})
    maps = {f"{tower} {name}": rows for name, towers in details.items() for tower, rows in towers.items()}
    return maps or artifact["towers"]


def _projections(found: Scored, model: Hydra, data: ScoringData) -> list[Projection]:
    """What the heads with the highest and the lowest scores say of each sample, drawn in two dimensions."""
    from hydractl.circuit.separation import extremes, outputs_on_both
    from hydractl.report.separation import project

    shown = extremes(found.heads)
    inside, outside = outputs_on_both(model, data, list(shown))
    return [project(_title(head, which, found), inside[head], outside[head]) for head, which in shown.items()]


def _title(head: Head, which: str, found: Scored) -> str:
    return f"{which} separating: layer {head.layer}, head {head.head}\nMahalanobis {found.heads[head]:.3g}"


def _write(result: HeadScores, projections: Sequence[Projection], plot: Path | None, force: bool) -> None:
    from hydractl.artifacts import write_json
    from hydractl.report.heatmap import heat_map_figure
    from hydractl.report.picture import write_picture
    from hydractl.report.separation import separation_figure

    if result.output is not None:
        write_json(Path(result.output), result.artifact, force)
    if plot is not None:
        figure = separation_figure(result.maps, projections) if projections else heat_map_figure(result.maps)
        write_picture(figure, plot, force)
