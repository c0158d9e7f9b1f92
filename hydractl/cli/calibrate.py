"""`hydractl calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hydractl.cli import console
from hydractl.cli.device import choose_device, choose_dtype
from hydractl.cli.evaluation_data import SetOptions, open_evaluation_data
from hydractl.cli.evaluation_systems import OpenSystem, Running, modality_of
from hydractl.cli.material import DataOptions
from hydractl.cli.options import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_TEMPLATE,
    BatchSize,
    Classes,
    Device,
    Dtype,
    Force,
    ImageColumn,
    Json,
    LabelColumn,
    Limit,
    MatchLabels,
    Quiet,
    SkipBad,
    Template,
    TextColumn,
    Token,
    Workers,
)

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.data.samples import Samples
    from hydractl.evaluation.sets import EvaluationData
    from hydractl.uncertainty.temperature import FittedTemperature


def calibrate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face folder or a file of ours.")],
    data: Annotated[
        str, typer.Option(metavar="SOURCE[:SPLIT]", help="Labelled ID data that nothing was or will be measured on.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
    limit: Limit = None,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    image_column: ImageColumn = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    match_labels: MatchLabels = "name",
    skip_bad: SkipBad = False,
    device: Device = "auto",
    dtype: Dtype = None,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    workers: Workers = 0,
    token: Token = None,
    json: Json = False,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Fit the temperature of a model and keep it in the file.

    Example: hydractl calibrate hydra.safetensors --data cifar10:train[:2000] -o calibrated.safetensors

    One number divides the logits of every member; it is the one with the least negative log-likelihood of the members'
    mean probability. Predictions of the written file use it. Evaluations refuse the data it was fitted on.
    """
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.data.ranks import Ranks, batch_workers
    from hydractl.data.samples import Samples
    from hydractl.evaluation.systems import SystemSpec
    from hydractl.families.open import read_checkpoint

    refuse_existing(output, force)
    checkpoint = read_checkpoint(model)
    system = OpenSystem(SystemSpec(model, (model,)), (checkpoint,))
    reading = DataOptions(limit, classes, template, image_column, text_column, label_column, match_labels)
    sets = SetOptions(data, [], None, [], [], 0, skip_bad, streaming=False, reading=reading)
    opened = open_evaluation_data(sets, modality_of([system]) or "image", quiet)
    place = choose_device(device)
    with batch_workers(place, ahead=1) as in_parallel:
        running = Running(
            place, choose_dtype(dtype), False, batch_size, workers, 0, reading, Ranks(), in_parallel, quiet
        )
        fitted = _fit(system, opened, running)
    options = {"batch_size": batch_size, "limit": limit, "dtype": dtype}
    used = opened.id
    assert isinstance(used, Samples)  # no streaming
    _write(checkpoint, fitted, used, options, output, force)
    _tell(fitted, output, len(used), json, quiet)


def _fit(system: OpenSystem, data: EvaluationData, running: Running) -> FittedTemperature:
    from hydractl.evaluation.run import collect
    from hydractl.uncertainty.temperature import fit_temperature

    networks = system.load(data, running)
    key = next(iter(data.sets))
    samples = networks.samples(key)
    with console.progress("calibrate", samples, running.quiet) as advance:
        answers = collect(networks.answers(key), advance, samples)
    return fit_temperature(answers.member_logits, answers.labels)


def _write(
    checkpoint: Checkpoint, fitted: FittedTemperature, used: Samples, options: dict[str, Any], output: Path, force: bool
) -> None:
    """Writes the model with its temperature; its history remembers the samples."""
    from dataclasses import replace

    from hydractl.data.seen import sketch
    from hydractl.families.open import write_checkpoint
    from hydractl.surgery.provenance import with_provenance

    seen = {"search_data": {"calibration data": sketch(used.content_hashes())}}
    warm = replace(checkpoint, temperature=fitted.temperature)
    write_checkpoint(with_provenance(warm, "calibrate", [checkpoint], {**options, **seen}), output, force)


def _tell(fitted: FittedTemperature, output: Path, samples: int, json: bool, quiet: bool) -> None:
    from dataclasses import asdict

    if fitted.at_bound:
        console.note("note: the loss still falls at the end of the range: the data is too easy, or too little", quiet)
    if json:
        console.print_json({"output": str(output), **asdict(fitted)})
        return
    console.note(
        f"T = {fitted.temperature:.4f}: NLL {fitted.nll_before:.4f} -> {fitted.nll_after:.4f} "
        f"on {samples} samples, {100 * fitted.argmax_changed:.2f} % of predictions changed",
        quiet,
    )
    print(output)
