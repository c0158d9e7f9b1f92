"""`hydractl score-heads`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hydractl.cli import console
from hydractl.cli.material import DataOptions, Material, open_material
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
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.objective import Objective
    from hydractl.data.ranks import Ranks

ScoreMethod = Literal["taylor", "gate", "magnitude", "separation", "ablation"]
NEED_OOD = ("separation", "ablation")


def score_heads(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face folder or a file of ours.")],
    data: Annotated[str, typer.Option(metavar="[NAME=]SOURCE[:SPLIT]", help="Labelled in-distribution data.")],
    method: Annotated[ScoreMethod, typer.Option(help="How heads are scored.")],
    ood_data: Annotated[
        str | None,
        typer.Option(metavar="[NAME=]SOURCE[:SPLIT]", help="Out-of-distribution data, for separation and ablation."),
    ] = None,
    objective: Annotated[
        Literal["acc", "ood", "avg"], typer.Option(help="What ablation measures: accuracy, AUROC, or their mean.")
    ] = "avg",
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Divide gate scores by the L2 norm of their layer.")
    ] = False,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE|-", help="File to write.")] = Path(
        "scores.json"
    ),
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the scores as well.")] = None,
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

    Writes the scores as JSON, higher = keep, and prints a heat map; prune --method scores goes by them.
    """
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.data.ranks import join_ranks
    from hydractl.report.heatmap import heat_map, import_pyplot, plot_heat_maps
    from hydractl.scoring.artifact import scores_json

    if (ood_data is None) == (method in NEED_OOD):
        raise OptionError(f"--method {method} " + ("needs --ood-data" if ood_data is None else "takes no --ood-data"))
    if normalize and method != "gate":
        raise OptionError(f"--normalize has no effect with --method {method}: leave it out")
    for path in (output, plot):
        if path is not None and str(path) != console.STDOUT:
            refuse_existing(path, force)
    if plot is not None:
        import_pyplot()
    options = DataOptions(limit, classes, template, image_column, text_column, label_column, match_labels)
    material = open_material(model, data, ood_data, options, device, dtype)
    with join_ranks(material.device) as ranks:
        scores, extra = _scores(material, method, objective, normalize, batch_size, ranks)
        if not ranks.leads:
            return
    chosen = {
        "objective": objective if method == "ablation" else None,
        "normalize": normalize or None,
        "batch_size": batch_size,
        "limit": limit,
        "dtype": dtype,
        "template": template if material.model.spec.task == "zero-shot" else None,
    }
    artifact = scores_json(scores, material.model.spec, method, extra | material.origin(chosen))
    console.write_json(output, artifact, force)
    if plot is not None:
        plot_heat_maps(artifact["towers"], plot)
    if str(output) != console.STDOUT:
        for name, rows in artifact["towers"].items():
            print("\n".join(heat_map(name, rows)))
        print(output)


def _scores(
    material: Material, method: ScoreMethod, objective: Objective, normalize: bool, batch_size: int, ranks: Ranks
) -> tuple[Mapping[Head, float], dict[str, Any]]:
    """The scores, and what else the method reports."""
    from hydractl.checkpoint.heads import member_heads
    from hydractl.circuit.ablation import ablation_scores
    from hydractl.scoring.artifact import as_towers
    from hydractl.scoring.gate import gate_scores
    from hydractl.scoring.magnitude import magnitude_scores
    from hydractl.scoring.separation import separations
    from hydractl.scoring.taylor import taylor_scores

    model, heads = material.model, member_heads(material.model.heads, 0)
    if method == "magnitude":
        return magnitude_scores(material.checkpoint), {}
    if method == "ablation":
        return ablation_scores(model, material.search_data(batch_size, ranks), heads, objective), {}
    if method == "separation":
        assert material.ood is not None
        tower = model.spec.towers[0].name
        id_batches, ood_batches = (material.batches(samples, batch_size) for samples in (material.id, material.ood))
        found = separations(model, id_batches, ood_batches, tower, ranks)
        distances = {
            name: as_towers({head: getattr(entry, name) for head, entry in found.items()}, model.spec)
            for name in ("euclidean", "mahalanobis")
        }
        return {head: entry.mahalanobis for head, entry in found.items()}, {"distances": distances}
    data = material.scoring_data(batch_size, ranks)
    if method == "taylor":
        return taylor_scores(model, data, heads), {}
    towers = [tower.name for tower in model.spec.towers]
    scores = [gate_scores(model, data, tower, normalize) for tower in towers]
    return {head: value for part in scores for head, value in part.items()}, {}
