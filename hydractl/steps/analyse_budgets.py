"""Measuring what a network loses with each head that is dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.circuit.circuit_file import CircuitLike
from hydractl.circuit.material import Material
from hydractl.circuit.scores import ScoresLike
from hydractl.data.reading import DataSetsLike, Reading
from hydractl.errors import OptionError
from hydractl.inputs.arguments import Model, ModelLike, PlotOptions, as_member, model_name
from hydractl.inputs.references import existing_members, named_circuits, named_scores
from hydractl.inputs.result import Finding
from hydractl.inputs.search_data import OOD_SETS, LabelledData, open_material, origin_of
from hydractl.options import function, option, remembered
from hydractl.run_options import Compute
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.analysis.budgets import Cut, PrunedQuality
    from hydractl.artifacts import Artifact
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.circuit.circuit_file import Circuit
    from hydractl.circuit.scores import ScoreTable
    from hydractl.evaluation.results import KnownLeak
    from hydractl.selection.answers import Answering

DENSE = "dense"


@dataclass(frozen=True)
class BudgetPoint:
    """A network at one budget.

    Attributes:
        method: what chose its heads: a circuit, scores, or the name of a file.
        dropped: the number of heads that it lacks.
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


@dataclass(frozen=True)
class AnalyseBudgets:
    """Measure what a network loses with each head that is dropped.

    Drops heads by every method at every budget. The network, its pruned versions and the files of members answer in
    one pass over the data; no file is written. The network itself comes first.

    Example: hydractl analyse budgets vit --circuit circuit.json --budgets 1,2/layer --id-data data/pets

    Prints accuracy, NLL and, with `ood_data`, AUROC, FPR95 and AUPR of the maximum softmax probability as means over
    OOD sets. `plot` draws each against the number of heads dropped.

    >>> found = hydractl.analyse_budgets("vit", circuit=["circuit.json"], budgets="1,2", id_data="data/pets",
    ...                                  ood_data="data/noise")
    >>> [(point.method, point.dropped) for point in found.value]
    [('dense', 0), ('circuit', 1), ('circuit', 2)]

    Source: arXiv 2510.18358, B.3.

    Raises:
        ArtifactError: a circuit or scores cannot be read, or are of another model.
        DataError: data cannot be read, its labels are not the model's, or heads were chosen on it.
        OptionError: no budgets for a circuit or scores, or more heads than they rank.
        OutputError: the picture exists and `force` is not set, or the disk refuses it.
    """

    model: Model
    files: Sequence[ModelLike] = option(
        (), "Existing members, fine-tuned ones too.", "Model", "FILE...", positional=True, remembered=False
    )
    circuit: Sequence[CircuitLike] = option(
        (), "Circuit whose first heads are dropped; repeat it for several.", metavar="FILE", remembered=False
    )
    scores: Sequence[ScoresLike] = option(
        (), "Head scores whose lowest heads are dropped; repeat it for several.", metavar="FILE", remembered=False
    )
    budgets: str | None = option(
        None, "Heads to drop: from each layer, or numbers or shares of all.", metavar="2,4,6,8/layer|12,24,33%"
    )
    id_data: LabelledData = field(kw_only=True)
    ood_data: Annotated[DataSetsLike | None, OOD_SETS] = None
    allow_leak: bool = option(
        False, "Allow samples that heads were chosen on; the result records it.", "Data", remembered=False
    )
    reading: Reading = Reading()
    compute: Compute = Compute()
    picture: PlotOptions = PlotOptions()

    def run(self, watch: Watcher) -> Finding[Sequence[BudgetPoint]]:
        from hydractl.evaluation.results import plain
        from hydractl.reports.analyses import budget_lines, budget_picture
        from hydractl.tasks.all_tasks import require_one_class

        self.picture.check()
        checkpoint = as_member(self.model)
        require_one_class(checkpoint.spec, "this analysis", "evaluate pruned networks instead")
        members = existing_members(self.files, checkpoint)
        circuits = named_circuits(self.circuit, checkpoint)
        scores = named_scores(self.scores, checkpoint)
        cuts = _cuts(checkpoint, circuits, scores, self.budgets or "")
        material = open_material(
            checkpoint, self.id_data, self.ood_data, reading=self.reading, compute=self.compute, watch=watch
        )
        leaks = _leaks(material, [checkpoint, *members], [*circuits.values(), *scores.values()], self.allow_leak)
        points = self._points(material, cuts, members, watch)
        rows = [point.to_json() for point in points]
        self.picture.write(lambda: budget_picture(rows))
        leaked = {"leaks": plain(leaks)} if leaks else {}
        options = remembered(self, template=material.template, budgets=self.budgets or None)
        content = {"points": rows, **origin_of(checkpoint, options), **leaked}
        return Finding(points, content, list(budget_lines(rows)))

    def _points(
        self, material: Material, cuts: Sequence[Cut], members: Sequence[Checkpoint], watch: Watcher
    ) -> list[BudgetPoint]:
        from hydractl.analysis.budgets import measure_all
        from hydractl.checkpoint.heads import member_heads

        size = self.compute.batch_size
        with watch.progress("measure", material.samples) as advance:
            qualities = measure_all(
                _networks(material, cuts, members, size),
                material.batches(material.id, size),
                {name: material.batches(samples, size) for name, samples in material.ood.items()},
                material.device,
                on_batch=advance,
            )
        heads = len(member_heads(material.checkpoint.heads, 0))
        named = [(cut.method, len(cut.dropped)) for cut in cuts]
        named += [
            (model_name(file), heads - len(member_heads(member.heads, 0)))
            for file, member in zip(self.files, members, strict=True)
        ]
        return [BudgetPoint(*name, quality) for name, quality in zip(named, qualities, strict=True)]


