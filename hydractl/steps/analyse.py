"""Analyses of networks: what heads cost, what they tell apart, how alike members are, what noise adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from hydractl import bounds
from hydractl.data.corruptions import describe_kinds
from hydractl.data.reading import DataLike, DataSetsLike, Reading
from hydractl.errors import OptionError
from hydractl.options import Option, Without, function, remembered
from hydractl.steps.compute import Compute
from hydractl.steps.inputs import CircuitLike, Model, ModelLike, PlotOptions, ScoresLike, Seed, as_member, model_name
from hydractl.steps.material import LABELLED, OOD_SETS, SOURCE, LabelledData, Material, open_material, origin_of
from hydractl.steps.references import existing_members, named_circuits, named_scores
from hydractl.steps.result import Result
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hydractl.analysis.budgets import Cut, PrunedQuality
    from hydractl.analysis.head_groups import Separated
    from hydractl.analysis.noise import NoiseAnalysis, NoiseEffect
    from hydractl.analysis.similarity import Similarity
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.circuit_file import Circuit
    from hydractl.circuit.objective import ScoringData
    from hydractl.circuit.scores import Scores
    from hydractl.data.corruptions import Corruption
    from hydractl.evaluation.sets import Leak
    from hydractl.model.hydra import Hydra
    from hydractl.report.heads import Projection
    from hydractl.selection.answers import Answering

DENSE = "dense"


class Analysis(Result):
    """A result that shows its table wherever it is shown."""

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True)
class BudgetPoint:
    """A network at one budget.

    Attributes:
        method: what chose its heads: a circuit, scores, or the name of a file.
        dropped: how many of the network's heads it lacks.
    """

    method: str
    dropped: int
    quality: PrunedQuality

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
class AnalysedBudgets(Analysis):
    """Every method at every budget; the network itself comes first.

    Attributes:
        origin: how the numbers were made, as plain JSON.
    """

    points: Sequence[BudgetPoint]
    origin: Mapping[str, Any]

    def of(self, method: str) -> list[BudgetPoint]:
        """Returns the curve of one method."""
        return [point for point in self.points if point.method == method]

    def to_json(self) -> dict[str, Any]:
        return {"points": [point.to_json() for point in self.points], **self.origin}

    def lines(self) -> Iterator[str]:
        from hydractl.report.analyses import budget_lines

        return budget_lines(self.to_json()["points"])

    def facts(self) -> Mapping[str, object]:
        return {
            f"{point.method} {point.dropped}": f"accuracy {point.quality.accuracy:.2%}, NLL {point.quality.nll:.4f}"
            for point in self.points
        }


@dataclass(frozen=True)
class AnalyseBudgets:
    """Measure what a network loses with each head that goes.

    Every method drops heads at every budget. The network, its pruned versions and the files of members answer in one
    pass over the data; no file is written.

    Example: hydractl analyse budgets vit --circuit circuit.json --budgets 1,2/layer --id-data data/pets

    Prints accuracy, NLL and, with `ood_data`, AUROC, FPR95 and AUPR of the maximum softmax probability as means over
    OOD sets. `plot` draws each against the number of heads dropped.

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

    model: Model
    files: Annotated[
        Sequence[ModelLike],
        Option("Existing members, fine-tuned ones too.", "Model", "FILE...", positional=True, remembered=False),
    ] = ()
    circuit: Annotated[
        Sequence[CircuitLike],
        Option("Circuit whose first heads are dropped; repeat it for several.", metavar="FILE", remembered=False),
    ] = ()
    scores: Annotated[
        Sequence[ScoresLike],
        Option("Head scores whose lowest heads are dropped; repeat it for several.", metavar="FILE", remembered=False),
    ] = ()
    budgets: Annotated[
        str | None,
        Option("Heads to drop: from each layer, or numbers or shares of all.", metavar="2,4,6,8/layer|12,24,33%"),
    ] = None
    id_data: LabelledData = field(kw_only=True)
    ood_data: Annotated[DataSetsLike | None, OOD_SETS] = None
    allow_leak: Annotated[
        bool, Option("Allow samples that heads were chosen on; the result records it.", "Data", remembered=False)
    ] = False
    reading: Reading = Reading()
    compute: Compute = Compute()
    picture: PlotOptions = PlotOptions()

    def run(self, watch: Watcher) -> AnalysedBudgets:
        from hydractl.analysis.budgets import measure_all
        from hydractl.evaluation.results import plain
        from hydractl.evaluation.sets import refuse_leaks
        from hydractl.report.analyses import budget_picture
        from hydractl.report.drawing import whole

        self.picture.check()
        checkpoint = as_member(self.model)
        members = existing_members(self.files, checkpoint)
        circuits = named_circuits(self.circuit, checkpoint)
        scores = named_scores(self.scores, checkpoint)
        cuts = _cuts(checkpoint, circuits, scores, self.budgets or "")
        material = open_material(
            checkpoint, self.id_data, self.ood_data, reading=self.reading, compute=self.compute, watch=watch
        )
        leaks = _leaks(material, [checkpoint, *members], [*circuits.values(), *scores.values()])
        if not self.allow_leak:
            refuse_leaks(leaks, or_else="pass `allow_leak`, which marks the result")
        size = self.compute.batch_size
        with watch.progress("measure", material.samples) as advance:
            qualities = measure_all(
                _networks(material, cuts, members, size),
                material.batches(material.id, size),
                {name: material.batches(samples, size) for name, samples in material.ood.items()},
                material.device,
                on_batch=advance,
            )
        named = [(cut.method, len(cut.dropped)) for cut in cuts]
        named += [
            (model_name(file), len(_heads(checkpoint)) - len(_heads(member)))
            for file, member in zip(self.files, members, strict=True)
        ]
        points = [BudgetPoint(*name, quality) for name, quality in zip(named, qualities, strict=True)]
        options = remembered(self, template=material.template, budgets=self.budgets or None)
        leaked = {"leaks": [plain(leak.known) for leak in leaks]} if leaks else {}
        found = AnalysedBudgets(points, origin_of(checkpoint, options) | leaked)
        self.picture.write(lambda: whole(budget_picture(found.to_json()["points"])))
        return found


