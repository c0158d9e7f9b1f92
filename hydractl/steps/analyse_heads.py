"""Comparing how dropped and kept heads tell ID from OOD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from hydractl import bounds
from hydractl.circuit.head_files import CircuitLike
from hydractl.data.reading import SOURCE, DataLike, Reading
from hydractl.errors import OptionError
from hydractl.inputs.members import named_circuits
from hydractl.inputs.models import Model, PlotOptions, as_member
from hydractl.inputs.result import Finding
from hydractl.inputs.search_data import LabelledData, open_material, origin_of
from hydractl.options import Option, function, option, remembered
from hydractl.run_options import Compute
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.objective import ScoringData
    from hydractl.circuit.separation import Separated
    from hydractl.model.hydra import Hydra


@dataclass(frozen=True, kw_only=True)
class AnalyseHeads:
    """Compare how dropped and kept heads tell ID from OOD.

    For each head of the dense network, computes the distance between the mean outputs over ID and over OOD samples:
    Euclidean, and Mahalanobis by the ID samples' covariance. Reports the means over the heads that the circuit keeps
    and drops, in the last layer and in all.

    Example: hydractl analyse heads vit --circuit avg.json --id-data data/digits:test --ood-data data/far_test

    Prints four lines. `plot` draws each head's distances, with dropped heads crossed out. It also draws the outputs
    of the six heads dropped first and of the six dropped last, on their two principal components.

    >>> found = hydractl.analyse_heads("vit", circuit="circuit.json", budget=2, id_data="data/pets",
    ...                                ood_data="data/noise")
    >>> found.value.all["dropped"].heads
    2

    Source: arXiv 2510.18358, B.2.

    Raises:
        ArtifactError: the circuit cannot be read, or is of another model.
        CheckpointError: the model cannot be read.
        DataError: data cannot be read, or their labels are not the model's.
        OptionError: a budget above the number of ranked heads, or one that leaves no head to compare with.
        OutputError: the picture exists and `force` is not set, or the disk refuses it.
    """

    model: Model
    circuit: Annotated[CircuitLike, Option("The circuit whose heads are compared.", metavar="FILE|-", remembered=False)]
    budget: int | None = option(
        None, "Heads to drop. Default: all that the circuit ranks.", minimum=1, maximum=bounds.HEADS
    )
    id_data: LabelledData
    ood_data: Annotated[DataLike, Option("Out-of-distribution data.", "Data", SOURCE, remembered=False)]
    reading: Reading = Reading()
    compute: Compute = Compute()
    picture: PlotOptions = PlotOptions()

    def run(self, watch: Watcher) -> Finding[Separated]:
        from hydractl.circuit.separation import separated, separations
        from hydractl.data.ranks import Ranks
        from hydractl.data.sources import parse_data
        from hydractl.reports.head_maps import separated_lines

        self.picture.check()
        parse_data(self.ood_data, "OOD data")  # several sets have no single centroid
        checkpoint = as_member(self.model)
        ranking = self._ranking(checkpoint)
        material = open_material(
            checkpoint,
            self.id_data,
            self.ood_data,
            reading=self.reading,
            compute=self.compute,
            watch=watch,
            by_loss=True,
        )
        drawn = 2 * (self.picture.plot is not None)  # each of the two drawn groups of heads takes one more pass
        with watch.progress("analyse", (1 + drawn) * material.samples) as advance:
            data = material.scoring_data(self.compute.batch_size, Ranks(), advance=advance)
            groups = separated(separations(material.model, data), ranking)
            figure = _heads_figure(groups, material.model, data) if drawn else None
        if figure is not None:
            self.picture.write(lambda: figure)
        origin = origin_of(checkpoint, remembered(self, budget=len(ranking), template=material.template))
        return Finding(groups, _heads_json(groups) | origin, list(separated_lines(groups)))

    def _ranking(self, checkpoint: Checkpoint) -> Sequence[Head]:
        """Returns the heads that the circuit drops."""
        from hydractl.checkpoint.heads import member_heads
        from hydractl.surgery.choose import by_ranking

        ((_, circuit),) = named_circuits(self.circuit, checkpoint).items()
        ranking = by_ranking(circuit.ranking, self.budget or len(circuit.ranking))
        kept = set(member_heads(checkpoint.heads, 0))
        if foreign := [head for head in ranking if head not in kept]:
            raise OptionError(
                f"{circuit.name}: drops {foreign[0]}, which {checkpoint.name} does not have: name the circuit's model"
            )
        return ranking


analyse_heads = function(AnalyseHeads)


def _heads_json(separated: Separated) -> dict[str, Any]:
    from hydractl.systems.description import plain

    heads = [
        {**head._asdict(), "dropped": head in separated.dropped, **vars(separation)}
        for head, separation in separated.heads.items()
    ]
    content: dict[str, Any] = plain(
        {"last_layer": separated.last, "all_layers": separated.all, "dropped": separated.dropped, "heads": heads}
    )
    return content


def _heads_figure(separated: Separated, model: Hydra, data: ScoringData) -> Figure:
    from hydractl.circuit.head_files import as_towers
    from hydractl.circuit.separation import shown_heads
    from hydractl.reports.head_maps import separation_figure
    from hydractl.steps.score_heads import about, projections

    maps: dict[str, list[list[float | None]]] = {}
    crossed: dict[str, list[tuple[int, int]]] = {}
    for name in ("euclidean", "mahalanobis"):
        values = {head: getattr(separation, name) for head, separation in separated.heads.items()}
        for tower, rows in as_towers(values, model.spec).items():
            maps[f"{tower} {name}"] = rows
            crossed[f"{tower} {name}"] = [(head.layer, head.head) for head in separated.dropped if head.tower == tower]
    distances = {head: separation.mahalanobis for head, separation in separated.heads.items()}
    groups = {}
    for name, heads in zip(("dropped first", "dropped last"), shown_heads(separated.dropped), strict=True):
        titles = {head: f"{separated.dropped.index(head) + 1}: {about(head, distances)}" for head in heads}
        groups[name] = projections(model, data, titles) if titles else []
    return separation_figure(maps, groups, "distance of ID and OOD means", crossed)
