"""`hydractl evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from hydractl.cli import console
from hydractl.cli.device import choose_device, choose_dtype
from hydractl.cli.evaluation_data import DataOptions, open_evaluation_data
from hydractl.cli.evaluation_leaks import check_leaks
from hydractl.cli.evaluation_output import ReportFolder, output_report
from hydractl.cli.evaluation_systems import OpenSystem, Running, check_same_samples, modality_of, open_systems
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
    Seed,
    SkipBad,
    Template,
    TextColumn,
    Token,
    Workers,
)
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.evaluation.certainty import Measured
    from hydractl.evaluation.predictor import Predictor
    from hydractl.evaluation.results import Settings
    from hydractl.evaluation.sets import EvaluationData, SetKey

Score = Literal["msp", "entropy", "mutual-information", "max-logit", "energy"]
StyleName = Literal["hydractl", "openood", "torch-uncertainty", "torch-uncertainty-legacy"]


def evaluate(
    systems: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]SYSTEM...",
            help="MODEL; MODEL+MODEL+... (a Deep Ensemble); MODEL,mc-dropout=10,p=0.1; or predictions:FOLDER.",
        ),
    ],
    id_data: Annotated[
        str | None, typer.Option(metavar="[NAME=]SOURCE[:SPLIT]", help="Labelled in-distribution data.")
    ] = None,
    ood_data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[near/|far/][NAME=]SOURCE[:SPLIT]", help="Out-of-distribution data; repeat it for several sets."
        ),
    ] = None,
    calib_data: Annotated[
        str | None,
        typer.Option(metavar="SOURCE[:SPLIT]", help="Labelled data to fit on, none of it evaluated on."),
    ] = None,
    shift_data: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME/SEVERITY=SOURCE[:SPLIT]", help="Labelled shifted data; repeat it."),
    ] = None,
    corrupt: Annotated[
        str | None,
        typer.Option(metavar="KIND,...[:1-5]", help="Make the ID images worse: gaussian_noise, jpeg, ..."),
    ] = None,
    ood_score: Annotated[Score, typer.Option(help="What tells OOD from ID.")] = "msp",
    style: Annotated[StyleName, typer.Option(help="Whose definitions to compute by.")] = "hydractl",
    temperature: Annotated[
        str | None, typer.Option(metavar="fit|T", help="One for all, or fitted per system on --calib-data.")
    ] = None,
    conformal: Annotated[
        Literal["lac", "aps"] | None, typer.Option(help="Measure prediction sets fitted on --calib-data.")
    ] = None,
    coverage: Annotated[float, typer.Option(help="Share of prediction sets that shall hold the right class.")] = 0.9,
    bootstrap: Annotated[
        int, typer.Option(min=0, metavar="R", help="Resample R times for 95 % intervals and paired differences.")
    ] = 0,
    seeds: Annotated[
        bool, typer.Option("--seeds", help="Systems of one NAME are seeds of one system: mean and deviation.")
    ] = False,
    limit: Limit = None,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    image_column: ImageColumn = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    match_labels: MatchLabels = "name",
    skip_bad: SkipBad = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE|-", help="Write the report as JSON as well.")] = None,
    report: ReportFolder = None,
    save_logits: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Save FOLDER/NAME for predictions:FOLDER/NAME.")
    ] = None,
    allow_leak: Annotated[
        bool,
        typer.Option("--allow-leak", help="Evaluate also on samples that made a model; the report says which."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take what --save-logits has saved before instead of computing it.")
    ] = False,
    device: Device = "auto",
    dtype: Dtype = None,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    workers: Workers = 0,
    seed: Seed = 0,
    token: Token = None,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Measure accuracy, calibration and OOD detection.

    Example: hydractl evaluate vit hydra=hydra.safetensors --id-data cifar10:test --ood-data far/textures=dtd:test

    Prints a table with a row per system, the best of each column in bold; --json - prints the report instead. The ID
    and OOD sets must not have been used to choose heads: what the models remember of that is refused, or with
    --allow-leak marked.
    """
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.data.columns import Columns
    from hydractl.evaluation.certainty import assemble
    from hydractl.evaluation.results import Settings
    from hydractl.evaluation.run import Conformal
    from hydractl.report.artifact import report_json
    from hydractl.report.figures import check_plots
    from hydractl.report.folder import refuse_existing_report

    if json is not None and str(json) != console.STDOUT:
        refuse_existing(json, force)
    if report is not None:
        refuse_existing_report(report, force)
        check_plots()
    if resume and save_logits is None:
        raise OptionError("--resume takes up what --save-logits FOLDER has saved: pass both")
    settings = Settings(
        ood_score, style, _temperature(temperature), None if conformal is None else Conformal(conformal, coverage)
    )
    running = Running(choose_device(device), choose_dtype(dtype), batch_size, workers, seed, classes, template, quiet)
    asked = None
    if id_data is not None:
        columns = Columns(image_column, text_column, label_column)
        asked = DataOptions(
            id_data,
            ood_data or [],
            calib_data,
            shift_data or [],
            corrupt,
            seed,
            columns,
            limit,
            skip_bad,
            match_labels,
        )
    opened = open_systems(systems, seeds)
    folders = _folders([system.spec.name for system in opened], save_logits)
    data = _open_data(opened, asked, quiet)
    leaks = check_leaks(opened, data, allow_leak)
    measured: list[Measured] = []
    try:
        for system, folder in zip(opened, folders, strict=True):
            saving = Saving(folder, resume, force, leaks[system.spec.name])
            asked_for = Asked(settings, bootstrap, seed, report is not None)
            measured.append(_evaluate(system, data, running, saving, asked_for))
    finally:
        # An interruption keeps what was finished before it.
        if measured:
            options = {
                "batch_size": batch_size,
                "limit": limit,
                "dtype": dtype,
                "corrupt": corrupt,
                **settings.to_json(),
                "bootstrap": bootstrap or None,
                "seed": seed if bootstrap or corrupt or any(system.spec.dropout for system in opened) else None,
            }
            complete = len(measured) == len(opened)
            content = report_json(assemble(measured), _data_json(opened, data), options, complete)
            output_report(content, json, report, force, quiet)