analyse_budgets = function(AnalyseBudgets)


def _cuts(
    checkpoint: Checkpoint, circuits: Mapping[str, Circuit], scores: Mapping[str, Scores], budgets: str
) -> list[Cut]:
    """Returns the network itself, and what each method leaves of it at each budget.

    Raises:
        OptionError: methods without budgets or the other way round, or budgets that a method cannot have.
    """
    from hydractl.analysis.budgets import Cut, cuts_of_ranking, cuts_of_scores, parse_budgets

    if bool(budgets) != bool(circuits or scores):
        raise OptionError("`budgets` needs `circuit` or `scores`, and the reverse: give both, or files alone")
    cuts = [Cut(DENSE, frozenset())]
    if not budgets:
        return cuts
    heads = _heads(checkpoint)
    wanted = parse_budgets(budgets, heads)
    for name, one in circuits.items():
        cuts += cuts_of_ranking(name, one.ranking, wanted, heads)
    for name, own in scores.items():
        cuts += cuts_of_scores(name, own.of_heads(checkpoint.heads, checkpoint.spec), wanted)
    return cuts


def _leaks(material: Material, models: Sequence[Checkpoint], artifacts: Sequence[Circuit | Scores]) -> list[Leak]:
    """Returns the sets with samples that heads were chosen on or weights were trained on."""
    from hydractl.evaluation.sets import EvaluationData, SetKey, find_leaks

    outside = {SetKey("ood", name): samples for name, samples in material.ood.items()}
    data = EvaluationData({SetKey("id", "id"): material.id, **outside})
    histories = [(model.name, model.provenance) for model in models]
    histories += [(artifact.name, {"search_data": artifact.search_data}) for artifact in artifacts]
    return [leak for name, history in histories for leak in find_leaks(name, [history], data)]


def _networks(
    material: Material, cuts: Sequence[Cut], members: Sequence[Checkpoint], batch_size: int
) -> list[Answering]:
    from hydractl.circuit.objective import prompt_batches
    from hydractl.inference import load_checkpoint
    from hydractl.selection.forward import CandidateNetworks, MemberNetworks

    model = material.model
    networks: list[Answering] = [
        CandidateNetworks(model, [cut.dropped for cut in cuts], prompt_batches(model.class_prompts, batch_size))
    ]
    dtype = next(model.parameters()).dtype
    return networks + [MemberNetworks(load_checkpoint(member, material.device, dtype)) for member in members]


def _heads(checkpoint: Checkpoint) -> list[Head]:
    from hydractl.checkpoint.heads import member_heads

    return member_heads(checkpoint.heads, 0)


