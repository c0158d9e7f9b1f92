"""`hydractl score-heads`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from hydractl.cli import console
from hydractl.cli.material import DataOptions, Material, open_material, open_single, origin_of
from hydractl.cli.options import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_TEMPLATE,
    BatchSize,
    Classes,
    Device,
    Dtype,
    DtypeName,
    Force,
    ImageColumn,
    LabelColumn,
    Limit,
    MatchLabels,
    Model,
    Plot,
    Quiet,
    Template,
    TextColumn,
    Token,
)
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.heads import Head
    from hydractl.checkpoint.spec import ModelSpec
    from hydractl.data.ranks import Ranks
    from hydractl.report.separation import Projection
    from hydractl.scoring.objective import Objective

ScoreMethod = Literal["taylor", "gate", "magnitude", "separation", "ablation"]
NEED_OOD = ("separation", "ablation")
DISTANCES = ("mahalanobis", "euclidean", "mean")  # the first is the score
PICTURED = 2  # heads whose outputs are drawn, of the most and of the least separating

Rows = list[list[float]]
Towers = dict[str, Rows]

Data = Annotated[
    str | None,
    typer.Option(metavar="[NAME=]SOURCE[:SPLIT]", help="Labelled in-distribution data; magnitude needs none."),
]
OodData = Annotated[
    str | None,
    typer.Option(metavar="[NAME=]SOURCE[:SPLIT]", help="Out-of-distribution data, for separation and ablation."),
]
Method = Annotated[ScoreMethod, typer.Option(help="How heads are scored.")]
Measured = Annotated[
    Literal["acc", "ood", "avg"], typer.Option(help="What ablation measures: accuracy, AUROC, or their mean.")
]
Normalize = Annotated[bool, typer.Option("--normalize", help="Divide gate scores by the L2 norm of their layer.")]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE|-", help="File to write.")]


class Asked(NamedTuple):
    """What is to be computed."""

    method: ScoreMethod
    objective: Objective
    normalize: bool
    batch_size: int
    pictured: bool


@dataclass(frozen=True)
class Found:
    """Scores, and what separation reports besides."""

    scores: Mapping[Head, float]
    distances: Mapping[str, Towers] = field(default_factory=dict)
    projections: Sequence[Projection] = ()


def score_heads(
    model: Model,
    *,
    data: Data = None,
    method: Method,
    ood_data: OodData = None,
    objective: Measured = "avg",
    normalize: Normalize = False,
    output: Output = Path("scores.json"),
    plot: Plot = None,
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
    """Score each head by how much the model needs it.

    Example: hydractl score-heads vit --data cifar10:train --limit 1000 --method taylor

    Writes the scores as JSON, higher = keep, and prints a heat map; prune --method scores goes by them. Separation
    scores by the Mahalanobis distance, and adds the Euclidean distance and the mean of both; with --plot it also
    draws what the most and the least separating heads say of ID and OOD samples.
    """
    from hydractl.scoring.artifact import scores_json

    asked = Asked(method, objective, normalize, batch_size, plot is not None)
    _check_options(asked, data, ood_data)
    _check_outputs(output, plot, force)
    reading = DataOptions(limit, classes, template, image_column, text_column, label_column, match_labels)
    result = _score(model, data, ood_data, asked, reading, device, dtype)
    if result is None:
        return
    found, spec, origin = result
    extra = {"distances": found.distances} if found.distances else {}
    artifact = scores_json(found.scores, spec, method, extra | origin)
    console.write_json(output, artifact, force)
    maps = {f"{tower} {name}": rows for name, towers in found.distances.items() for tower, rows in towers.items()}
    maps = maps or artifact["towers"]
    if plot is not None:
        _draw(maps, found.projections, plot, force)
    if str(output) != console.STDOUT:
        _print(maps)
        print(output)


def _check_options(asked: Asked, data: str | None, ood_data: str | None) -> None:
    method = asked.method
    if (data is None) != (method == "magnitude"):
        raise OptionError(f"--method {method} " + ("needs --data" if data is None else "takes no --data"))
    if (ood_data is None) == (method in NEED_OOD):
        raise OptionError(f"--method {method} " + ("needs --ood-data" if ood_data is None else "takes no --ood-data"))
    if asked.normalize and method != "gate":
        raise OptionError(f"--normalize has no effect with --method {method}: leave it out")


def _check_outputs(output: Path, plot: Path | None, force: bool) -> None:
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.report.picture import check_picture

    if str(output) != console.STDOUT:
        refuse_existing(output, force)
    if plot is not None:
        check_picture(plot, force)


def _score(
    reference: str,
    data: str | None,
    ood_data: str | None,
    asked: Asked,
    reading: DataOptions,
    device: str,
    dtype: DtypeName | None,
) -> tuple[Found, ModelSpec, dict[str, Any]] | None:
    """What was found, of which model, and how; None on ranks that do not write."""
    import torch

    from hydractl.data.ranks import join_ranks
    from hydractl.scoring.magnitude import magnitude_scores

    if data is None:  # all there is to know stands in the file
        checkpoint = open_single(reference)
        with join_ranks(torch.device("cpu")) as ranks:
            found = Found(magnitude_scores(checkpoint))
        return (found, checkpoint.spec, origin_of(checkpoint, {}, {})) if ranks.leads else None
    material = open_material(reference, data, ood_data, reading, device, dtype)
    with join_ranks(material.device) as ranks:
        found = _by_data(material, asked, ranks)
    options = {
        "objective": asked.objective if asked.method == "ablation" else None,
        "normalize": asked.normalize or None,
        "batch_size": asked.batch_size,
        "limit": reading.limit,
        "dtype": dtype,
        "template": reading.template if material.model.spec.task == "zero-shot" else None,
    }
    return (found, material.model.spec, material.origin(options)) if ranks.leads else None


def _by_data(material: Material, asked: Asked, ranks: Ranks) -> Found:
    """The scores of a method that runs the model."""
    from hydractl.checkpoint.heads import member_heads
    from hydractl.scoring.ablation import ablation_scores
    from hydractl.scoring.gate import gate_scores
    from hydractl.scoring.taylor import taylor_scores

    model, heads = material.model, member_heads(material.model.heads, 0)
    if asked.method == "ablation":
        return Found(ablation_scores(model, material.scoring_data(asked.batch_size, ranks), heads, asked.objective))
    if asked.method == "separation":
        return _separations(material, asked, ranks)
    data = material.scoring_data(asked.batch_size, ranks)
    if asked.method == "taylor":
        return Found(taylor_scores(model, data, heads))
    towers = [tower.name for tower in model.spec.towers]
    scores = [gate_scores(model, data, tower, asked.normalize) for tower in towers]
    return Found({head: value for part in scores for head, value in part.items()})


def _separations(material: Material, asked: Asked, ranks: Ranks) -> Found:
    from hydractl.report.separation import project
    from hydractl.scoring.artifact import as_towers
    from hydractl.scoring.separation import outputs_of, separations

    model, data = material.model, material.scoring_data(asked.batch_size, ranks)
    found = separations(model, data)
    distances = {
        name: as_towers({head: getattr(entry, name) for head, entry in found.items()}, model.spec) for name in DISTANCES
    }
    scores = {head: entry.mahalanobis for head, entry in found.items()}
    if not asked.pictured:
        return Found(scores, distances)
    titles = _pictured(scores)
    sets = ((data.id, data.id_samples), (data.ood, data.ood_samples))
    inside, outside = (outputs_of(model, batches, list(titles), count, ranks) for batches, count in sets)
    return Found(scores, distances, [project(title, inside[head], outside[head]) for head, title in titles.items()])


def _pictured(scores: Mapping[Head, float]) -> dict[Head, str]:
    """The heads whose outputs are drawn, with the titles of their panels."""
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    count = max(1, min(PICTURED, len(ranked) // 2))
    chosen = [(head, "most") for head in ranked[:count]] + [(head, "least") for head in ranked[count:][-count:]]
    return {
        head: f"{which} separating: layer {head.layer}, head {head.head}\nMahalanobis {scores[head]:.3g}"
        for head, which in chosen
    }


def _draw(maps: Mapping[str, Rows], projections: Sequence[Projection], path: Path, force: bool) -> None:
    from hydractl.report.heatmap import heat_map_figure
    from hydractl.report.picture import write_picture
    from hydractl.report.separation import separation_figure

    write_picture(separation_figure(maps, projections) if projections else heat_map_figure(maps), path, force)


def _print(maps: Mapping[str, Rows]) -> None:
    from hydractl.report.heatmap import heat_map

    for name, rows in maps.items():
        print("\n".join(heat_map(name, rows)))
