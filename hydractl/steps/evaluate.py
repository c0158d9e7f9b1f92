"""Evaluating systems: accuracy, calibration, OOD detection and cost, side by side on the same data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl import bounds
from hydractl.data.corruptions.kinds import describe_kinds
from hydractl.data.like import DataLike, DataSetsLike, Indexed, Modality
from hydractl.errors import OptionError
from hydractl.evaluation.systems import SYSTEM_KINDS
from hydractl.steps.inputs import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_TEMPLATE,
    BatchSize,
    Classes,
    Compiled,
    Device,
    Dtype,
    Force,
    ImageColumn,
    LabelColumn,
    Limit,
    MatchLabels,
    ModelLike,
    Seed,
    SkipBad,
    Template,
    TextColumn,
    Workers,
)
from hydractl.steps.options import Option, brief, step
from hydractl.steps.report import Full, JsonReport, Reported, ReportFolder, check_outputs, write_outputs
from hydractl.steps.suites import SuiteLike, SuiteReported, evaluate_tasks
from hydractl.steps.watch import LOG, Watcher
from hydractl.uncertainty.ood_scores import OOD_SCORES
from hydractl.uncertainty.styles import STYLES

if TYPE_CHECKING:
    from hydractl.evaluation.certainty import Measured
    from hydractl.evaluation.comparison import Comparison, Measurement
    from hydractl.evaluation.sets import EvaluationData
    from hydractl.evaluation.systems import Running, SystemSpec

    #: A system as a text, a model, or models that make a Deep Ensemble.
    SystemLike = ModelLike | Sequence[ModelLike] | SystemSpec
    Systems = SystemLike | Sequence[SystemLike] | Mapping[str, SystemLike]
    ScoreName = str
    StyleName = str
else:  # what the command line derives flags from
    Systems = Sequence[Any]
    ScoreName = Literal[tuple(score.name for score in OOD_SCORES)]
    StyleName = Literal[tuple(style.name for style in STYLES)]

SPELLINGS = ", ".join(f"{kind.spelling} ({kind.help})" for kind in reversed(SYSTEM_KINDS))
FITTED = ", ".join(score.name for score in OOD_SCORES if score.needs_features)


@step
def evaluate(
    systems: Annotated[
        Systems,
        Option(
            f"What to evaluate, each perhaps as NAME=: {SPELLINGS}.",
            heading="Model",
            metavar="[NAME=]SYSTEM...",
            positional=True,
        ),
    ],
    *,
    suite: Annotated[
        SuiteLike | None,
        Option(
            "Evaluate on each task of a suite, built-in or a file; see hydractl suites list.",
            heading="Data",
            metavar="NAME|FILE.toml",
        ),
    ] = None,
    id_data: Annotated[
        DataLike | None,
        Option("Labelled in-distribution data.", heading="Data", metavar="[NAME=]SOURCE[:SPLIT]"),
    ] = None,
    ood_data: Annotated[
        DataSetsLike,
        Option(
            "Out-of-distribution data; repeat it for several sets.",
            heading="Data",
            metavar="[near/|far/][NAME=]SOURCE[:SPLIT]",
        ),
    ] = (),
    calib_data: Annotated[
        DataLike | None,
        Option("Labelled data to fit on, none of it evaluated on.", heading="Data", metavar="SOURCE[:SPLIT]"),
    ] = None,
    shift_data: Annotated[
        Sequence[str] | Mapping[str, str | Path | Indexed],
        Option("Labelled shifted data; repeat it.", heading="Data", metavar="NAME/SEVERITY=SOURCE[:SPLIT]"),
    ] = (),
    corrupt: Annotated[
        str | None,
        Option(f"Make the ID images worse: {describe_kinds()}.", heading="Data", metavar="KIND,...[:1-5]"),
    ] = None,
    ood_score: Annotated[ScoreName, Option(f"What tells OOD from ID. Fitted on `calib_data`: {FITTED}.")] = "msp",
    style: Annotated[StyleName, Option("Whose definitions to compute by.")] = "hydractl",
    temperature: Annotated[
        float | str | None,
        Option(
            "One for all, or fitted per system on `calib_data`.",
            metavar="fit|T",
            minimum=bounds.COLDEST,
            maximum=bounds.HOTTEST,
        ),
    ] = None,
    conformal: Annotated[
        Literal["lac", "aps"] | None, Option("Measure prediction sets fitted on `calib_data`.")
    ] = None,
    coverage: Annotated[
        float, Option("Share of prediction sets that shall hold the right class.", minimum=0, maximum=1)
    ] = 0.9,
    bootstrap: Annotated[
        int | None,
        Option(
            "Resample R times for 95 % intervals, paired differences and the verdict, 0 for none; 1000 unless given, "
            "for up to 100,000 samples and our own `style`.",
            metavar="R",
            minimum=0,
            maximum=bounds.DRAWS,
        ),
    ] = None,
    seeds: Annotated[bool, Option("Systems of one NAME are seeds of one system: mean and deviation.")] = False,
    members_curve: Annotated[
        bool,
        Option("Evaluate the first member of each file as well, the first two, and so on: what every one more brings."),
    ] = False,
    allow_leak: Annotated[bool, Option("Evaluate also on samples that made a model; the report says which.")] = False,
    limit: Limit = None,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    image_column: ImageColumn = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    match_labels: MatchLabels = "name",
    skip_bad: SkipBad = False,
    streaming: Annotated[
        bool,
        Option(
            "Read ID, OOD and shifted data as they come, once for each system, and keep none of them: for sets of any "
            "size, from the hub too. `limit` N then takes the first N samples, of few classes where data are sorted.",
            heading="Data",
        ),
    ] = False,
    device: Device = "auto",
    dtype: Dtype = None,
    compiled: Compiled = False,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    workers: Workers = 0,
    seed: Seed = 0,
    json: JsonReport = None,
    report: ReportFolder = None,
    full: Full = False,
    save_logits: Annotated[
        str | Path | None,
        Option(
            "Save FOLDER/NAME for predictions:FOLDER/NAME, with features where the score reads them.",
            heading="Output",
            metavar="FOLDER",
        ),
    ] = None,
    resume: Annotated[
        bool, Option("Take what `save_logits` has saved before instead of computing it.", heading="Output")
    ] = False,
    force: Force = False,
    watch: Watcher = LOG,
) -> Reported | SuiteReported:
    """Measure accuracy, calibration and OOD detection.

    Example: hydractl evaluate vit hydra=hydra.safetensors --id-data cifar10:test --ood-data far/textures=dtd:test

    Prints a table with a row per system, the best of each column in bold; `json` - prints the report instead. The ID
    and OOD sets must not have been used to choose heads: what the models remember of that is refused, or with
    `allow_leak` marked. torchrun shares the batches among processes; the numbers are the same bytes for any number.

    >>> found = hydractl.evaluate({"single": "vit", "both": ["m1", "m2"]}, id_data="data/pets", ood_data="data/noise")
    >>> sorted(found.models)
    ['both', 'single']

    Raises:
        CheckpointError: a model cannot be read.
        DataError: data cannot be read, were used to make a model, or lack what is to be measured.
        OptionError: options that do not go together.
        OutputError: an output exists and `force` is not set, or the disk refuses it.
    """
    if suite is not None:
        # All that this function was given, for each of the tasks.
        return evaluate_tasks(suite, dict(locals()), evaluate, watch)

    from hydractl.data.columns import Columns
    from hydractl.data.corrupt import parse_corruptions
    from hydractl.data.ranks import batch_workers, join_ranks, local_device
    from hydractl.evaluation.checkpoints import by_size
    from hydractl.evaluation.comparison import Measurement, open_comparison, serve
    from hydractl.evaluation.opening import AskedSets, open_sets
    from hydractl.evaluation.settings import Conformal, Settings
    from hydractl.evaluation.systems import Running
    from hydractl.steps.compute import choose_device, choose_dtype, dtype_name

    check_outputs(json, report, force)
    _check_reading(streaming, save_logits, allow_leak, resume)
    sets = None if conformal is None else Conformal(conformal, coverage)
    settings = Settings(ood_score, style, _temperature(temperature), sets)
    folder = None if save_logits is None else Path(save_logits)
    measurement = Measurement(settings, bootstrap, seed, report is not None, allow_leak, folder, resume, force)
    options = {"batch_size": batch_size, "limit": limit, "dtype": dtype_name(dtype), "corrupt": corrupt}
    options |= {**settings.to_json(), "compiled": compiled or None}
    columns = Columns(image_column, text_column, label_column)
    corruptions = [] if corrupt is None else parse_corruptions(corrupt)

    def open_data(modality: Modality) -> EvaluationData:
        assert id_data is not None
        asked = AskedSets(id_data, ood_data, calib_data, shift_data, corruptions, seed, columns, limit, match_labels,
                          skip_bad, streaming)  # fmt: skip
        return open_sets(asked, modality, lambda text: watch.note(f"note: {text}"))

    def opened() -> Comparison:
        named = named_systems(systems)
        sized = [part for one in named for part in by_size(*one)] if members_curve else named
        return open_comparison(sized, None if id_data is None else open_data, seeds)

    def finish(comparison: Comparison, measured: Sequence[Measured]) -> Reported:
        found = Reported(_content(comparison, measured, options, measurement), full)
        write_outputs(found, json, report, force, watch)
        return found

    place = local_device(choose_device(device))
    with join_ranks(place) as ranks, batch_workers(place, ahead=1) as in_parallel:
        if streaming and ranks.size > 1:
            raise OptionError("`streaming` reads its data in one process: leave torchrun out")
        running = Running(place, choose_dtype(dtype), compiled, batch_size, workers, seed, classes, template, ranks,
                          in_parallel, lambda text: watch.note(f"note: {text}"))  # fmt: skip
        if not ranks.leads:
            with ranks.following():
                serve(opened(), running)
            return Reported({"models": {}})
        with ranks.leading():
            return _measured(opened(), running, measurement, watch, finish)


def _measured(
    comparison: Comparison,
    running: Running,
    measurement: Measurement,
    watch: Watcher,
    finish: Callable[[Comparison, Sequence[Measured]], Reported],
) -> Reported:
    """What `finish` makes of the systems' numbers; where that is interrupted, the error holds what was finished."""
    from hydractl.evaluation.comparison import Listeners, measure_systems

    measured: list[Measured] = []
    try:
        for system in measure_systems(comparison, running, measurement, Listeners(watch.warn, watch.progress)):
            measured.append(system)
    except BaseException as error:
        if measured:
            error.partial = finish(comparison, measured)  # type: ignore[attr-defined]
        raise
    return finish(comparison, measured)