class Asked(NamedTuple):
    """What is wanted of each system."""

    settings: Settings
    bootstrap: int
    seed: int
    curves: bool


def _folders(names: Sequence[str], below: Path | None) -> list[Path | None]:
    """Where each system's logits are saved; seeds of one name are numbered from the second on."""
    if below is None:
        return [None] * len(names)
    counts = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return [below / (name if n == 1 else f"{name}-{n}") for name, n in zip(names, counts, strict=True)]


class Saving(NamedTuple):
    """Where a system's logits are saved, whether those saved before count, and leaks that are saved with them."""

    folder: Path | None
    resume: bool
    force: bool
    leaks: Mapping[str, Any]


def _evaluate(
    system: OpenSystem, data: EvaluationData | None, running: Running, saving: Saving, asked: Asked
) -> Measured:
    """The numbers of one system; its weights are let go on return."""
    from hydractl.evaluation.certainty import Measured, resample
    from hydractl.evaluation.curves import curves_json
    from hydractl.evaluation.results import measure
    from hydractl.evaluation.run import predict_sets

    name, settings = system.spec.name, asked.settings
    description = system.describe()
    predictor = _predictor(system, data, running, saving, description)
    keys = list(system.saved.files if data is None and system.saved else data.sets if data else ())

    def watch(key: SetKey) -> AbstractContextManager[Callable[[int], None]]:
        return console.progress(f"{name}: {key.path}", predictor.samples(key), running.quiet)

    predictions = predict_sets(predictor, keys, settings.temperature, settings.conformal, watch)
    entry = {**description, **saving.leaks, **measure(predictions, predictor.cost, settings).to_json()}
    if asked.curves:
        entry["curves"] = curves_json(predictions, settings)
    drawn = resample(predictions, settings, asked.bootstrap, asked.seed) if asked.bootstrap else None
    return Measured(name, entry, drawn)


def _predictor(
    system: OpenSystem, data: EvaluationData | None, running: Running, saving: Saving, description: Mapping[str, Any]
) -> Predictor:
    from hydractl.evaluation.predictions import SavingSystem, about_json

    if system.saved is not None:
        return system.saved
    assert data is not None
    networks = system.load(data, running)
    if saving.folder is None:
        return networks
    about = about_json(
        data.id.name, networks.models[0].labels, networks.temperature, networks.cost, description["networks"]
    )
    saved = SavingSystem(networks, saving.folder, {**about, **saving.leaks}, saving.resume, saving.force)
    saved.start()
    return saved


def _open_data(opened: Sequence[OpenSystem], asked: DataOptions | None, quiet: bool) -> EvaluationData | None:
    """The data; None where all systems bring their predictions along."""
    modality = modality_of(opened)
    if asked is None or modality is None:
        if modality is not None:
            raise OptionError("--id-data SOURCE is missing: only saved predictions need no data")
        if asked is not None:
            raise OptionError("saved predictions bring their sets along: leave --id-data and other data out")
        return None
    data = open_evaluation_data(asked, modality, quiet)
    for system in opened:
        check_same_samples(system, data)
    return data


def _temperature(text: str | None) -> float | Literal["fit"] | None:
    if text is None:
        return None
    if text == "fit":
        return "fit"
    try:
        value = float(text)
    except ValueError as error:
        raise OptionError(f"--temperature {text}: expected fit or a positive number") from error
    if not 0 < value < float("inf"):
        raise OptionError(f"--temperature {text}: expected fit or a positive number")
    return value


def _data_json(opened: Sequence[OpenSystem], data: EvaluationData | None) -> dict[str, Any]:
    """Names, sizes and columns of the sets, by what they are for."""
    described: dict[SetKey, dict[str, Any]] = {}
    if data is None:
        saved = next(system.saved for system in opened if system.saved is not None)
        described = {key: {"name": key.name, "samples": saved.samples(key)} for key in saved.files}
    else:
        for key, samples in data.sets.items():
            columns = samples.chosen_columns
            listed = {"columns": list(columns.inputs)} if columns else {}
            described[key] = {"name": samples.name, "samples": len(samples), **listed}
    single = {str(key.role): entry for key, entry in described.items() if key.role in ("id", "calibration")}
    ood = {key.name: entry for key, entry in described.items() if key.role == "ood"}
    shift = {f"{key.name}/{key.severity}": entry for key, entry in described.items() if key.role == "shift"}
    return {**single, "ood": ood, "shift": shift}
