"""Analyses of heads, members and noise: each measures, prints a table and draws a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from hydractl import bounds
from hydractl.circuit.circuit_file import CircuitLike
from hydractl.data.corruptions import describe_kinds
from hydractl.data.reading import SOURCE, DataLike, Reading
from hydractl.errors import OptionError
from hydractl.inputs.arguments import Model, ModelLike, PlotOptions, as_member
from hydractl.inputs.references import named_circuits
from hydractl.inputs.result import Finding
from hydractl.inputs.search_data import LabelledData, open_material, origin_of
from hydractl.options import Option, Without, function, option, remembered
from hydractl.run_options import Compute, Seed
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hydractl.analysis.head_groups import Separated
    from hydractl.analysis.noise import NoiseAnalysis
    from hydractl.analysis.similarity import Similarity
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.objective import ScoringData
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
        from hydractl.analysis.head_groups import separated
        from hydractl.circuit.separation import separations
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
            found = separated(separations(material.model, data), ranking)
            figure = _heads_figure(found, material.model, data) if drawn else None
        if figure is not None:
            self.picture.write(lambda: figure)
        origin = origin_of(checkpoint, remembered(self, budget=len(ranking), template=material.template))
        return Finding(found, _heads_json(found) | origin, list(separated_lines(found)))

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


def _heads_json(found: Separated) -> dict[str, Any]:
    from hydractl.evaluation.results import plain

    heads = [
        {**head._asdict(), "dropped": head in found.dropped, **vars(separation)}
        for head, separation in found.heads.items()
    ]
    content: dict[str, Any] = plain(
        {"last_layer": found.last, "all_layers": found.all, "dropped": found.dropped, "heads": heads}
    )
    return content


def _heads_figure(found: Separated, model: Hydra, data: ScoringData) -> Figure:
    from hydractl.analysis.head_groups import shown_heads
    from hydractl.circuit.scores import as_towers
    from hydractl.reports.head_maps import separation_figure
    from hydractl.steps.score_heads import about, projections

    maps: dict[str, list[list[float | None]]] = {}
    crossed: dict[str, list[tuple[int, int]]] = {}
    for name in ("euclidean", "mahalanobis"):
        values = {head: getattr(separation, name) for head, separation in found.heads.items()}
        for tower, rows in as_towers(values, model.spec).items():
            maps[f"{tower} {name}"] = rows
            crossed[f"{tower} {name}"] = [(head.layer, head.head) for head in found.dropped if head.tower == tower]
    distances = {head: separation.mahalanobis for head, separation in found.heads.items()}
    groups = {}
    for name, heads in zip(("dropped first", "dropped last"), shown_heads(found.dropped), strict=True):
        titles = {head: f"{found.dropped.index(head) + 1}: {about(head, distances)}" for head in heads}
        groups[name] = projections(model, data, titles) if titles else []
    return separation_figure(maps, groups, "distance of ID and OOD means", crossed)


@dataclass(frozen=True, kw_only=True)
class AnalyseMembers:
    """Compare the answers and the weights of an ensemble's members.

    For each pair of members, computes the share of samples to which they give different labels, the mean divergence
    KL(row || column) of their probabilities in nats, and the mean cosine of their logits. The fourth matrix holds the
    cosine of what both changed in the weights of their shared network, or of the first member if they share
    none.

    Example: hydractl analyse members lora.safetensors --data data/digits:test --plot members.png

    Prints a matrix for each; `plot` draws them.

    >>> found = hydractl.analyse_members("hydra", data="data/pets")
    >>> found.value.disagreement.shape
    (2, 2)

    Raises:
        CheckpointError: the model cannot be read.
        DataError: a sample cannot be read.
        OptionError: a single member, or a zero-shot model without `classes`.
        OutputError: the picture exists and `force` is not set, or the disk refuses it.
    """

    model: Model
    data: Annotated[
        DataLike, Option("Samples for the members to answer; labels are not read.", "Data", SOURCE, remembered=False)
    ]
    reading: Annotated[Reading, Without("label_column", "match_labels")] = Reading()
    compute: Compute = Compute()
    picture: PlotOptions = PlotOptions()

    def run(self, watch: Watcher) -> Finding[Similarity]:
        from hydractl.analysis.similarity import require_several, similarity
        from hydractl.data.labels import name_classes
        from hydractl.data.open import open_samples
        from hydractl.evaluation.results import plain
        from hydractl.inputs.arguments import as_checkpoint
        from hydractl.inputs.models import running
        from hydractl.reports.analyses import similarity_figure, similarity_lines
        from hydractl.tasks.all_tasks import require_one_class

        self.picture.check()
        checkpoint, reading = as_checkpoint(self.model), self.reading
        require_several(checkpoint)
        require_one_class(checkpoint.spec, "this analysis", "compare members by predict instead")
        network = running(checkpoint, self.compute)
        name_classes(network, reading.classes, reading.template)
        texts = network.spec.modality == "text"
        samples = open_samples(self.data, "text" if texts else "image", reading)
        with watch.progress("analyse members", len(samples)) as advance:
            inputs = (samples.inputs[place] for place in range(len(samples)))
            logits = network.predict(inputs, self.compute.batch_size, advance).member_logits
        found = similarity(checkpoint, logits, network.temperature)
        self.picture.write(lambda: similarity_figure(found))
        options = remembered(self, template=reading.template if network.spec.prompted else None)
        first = {"samples": len(samples), "weights_from": found.weights_from}
        content = {**first, **plain(found), **origin_of(checkpoint, options)}
        return Finding(found, content, list(similarity_lines(found)))


analyse_members = function(AnalyseMembers)


@dataclass(frozen=True)
class AnalyseNoise:
    """Test whether pruning hurts more on noisy data than on clean.

    With dtheta the change of the weights by pruning, the loss on noisy data grows to first order by the inner product
    of its gradient with dtheta. It grows by more than the loss on clean data if diag(H_n - H_t), the difference of
    their curvatures, is positive. Reports the inner product, the mean curvature and the share of it that is positive
    with their standard errors, and the losses of both networks.

    Example: hydractl analyse noise vit m1 --id-data data/digits:test --corrupt noise:5

    Prints a line for clean data and for each kind and severity; `plot` draws them.

    >>> found = hydractl.analyse_noise("vit", hydractl.prune("vit", method="random", budget=1), id_data="data/pets",
    ...                                corrupt="contrast:5", noise_draws=2)
    >>> found.value.dropped
    1

    Source: arXiv 2510.18358, Proposition 1 and B.1.

    Raises:
        CheckpointError: a model cannot be read.
        DataError: the data cannot be read, or its labels are not the model's.
        OptionError: a pruned network that is not of the model, an unknown corruption, or texts.
        OutputError: the picture exists and `force` is not set, or the disk refuses it.
    """

    model: Model
    pruned: Annotated[
        ModelLike,
        Option("The same model after prune, not fine-tuned.", "Model", "PRUNED", positional=True, remembered=False),
    ]
    corrupt: Annotated[str, Option(f"Make the data noisy: {describe_kinds()}.", metavar="KIND,...[:1-5]")] = field(
        kw_only=True
    )
    noise_draws: int = option(
        16, "Random signs for the estimate of the curvature; its error is reported.", minimum=2, maximum=bounds.DRAWS
    )
    seed: Seed = 0
    id_data: LabelledData = field(kw_only=True)
    reading: Annotated[Reading, Without("text_column")] = Reading()
    # Gradients of gradients keep every activation of a batch.
    compute: Compute = Compute(batch_size=16)
    picture: PlotOptions = PlotOptions()

    def run(self, watch: Watcher) -> Finding[NoiseAnalysis]:
        from hydractl.analysis.noise import analyse_noise, heads_taken
        from hydractl.data.corruptions import corrupted, parse_corruptions
        from hydractl.data.ranks import Ranks
        from hydractl.evaluation.results import plain
        from hydractl.reports.analyses import noise_lines, noise_picture
        from hydractl.tasks.all_tasks import require_one_class

        self.picture.check()
        corruptions = parse_corruptions(self.corrupt)
        checkpoint, other = as_member(self.model), as_member(self.pruned)
        require_one_class(checkpoint.spec, "this analysis", "evaluate the pruned network instead")
        if checkpoint.spec.modality == "text":
            raise OptionError(f"{checkpoint.name} reads texts: `corrupt` is noise for images")
        dropped = heads_taken(checkpoint, other)
        material = open_material(
            checkpoint, self.id_data, None, reading=self.reading, compute=self.compute, watch=watch
        )
        with watch.progress("analyse", 2 * len(material.id) * (1 + len(corruptions))) as advance:
            size = self.compute.batch_size
            shifts = (
                (kind.name, severity, replace(material, id=corrupted(material.id, kind, severity, self.seed)))
                for kind, severity in corruptions
            )
            clean = material.scoring_data(size, Ranks())
            noisy = ((name, severity, shifted.scoring_data(size, Ranks())) for name, severity, shifted in shifts)
            analysis = analyse_noise(
                material.model, dropped, clean, noisy, draws=self.noise_draws, seed=self.seed, progress=advance
            )
        self.picture.write(lambda: noise_picture(analysis))
        origin = origin_of(checkpoint, remembered(self, template=material.template))
        return Finding(analysis, plain(analysis) | origin, list(noise_lines(analysis)))


analyse_noise = function(AnalyseNoise)
