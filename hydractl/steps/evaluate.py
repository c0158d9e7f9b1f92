"""Evaluating systems: accuracy, calibration, OOD detection and cost, side by side on the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from hydractl import bounds
from hydractl.data.corruptions import describe_kinds
from hydractl.data.like import DataLike, DataSetsLike, Indexed
from hydractl.errors import OptionError
from hydractl.evaluation.systems import SYSTEM_KINDS
from hydractl.metrics.ood_scores import OOD_SCORES
from hydractl.metrics.styles import STYLES
from hydractl.steps.evaluation import Compute, Data, Evaluation, Outputs, run_evaluation
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
    Seed,
    SkipBad,
    Template,
    TextColumn,
    Workers,
)
from hydractl.steps.options import Option, brief, step
from hydractl.steps.report import Full, JsonReport, Reported, ReportFolder
from hydractl.steps.suites import SuiteLike, SuiteReported, evaluate_tasks
from hydractl.steps.systems import Systems
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    ScoreName = str
    StyleName = str
else:  # what the command line derives flags from
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
    from hydractl.evaluation.comparison import Measurement
    from hydractl.evaluation.settings import Conformal, Settings

    _check_reading(streaming, save_logits, allow_leak, resume)
    sets = None if conformal is None else Conformal(conformal, coverage)
    settings = Settings(ood_score, style, _temperature(temperature), sets)
    folder = None if save_logits is None else Path(save_logits)
    measurement = Measurement(settings, bootstrap, seed, report is not None, allow_leak, folder, resume, force)
    data = Data(id_data, ood_data, shift_data, calib_data, corrupt, classes, template, image_column, text_column,
                label_column, match_labels)  # fmt: skip
    compute = Compute(device, dtype, compiled, batch_size, workers)
    outputs = Outputs(json, report, full, force)
    asked = Evaluation(systems, data, limit, skip_bad, streaming, measurement, seeds, members_curve, compute, outputs)
    return run_evaluation(asked, watch) if suite is None else evaluate_tasks(suite, asked, watch)


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
