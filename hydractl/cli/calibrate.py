"""`hydractl calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hydractl.cli import console
from hydractl.cli.device import choose_device, choose_dtype
from hydractl.cli.evaluation_data import DataOptions, open_evaluation_data
from hydractl.cli.evaluation_systems import OpenSystem, Running, modality_of
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
    from dataclasses import asdict, replace

    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.data.columns import Columns
    from hydractl.data.seen import sketch
    from hydractl.evaluation.calibrate import calibrate as fit
    from hydractl.evaluation.systems import SystemSpec
    from hydractl.families.open import read_checkpoint, write_checkpoint
    from hydractl.surgery.provenance import with_provenance

    refuse_existing(output, force)
    checkpoint = read_checkpoint(model)
    system = OpenSystem(SystemSpec(model, (model,)), (checkpoint,))
    modality = modality_of([system]) or "image"
    columns = Columns(image_column, text_column, label_column)
    options = DataOptions(data, [], None, [], None, 0, columns, limit, skip_bad, match_labels)
    opened = open_evaluation_data(options, modality, quiet)
    running = Running(choose_device(device), choose_dtype(dtype), batch_size, workers, 0, classes, template, quiet)
    networks = system.load(opened, running)
    with console.progress("calibrate", opened.size, quiet) as advance:
        found = fit(networks, next(iter(opened.sets)), advance)
    written = {"batch_size": batch_size, "limit": limit, "dtype": dtype}
    seen = {"search_data": {"calibration data": sketch(opened.id.content_hashes())}}
    calibrated = with_provenance(
        replace(checkpoint, temperature=found.fitted.temperature), "calibrate", [checkpoint], {**written, **seen}
    )
    write_checkpoint(calibrated, output, force)
    if found.fitted.at_bound:
        console.note("note: the loss still falls at the end of the range: the data is too easy, or too little", quiet)
    if json:
        changed = {"argmax_changed": found.argmax_changed}
        console.print_json({"output": str(output), **asdict(found.fitted), **changed})
        return
    console.note(
        f"T = {found.fitted.temperature:.4f}: NLL {found.fitted.nll_before:.4f} -> {found.fitted.nll_after:.4f} "
        f"on {len(opened.id)} samples, {100 * found.argmax_changed:.2f} % of predictions changed",
        quiet,
    )
    print(output)
