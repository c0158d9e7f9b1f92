"""Asking whether pruning hurts more on noisy data than on clean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.data.corruptions.kinds import describe_kinds
from hydractl.data.reading import Reading
from hydractl.errors import OptionError
from hydractl.steps.inputs import (
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
    ModelLike,
    Plot,
    Seed,
    Template,
    as_member,
)
from hydractl.steps.material import SOURCE, LabelledData, open_material, origin_of
from hydractl.steps.options import Option, step
from hydractl.steps.result import Result
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    from hydractl.analysis.noise import NoiseAnalysis, NoiseEffect
    from hydractl.circuit.data import ScoringData
    from hydractl.data.corruptions.kinds import Corruption
    from hydractl.steps.material import Material

BATCH_SIZE = 16  # gradients of gradients hold on to all that a batch goes through


@dataclass(frozen=True, eq=False, repr=False)
class AnalysedNoise(Result):
    """What pruning does on clean data and on noisy data of each kind.

    Attributes:
        analysis: all numbers; what each means stands there.
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
            "noisy": [_as_json(effect) for effect in found.effects],
            **self.origin,
        }

    def lines(self) -> Iterator[str]:
        from hydractl.report.noise import noise_lines

        return noise_lines(self.analysis)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.noise import noise_facts

        return noise_facts(self.analysis)

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@step
def analyse_noise(
    model: Model,
    pruned: Annotated[
        ModelLike, Option("What prune made of it, not fine-tuned.", heading="Model", metavar="PRUNED", positional=True)
    ],
    *,
    corrupt: Annotated[str, Option(f"Make the data noisy: {describe_kinds()}.", metavar="KIND,...[:1-5]")],
    draws: Annotated[
        int, Option("Random signs to estimate the curvature by; its error is reported.", minimum=2, maximum=100_000)
    ] = 16,
    seed: Seed = 0,
    id_data: Annotated[
        LabelledData,
        Option("Labelled in-distribution data.", heading="Data", metavar=SOURCE, flags=("--id-data", "--data")),
    ],
    limit: Limit = None,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    image_column: ImageColumn = None,
    label_column: LabelColumn = None,
    match_labels: MatchLabels = "name",
    device: Device = "auto",
    dtype: Dtype = None,
    batch_size: BatchSize = BATCH_SIZE,
    plot: Plot = None,
    force: Force = False,
    watch: Watcher = LOG,
) -> AnalysedNoise:
    """Ask whether pruning hurts more on noisy data than on clean.

    With dtheta what pruning changes of the weights, the loss on noisy data grows to first order by its gradient's
    inner product with dtheta, and grows by more than the loss on clean data where diag(H_n - H_t), the difference of
    their curvatures, is positive. Reported are both, the curvature's mean and how much of it is positive with their
    standard errors, and the losses of both networks.

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
    from hydractl.analysis.noise import analyse_noise as analyse
    from hydractl.analysis.pruned import heads_taken
    from hydractl.data.corrupt import parse_corruptions
    from hydractl.data.ranks import Ranks
    from hydractl.report.drawing import whole
    from hydractl.report.noise import noise_picture
    from hydractl.report.picture import check_picture, write_picture
    from hydractl.steps.compute import dtype_name

    if plot is not None:
        check_picture(Path(plot), force)
    asked = parse_corruptions(corrupt)
    checkpoint, other = as_member(model), as_member(pruned)
    if checkpoint.spec.task == "text-classification":
        raise OptionError(f"{checkpoint.name} reads texts: `corrupt` is noise for images")
    dropped = heads_taken(checkpoint, other)
    reading = Reading(limit, classes, template, image_column, None, label_column, match_labels)
    material = open_material(checkpoint, id_data, None, reading, device, dtype, watch)
    noisy = _noisy(material, asked, seed, batch_size)
    with watch.progress("analyse", 2 * len(material.id) * (1 + len(asked))) as advance:
        clean = material.scoring_data(batch_size, Ranks())
        analysis = analyse(material.model, dropped, clean, noisy, draws, seed, advance)
    options = {"corrupt": corrupt, "draws": draws, "seed": seed, "batch_size": batch_size, "limit": limit}
    options |= {"dtype": dtype_name(dtype), "template": material.template}
    if plot is not None:
        write_picture(whole(noise_picture(analysis)), Path(plot), force)
    return AnalysedNoise(analysis, origin_of(checkpoint, options))


def _noisy(
    material: Material, asked: list[tuple[Corruption, int]], seed: int, batch_size: int
) -> Iterator[tuple[str, int, ScoringData]]:
    """The samples made worse in each way, one way after the other."""
    from hydractl.data.corrupt import corrupted
    from hydractl.data.ranks import Ranks

    for kind, severity in asked:
        worse = replace(material, id=corrupted(material.id, kind, severity, seed))
        yield kind.name, severity, worse.scoring_data(batch_size, Ranks())


def _as_json(effect: NoiseEffect) -> dict[str, Any]:
    return {
        "kind": effect.kind,
        "severity": effect.severity,
        **asdict(effect.losses),
        "gap": effect.losses.gap,
        "slope": effect.slope,
        "curvature": asdict(effect.curvature),
        "positive": asdict(effect.positive),
    }
