"""Scoring heads and MLP units by how much a model needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.artifacts import write_json
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, require_heads
from hydractl.checkpoint.output import refuse_existing
from hydractl.circuit.head_files import ScoreTable, as_towers, scores_json, scores_of
from hydractl.circuit.objective import Material, ScoringData
from hydractl.circuit.score_methods import SCORE_METHODS, Scored, ScoreMethod, Scoring
from hydractl.data.reading import Reading
from hydractl.inputs.models import Model, PlotOptions, as_member
from hydractl.inputs.result import Result
from hydractl.inputs.search_data import open_material, origin_of
from hydractl.options import Option, Rows, function, remembered
from hydractl.run_options import Compute, Output, choose_device
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    from hydractl.model.hydra import Hydra
    from hydractl.reports.head_maps import HeadMap, Projection


@dataclass(frozen=True, eq=False, repr=False)
class HeadScores(Result):
    """A score per head, higher = keep.

    Attributes:
        artifact: the scores and their origin, as plain JSON.
        output: where the artifact was written, if it was.
    """

    artifact: Mapping[str, Any]
    output: Path | None = None

    @property
    def scores(self) -> ScoreTable:
        """The scores, for `hydractl.prune`."""
        return scores_of(self.artifact)

    @property
    def maps(self) -> Mapping[str, HeadMap]:
        """A value per head, [L][H] by name: the scores, or all figures of a head if there are several."""
        details = self.artifact.get("distances", {})
        maps = {f"{tower} {name}": rows for name, towers in details.items() for tower, rows in towers.items()}
        return maps or self.artifact["towers"]

    def to_json(self) -> dict[str, Any]:
        return dict(self.artifact)

    def lines(self) -> Iterator[str]:
        from hydractl.reports.head_maps import heat_map

        for name, rows in self.maps.items():
            yield from heat_map(name, rows)
        if self.output is not None:
            yield str(self.output)


@dataclass(frozen=True, kw_only=True)
class ScoreHeads:
    """Score each head by how much the model needs it.

    Example: hydractl score-heads vit --id-data cifar10:train --limit 1000 --method taylor

    Writes the scores as JSON, higher = keep, and prints a heat map; prune --method scores uses them. `units` adds those
    of MLP units. Separation scores by the Mahalanobis distance, and adds the Euclidean distance and the mean of both;
    its `plot` also draws the outputs of the most and the least separating heads for ID and OOD samples.

    >>> scored = hydractl.score_heads("vit", method="taylor", id_data="data/pets")
    >>> pruned = hydractl.prune("vit", method="scores", scores=scored, budget=3)

    Raises:
        CheckpointError: the model cannot be read.
        DataError: data cannot be read, or their labels are not the model's.
        OptionError: a model of several members, or a method without the data that it needs.
        OutputError: an output exists and `force` is not set, or the disk refuses it.
    """

    model: Model
    method: Annotated[
        ScoreMethod,
        Option(
            f"Method of scoring heads: {'; '.join(f'{row.name}: {row.help}' for row in SCORE_METHODS)}.",
            remembered=False,
        ),
        Rows(SCORE_METHODS),
    ]
    reading: Reading = Reading()
    compute: Compute = Compute()
    output: Output = None
    picture: PlotOptions = PlotOptions()

    def run(self, watch: Watcher) -> HeadScores:
        output = None if self.output is None else Path(self.output)
        self.picture.check()
        if output is not None:
            refuse_existing(output, self.picture.force)
        checkpoint = as_member(self.model)
        require_heads(checkpoint.heads, checkpoint.name)
        from hydractl.data.ranks import join_ranks
        from hydractl.reports.head_maps import heat_map_figure, separation_figure
        from hydractl.tasks.all_tasks import find_task

        settled = replace(self, method=self.method.for_task(find_task(checkpoint.spec.task)))
        material = self._material(checkpoint, watch)
        shown = self.picture.plot is not None and self.method.pictured
        with join_ranks(choose_device("cpu") if material is None else material.device) as ranks:
            passes = 1 + shown + getattr(self.method, "units", False)
            total = None if material is None else passes * material.samples
            with (watch if ranks.leads else LOG).progress("score", total) as advance:
                scoring = Scoring(checkpoint)
                if material is not None:
                    data = material.scoring_data(
                        self.compute.batch_size, ranks, advance=lambda done: advance(done * ranks.size)
                    )
                    scoring = Scoring(checkpoint, (material.model, data))
                scored = settled.method.score(scoring)
                result = HeadScores(settled._artifact(scored, checkpoint, material), output)
                pictured = _extremes(scored, scoring) if shown else ()
            if ranks.leads:
                if output is not None:
                    write_json(output, result.artifact, self.picture.force)
                self.picture.write(
                    lambda: separation_figure(result.maps, {"": pictured}) if pictured else heat_map_figure(result.maps)
                )
        return result

    def _material(self, checkpoint: Checkpoint, watch: Watcher) -> Material | None:
        """Returns the network and its samples; None for a method without data."""
        id_data, ood_data = (getattr(self.method, name, None) for name in ("id_data", "ood_data"))
        if id_data is None:
            return None
        return open_material(
            checkpoint,
            id_data,
            ood_data,
            reading=self.reading,
            compute=self.compute,
            watch=watch,
            by_loss=self.method.by_loss,
        )

    def _artifact(self, scored: Scored, checkpoint: Checkpoint, material: Material | None) -> dict[str, Any]:
        details = {name: as_towers(values, checkpoint.spec) for name, values in scored.details.items()}
        extra = {"distances": details} if details else {}
        if material is None:
            origin = origin_of(checkpoint, remembered(self.method))
        else:
            options = remembered(self, template=material.template)
            origin = origin_of(checkpoint, options, material.used("id", "ood"))
        return scores_json(scored.heads, scored.units, checkpoint.spec, self.method.name, origin={**extra, **origin})


score_heads = function(ScoreHeads)


def _extremes(scored: Scored, scoring: Scoring) -> list[Projection]:
    """Returns the outputs of the heads with the highest and the lowest scores, in two dimensions."""
    from hydractl.circuit.separation import extremes

    titles = {
        head: f"{which} separating: {about(head, scored.heads)}" for head, which in extremes(scored.heads).items()
    }
    return projections(*scoring.network, titles)


def about(head: Head, distances: Mapping[Head, float]) -> str:
    """Returns the title of a head's picture, without its beginning."""
    return f"layer {head.layer}, head {head.head}\nMahalanobis {distances[head]:.3g}"


def projections(model: Hydra, data: ScoringData, titles: Mapping[Head, str]) -> list[Projection]:
    """Returns the outputs of the titled heads for ID and OOD samples, in two dimensions."""
    from hydractl.circuit.separation import outputs_of
    from hydractl.reports.head_maps import project

    id_outputs = outputs_of(model, data.id, list(titles), samples=data.id_samples, ranks=data.ranks)
    ood_outputs = outputs_of(model, data.ood, list(titles), samples=data.ood_samples, ranks=data.ranks)
    return [project(title, id_outputs[head], ood_outputs[head]) for head, title in titles.items()]