@dataclass(frozen=True, eq=False, repr=False)
class AnalysedHeads(Analysis):
    """The distances between ID and OOD samples in heads that a circuit keeps and drops.

    Attributes:
        separated: all numbers, defined there.
        origin: how they were made, as plain JSON.
    """

    separated: Separated
    origin: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        found, dropped = self.separated, set(self.separated.dropped)
        return {
            "last_layer": {name: asdict(group) for name, group in found.last.items()},
            "all_layers": {name: asdict(group) for name, group in found.all.items()},
            "dropped": [head._asdict() for head in found.dropped],
            "heads": [
                {**head._asdict(), "dropped": head in dropped, **asdict(separation)}
                for head, separation in found.heads.items()
            ],
            **self.origin,
        }

    def lines(self) -> Iterator[str]:
        from hydractl.report.heads import separated_lines

        return separated_lines(self.separated)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.heads import separated_facts

        return separated_facts(self.separated)


@dataclass(frozen=True, kw_only=True)
class AnalyseHeads:
    """Compare how dropped and kept heads tell ID from OOD.

    For each head of the dense network, computes the distance between the mean outputs over ID and over OOD samples:
    Euclidean, and Mahalanobis by the ID samples' covariance. Reports the means over the heads that the circuit keeps
    and drops, in the last layer and in all.

    Example: hydractl analyse heads vit --circuit avg.json --id-data data/digits:test --ood-data data/far_test

    Prints four lines. `plot` draws each head's distances, with dropped heads crossed out, and the outputs of the six
    heads dropped first and the six dropped last for each sample, on their two principal components.

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

    model: Model
    circuit: Annotated[CircuitLike, Option("The circuit whose heads are compared.", metavar="FILE|-", remembered=False)]
    budget: Annotated[
        int | None, Option("Heads to drop. Default: all that it ranks.", minimum=1, maximum=bounds.HEADS)
    ] = None
    id_data: LabelledData
    ood_data: Annotated[DataLike, Option("Out-of-distribution data.", "Data", SOURCE, remembered=False)]
    reading: Reading = Reading()
    compute: Compute = Compute()
    picture: PlotOptions = PlotOptions()

    def run(self, watch: Watcher) -> AnalysedHeads:
        from hydractl.analysis.head_groups import separated
        from hydractl.circuit.separation import separations
        from hydractl.data.ranks import Ranks
        from hydractl.data.sources import parse_data

        self.picture.check()
        parse_data(self.ood_data, "OOD data")  # refuses several sets, which have no one centroid
        checkpoint = as_member(self.model)
        ranking = self._ranking(checkpoint)
        material = open_material(
            checkpoint, self.id_data, self.ood_data, reading=self.reading, compute=self.compute, watch=watch
        )
        drawn = 2 * (self.picture.plot is not None)  # once more for each of the two groups of heads that are shown
        with watch.progress("analyse", (1 + drawn) * material.samples) as advance:
            data = material.scoring_data(self.compute.batch_size, Ranks(), advance=advance)
            found = separated(separations(material.model, data), ranking)
            figure = _heads_figure(found, material.model, data) if drawn else None
        if figure is not None:
            self.picture.write(lambda: figure)
        options = remembered(self, budget=len(ranking), template=material.template)
        return AnalysedHeads(found, origin_of(checkpoint, options))

    def _ranking(self, checkpoint: Checkpoint) -> Sequence[Head]:
        """Returns the heads that the circuit drops."""
        from hydractl.surgery.choose import by_ranking

        ((_, circuit),) = named_circuits(self.circuit, checkpoint).items()
        ranking = by_ranking(circuit.ranking, self.budget or len(circuit.ranking))
        kept = set(_heads(checkpoint))
        if foreign := [head for head in ranking if head not in kept]:
            raise OptionError(
                f"{circuit.name}: drops {foreign[0]}, which {checkpoint.name} does not have: name the circuit's model"
            )
        return ranking


analyse_heads = function(AnalyseHeads)


def _heads_figure(found: Separated, model: Hydra, data: ScoringData) -> Figure:
    from hydractl.analysis.head_groups import shown
    from hydractl.circuit.scores import as_towers
    from hydractl.report.heads import separation_figure

    maps: dict[str, list[list[float | None]]] = {}
    crossed: dict[str, list[tuple[int, int]]] = {}
    for name in ("euclidean", "mahalanobis"):
        values = {head: getattr(separation, name) for head, separation in found.heads.items()}
        for tower, rows in as_towers(values, model.spec).items():
            maps[f"{tower} {name}"] = rows
            crossed[f"{tower} {name}"] = [(head.layer, head.head) for head in found.dropped if head.tower == tower]
    first, last = (_projections(heads, found, model, data) for heads in shown(found.dropped))
    groups = {"dropped first": first, "dropped last": last}
    return separation_figure(maps, groups, "distance of ID and OOD means", crossed)


def _projections(heads: Sequence[Head], found: Separated, model: Hydra, data: ScoringData) -> list[Projection]:
    from hydractl.circuit.separation import outputs_on_both
    from hydractl.report.heads import project

    if not heads:
        return []
    inside, outside = outputs_on_both(model, data, heads)
    titles = {
        head: f"{found.dropped.index(head) + 1}: layer {head.layer}, head {head.head}\n"
        f"Mahalanobis {found.heads[head].mahalanobis:.3g}"
        for head in heads
    }
    return [project(title, inside[head], outside[head]) for head, title in titles.items()]


@dataclass(frozen=True, eq=False, repr=False)
class AnalysedMembers(Analysis):
    """The similarity of the members of an ensemble.

    Attributes:
        similarity: all numbers, defined there.
        samples: how many the members answered.
        origin: how they were made, as plain JSON.
    """

    similarity: Similarity
    samples: int
    origin: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        from hydractl.report.analyses import SIMILARITIES

        found = self.similarity
        # A cosine of nothing is NaN, which JSON does not have.
        matrices = {
            name: [[None if number != number else number for number in row] for row in getattr(found, name).tolist()]
            for name in SIMILARITIES
        }
        return {"samples": self.samples, "weights_from": found.origin, **matrices, **self.origin}

    def lines(self) -> Iterator[str]:
        from hydractl.report.analyses import similarity_lines

        return similarity_lines(self.similarity)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.analyses import similarity_facts

        return similarity_facts(self.similarity)


@dataclass(frozen=True, kw_only=True)
class AnalyseMembers:
    """Compare the answers and the weights of an ensemble's members.

    For each pair of members, computes the share of samples to which they give different labels, the mean divergence
    KL(row || column) of their probabilities in nats, and the mean cosine of their logits. The fourth matrix holds the
    cosine of what both changed in the weights of the network that they share, or in the first member's if they adapt
    none.

    Example: hydractl analyse members lora.safetensors --data data/digits:test --plot members.png

    Prints a matrix for each; `plot` draws them.

    >>> found = hydractl.analyse_members("hydra", data="data/pets")
    >>> found.similarity.disagreement.shape
    (2, 2)

    Raises:
        CheckpointError: the model cannot be read.
        DataError: a sample cannot be read.
        OptionError: one member only, or a zero-shot model without `classes`.
        OutputError: the picture exists and `force` is not set, or the disk refuses it.
    """

    model: Model
    data: Annotated[
        DataLike, Option("Samples for the members to answer; labels are not read.", "Data", SOURCE, remembered=False)
    ]
    reading: Annotated[Reading, Without("label_column", "match_labels")] = Reading()
    compute: Compute = Compute()
    picture: PlotOptions = PlotOptions()

    def run(self, watch: Watcher) -> AnalysedMembers:
        from hydractl.analysis.similarity import require_several, similarity
        from hydractl.data.labels import read_classes
        from hydractl.data.open import open_samples
        from hydractl.report.analyses import similarity_figure
        from hydractl.steps.inputs import as_checkpoint
        from hydractl.steps.models import running

        self.picture.check()
        checkpoint, reading = as_checkpoint(self.model), self.reading
        require_several(checkpoint)
        network = running(checkpoint, self.compute)
        if reading.classes is not None:
            network.set_classes(read_classes(reading.classes), reading.template)
        texts = network.spec.task == "text-classification"
        samples = open_samples(self.data, "text" if texts else "image", reading)
        with watch.progress("analyse members", len(samples)) as advance:
            inputs = (samples.inputs[place] for place in range(len(samples)))
            logits = network.predict(inputs, self.compute.batch_size, advance).member_logits
        found = similarity(checkpoint, logits, network.temperature)
        self.picture.write(lambda: similarity_figure(found))
        options = remembered(self, template=reading.template if network.spec.task == "zero-shot" else None)
        return AnalysedMembers(found, len(samples), origin_of(checkpoint, options))


analyse_members = function(AnalyseMembers)


@dataclass(frozen=True, eq=False, repr=False)
class AnalysedNoise(Analysis):
    """The effect of pruning on clean data and on noisy data of each kind.

    Attributes:
        analysis: all numbers, defined there.
        origin: how they were made, as plain JSON.
    """

    analysis: NoiseAnalysis
    origin: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        found = self.analysis
        return {
            "dropped": found.dropped,
            "weights": found.weights,
            "draws": found.draws,
            "clean": {**asdict(found.clean), "gap": found.clean.gap, "slope": found.slope},
            "noisy": [_noise_json(effect) for effect in found.effects],
            **self.origin,
        }

    def lines(self) -> Iterator[str]:
        from hydractl.report.analyses import noise_lines

        return noise_lines(self.analysis)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.analyses import noise_facts

        return noise_facts(self.analysis)


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
    ...                                corrupt="contrast:5", draws=2)
    >>> found.analysis.dropped
    1

    Source: [HE] Proposition 1, B.1.

    Raises:
        CheckpointError: a model cannot be read.
        DataError: the data cannot be read, or its labels are not the model's.
        OptionError: a pruned network that is not of the model, an unknown corruption, or texts.
        OutputError: the picture exists and `force` is not set, or the disk refuses it.
    """

    model: Model
    pruned: Annotated[
        ModelLike,
        Option("What prune made of it, not fine-tuned.", "Model", "PRUNED", positional=True, remembered=False),
    ]
    corrupt: Annotated[str, Option(f"Make the data noisy: {describe_kinds()}.", metavar="KIND,...[:1-5]")] = field(
        kw_only=True
    )
    draws: Annotated[
        int,
        Option("Random signs to estimate the curvature with; its error is reported.", minimum=2, maximum=bounds.DRAWS),
    ] = 16
    seed: Seed = 0
    id_data: Annotated[DataLike, replace(LABELLED, flags=("--id-data", "--data"))] = field(kw_only=True)
    reading: Annotated[Reading, Without("text_column")] = Reading()
    # Gradients of gradients hold on to all that a batch goes through.
    compute: Compute = Compute(batch_size=16)
    picture: PlotOptions = PlotOptions()

    def run(self, watch: Watcher) -> AnalysedNoise:
        from hydractl.analysis.noise import analyse_noise, heads_taken
        from hydractl.data.corruptions import parse_corruptions
        from hydractl.data.ranks import Ranks
        from hydractl.report.analyses import noise_picture
        from hydractl.report.drawing import whole

        self.picture.check()
        corruptions = parse_corruptions(self.corrupt)
        checkpoint, other = as_member(self.model), as_member(self.pruned)
        if checkpoint.spec.task == "text-classification":
            raise OptionError(f"{checkpoint.name} reads texts: `corrupt` is noise for images")
        dropped = heads_taken(checkpoint, other)
        material = open_material(
            checkpoint, self.id_data, None, reading=self.reading, compute=self.compute, watch=watch
        )
        with watch.progress("analyse", 2 * len(material.id) * (1 + len(corruptions))) as advance:
            clean = material.scoring_data(self.compute.batch_size, Ranks())
            noisy = self._noisy(material, corruptions)
            analysis = analyse_noise(
                material.model, dropped, clean, noisy, draws=self.draws, seed=self.seed, progress=advance
            )
        self.picture.write(lambda: whole(noise_picture(analysis)))
        return AnalysedNoise(analysis, origin_of(checkpoint, remembered(self, template=material.template)))

    def _noisy(
        self, material: Material, corruptions: Sequence[tuple[Corruption, int]]
    ) -> Iterator[tuple[str, int, ScoringData]]:
        """Yields the samples corrupted in each way, one way after the other."""
        from hydractl.data.corruptions import corrupted
        from hydractl.data.ranks import Ranks

        for kind, severity in corruptions:
            worse = replace(material, id=corrupted(material.id, kind, severity, self.seed))
            yield kind.name, severity, worse.scoring_data(self.compute.batch_size, Ranks())


analyse_noise = function(AnalyseNoise)


def _noise_json(effect: NoiseEffect) -> dict[str, Any]:
    return {
        "kind": effect.kind,
        "severity": effect.severity,
        **asdict(effect.losses),
        "gap": effect.losses.gap,
        "slope": effect.slope,
        "curvature": asdict(effect.curvature),
        "positive": asdict(effect.positive),
    }
