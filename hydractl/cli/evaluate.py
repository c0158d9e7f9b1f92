"""`hydractl evaluate`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hydractl.cli import console
from hydractl.cli.classes import set_classes
from hydractl.cli.device import choose_device, choose_dtype
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
    Template,
    TextColumn,
    Token,
)
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.data.columns import Columns, Modality
    from hydractl.evaluation.run import EvaluationData


def evaluate(
    models: Annotated[
        list[str], typer.Argument(metavar="[NAME=]MODEL...", help="Hugging Face folders or files of ours.")
    ],
    id_data: Annotated[str, typer.Option(metavar="[NAME=]SOURCE[:SPLIT]", help="Labelled in-distribution data.")],
    ood_data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[near/|far/][NAME=]SOURCE[:SPLIT]", help="Out-of-distribution data; repeat it for several sets."
        ),
    ] = None,
    limit: Limit = None,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    image_column: ImageColumn = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    match_labels: MatchLabels = "name",
    json: Annotated[Path | None, typer.Option(metavar="FILE|-", help="Write the report as JSON as well.")] = None,
    device: Device = "auto",
    dtype: Dtype = None,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    quiet: Quiet = False,
    force: Force = False,
    token: Token = None,
) -> None:
    """Measure accuracy, calibration and OOD detection.

    Example: hydractl evaluate vit hydra=hydra.safetensors --id-data cifar10:test --ood-data far/textures=dtd:test

    Prints a table with a row per model, the best of each column in bold; --json - prints the report instead. The ID
    and OOD sets must not have been used to choose heads: what the models remember of that is refused.
    """
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.data.columns import Columns
    from hydractl.data.preprocessing import preprocessor_from_json
    from hydractl.evaluation.leakage import refuse_used
    from hydractl.evaluation.run import evaluate_model
    from hydractl.families.open import read_checkpoint
    from hydractl.inference import load_checkpoint
    from hydractl.report.artifact import report_json
    from hydractl.report.table import print_results

    if json is not None and str(json) != console.STDOUT:
        refuse_existing(json, force)
    checkpoints = {name: read_checkpoint(reference) for name, reference in _named(models).items()}
    data = _open_data(
        _modality(checkpoints), id_data, ood_data or [], Columns(image_column, text_column, label_column), limit
    )
    data = replace(data, match=match_labels)
    for name, checkpoint in checkpoints.items():
        for samples in data.every:
            refuse_used(name, checkpoint.provenance, samples)
    results = {}
    for name, checkpoint in checkpoints.items():
        model = load_checkpoint(checkpoint, choose_device(device), choose_dtype(dtype)).optimize_for_inference()
        set_classes(model, classes, template, data.id)
        preprocessor = preprocessor_from_json(
            checkpoint.preprocessing, checkpoint.spec, checkpoint.name, checkpoint.config
        )
        notes: list[str] = []
        with console.progress(name, data.size, quiet) as advance:
            results[name] = evaluate_model(model, preprocessor, data, batch_size, advance, notes.append)
        for note in notes:
            console.note(f"note: {name}: {note}", quiet)
    report = report_json(results, checkpoints, data, {"batch_size": batch_size, "limit": limit, "dtype": dtype})
    if json is not None:
        console.write_json(json, report, force)
    if str(json) != console.STDOUT:
        print_results(results, console.stdout_console())


def _named(models: list[str]) -> dict[str, str]:
    """Model references by the names they have in the table."""
    pairs = [_name_and_reference(text) for text in models]
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise OptionError(f"{count} models are called {name}: give them names, as in first={pairs[0][1]}")
    return dict(pairs)


def _name_and_reference(text: str) -> tuple[str, str]:
    name, equals, reference = text.partition("=")
    if equals and name and reference and not Path(text).exists():
        return name, reference
    return Path(text).resolve().name.removesuffix(".safetensors"), text


def _modality(checkpoints: dict[str, Checkpoint]) -> Modality:
    """What all of the models take."""
    modalities: dict[str, Modality] = {
        name: "text" if checkpoint.spec.task == "text-classification" else "image"
        for name, checkpoint in checkpoints.items()
    }
    if len(set(modalities.values())) > 1:
        listed = ", ".join(f"{name} takes {modality}s" for name, modality in modalities.items())
        raise OptionError(f"one evaluation is of images or of texts: {listed}")
    return next(iter(modalities.values()))


def _open_data(
    modality: Modality, id_data: str, ood_data: list[str], columns: Columns, limit: int | None
) -> EvaluationData:
    from hydractl.data.sources import open_data
    from hydractl.data.spec import parse_data_spec
    from hydractl.evaluation.run import EvaluationData, OodSamples

    id_samples = open_data(parse_data_spec(id_data), modality, columns, limit)
    # A column named for the ID data need not be there in every OOD set.
    lenient = replace(columns, strict=False)
    ood: dict[str, OodSamples] = {}
    for text in ood_data:
        spec = parse_data_spec(text, grouped=True)
        if spec.name in ood:
            raise OptionError(f"--ood-data {text}: a set called {spec.name} is there already: give it another name")
        ood[spec.name] = OodSamples(open_data(spec, modality, lenient, limit), spec.group)
    return EvaluationData(id_samples, ood)