analyse_budgets = function(AnalyseBudgets)


def _cuts(
    checkpoint: Checkpoint, circuits: Mapping[str, Circuit], scores: Mapping[str, ScoreTable], budgets: str
) -> list[Cut]:
    """Returns the network itself, and what each method leaves of it at each budget.

    Raises:
        OptionError: methods without budgets or the other way round, or budgets that a method cannot have.
    """
    from hydractl.analysis.budgets import Cut, cuts_of_ranking, cuts_of_scores, parse_budgets
    from hydractl.checkpoint.heads import member_heads

    if bool(budgets) != bool(circuits or scores):
        raise OptionError("`budgets` needs `circuit` or `scores`, and the reverse: give both, or files alone")
    cuts = [Cut(DENSE, frozenset())]
    if not budgets:
        return cuts
    heads = member_heads(checkpoint.heads, 0)
    wanted = parse_budgets(budgets, heads)
    for name, one in circuits.items():
        cuts += cuts_of_ranking(name, one.ranking, wanted, heads)
    for name, own in scores.items():
        cuts += cuts_of_scores(name, own.of_heads(checkpoint.heads), wanted)
    return cuts


def _leaks(
    material: Material, models: Sequence[Checkpoint], artifacts: Sequence[Artifact], allowed: bool
) -> list[KnownLeak]:
    """Returns the sets with samples that heads were chosen on or weights were trained on, if that is allowed."""
    from hydractl.evaluation.sets import EvaluationData, SetKey, find_leaks, refuse_leaks

    outside = {SetKey("ood", name): samples for name, samples in material.ood.items()}
    data = EvaluationData({SetKey("id", "id"): material.id, **outside})
    histories = [(model.name, model.provenance) for model in models]
    histories += [(artifact.name, {"search_data": artifact.search_data}) for artifact in artifacts]
    found = []
    for name, history in histories:
        leaks = find_leaks(name, [history], data)
        if not allowed:
            refuse_leaks(name, leaks, or_else="pass `allow_leak`, which marks the result")
        found += leaks
    return found


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