def named_systems(systems: Systems) -> list[tuple[str, SystemSpec]]:
    """The systems by name.

    Args:
        systems: one or several, or several by name: a text as the command line takes it, a model, models that make a
            Deep Ensemble.

    Raises:
        OptionError: none at all, or a text that spells no system.
    """
    if isinstance(systems, Mapping):
        return [(name, _spec(system)[1]) for name, system in systems.items()]
    if isinstance(systems, Sequence) and not isinstance(systems, str):
        return [_spec(system) for system in systems]
    return [_spec(systems)]


def _spec(system: Any) -> tuple[str, SystemSpec]:
    from hydractl.evaluation.checkpoints import NetworkSpec
    from hydractl.evaluation.systems import parse_system
    from hydractl.model.hydra import Hydra
    from hydractl.steps.inputs import as_checkpoint

    if isinstance(system, str):
        return parse_system(system)
    if hasattr(system, "open") and not isinstance(system, Path):
        return system.name, system
    networks = system if isinstance(system, list | tuple) else [system]
    kept = (network if isinstance(network, str | Path | Hydra) else as_checkpoint(network) for network in networks)
    spec = NetworkSpec(tuple(kept))
    return spec.name, spec


def _check_reading(streaming: bool, save_logits: str | Path | None, allow_leak: bool, resume: bool) -> None:
    if resume and save_logits is None:
        raise OptionError("`resume` takes up what `save_logits` has saved: pass both")
    if streaming and (save_logits is not None or allow_leak):
        other = "`allow_leak` marks" if allow_leak else "`save_logits` needs"
        raise OptionError(f"{other} what is known of a set before it is read: leave `streaming` out")


def _temperature(value: float | str | None) -> float | Literal["fit"] | None:
    if value is None:
        return None
    if value == "fit":
        return "fit"
    number = bounds.real(value, bounds.COLDEST, bounds.HOTTEST)
    if number is None:
        span = f"{bounds.COLDEST:g} to {bounds.HOTTEST:g}"
        raise OptionError(f"`temperature` {brief(value)}: expected fit or a positive number, {span}")
    return number


def _content(
    comparison: Comparison, measured: Sequence[Measured], options: Mapping[str, Any], measurement: Measurement
) -> dict[str, Any]:
    """The report of what is finished."""
    from hydractl.evaluation.certainty import assemble
    from hydractl.evaluation.comparison import describe_data
    from hydractl.report.artifact import report_json

    resampled = max((one.draws for one in measured), default=0)
    drawn = resampled or options["corrupt"] or comparison.draws
    used = {**options, "bootstrap": resampled or None, "seed": measurement.seed if drawn else None}
    complete = len(measured) == len(comparison.systems)
    return report_json(assemble(measured), describe_data(comparison), used, complete)
