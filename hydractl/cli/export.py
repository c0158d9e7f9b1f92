"""`hydractl export`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from hydractl.cli import console
from hydractl.cli.device import choose_dtype
from hydractl.cli.options import DEFAULT_TEMPLATE, Classes, Dtype, DtypeName, Force, Quiet, Template, Token
from hydractl.data.classes import read_classes
from hydractl.errors import OptionError

Format = Literal["hf", "onnx", "torch-export"]


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face folder or a file of ours.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="What to write: a file, or for hf a folder.")],
    format: Annotated[Format, typer.Option("--format", help="The format to write.")],  # noqa: A002
    check: Annotated[
        bool, typer.Option("--check", help="Run what was written on random inputs and compare its answers.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="JSON", help="A report of evaluate, for the model card of format hf.")
    ] = None,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    dtype: Dtype = None,
    quiet: Quiet = False,
    force: Force = False,
    token: Token = None,
) -> None:
    """Write a model for another runtime.

    Example: hydractl export hydra.safetensors --format onnx -o hydra.onnx --check

    Formats onnx and torch-export are one graph from preprocessed inputs to the mean `probabilities` and the
    `member_logits`, with batch size and text length open. Labels and preprocessing travel along as metadata.

    Format hf is a folder for transformers. One member becomes a stock model of the library it came from, with zeros
    for the heads it dropped. Several become a Hydra with a model card, which AutoModel and pipelines load after
    `import hydractl.auto`, or anywhere with trust_remote_code=True.
    """
    if format == "hf":
        _refuse({"--check": check, "--classes": classes, "--dtype": dtype}, "has no effect with --format hf")
        _export_folder(model, output, report, force)
    else:
        _refuse({"--report": report}, "belongs to --format hf")
        _export_graph(model, output, format, (classes, template), dtype, check, quiet, force)
    print(output)


def _export_graph(
    model: str,
    output: Path,
    format: Literal["onnx", "torch-export"],  # noqa: A002
    prompts: tuple[Path | None, str],
    dtype: DtypeName | None,
    check: bool,
    quiet: bool,
    force: bool,
) -> None:
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.formats.graph import trace
    from hydractl.formats.onnx import check_onnx, require_checkable, write_onnx
    from hydractl.formats.torch_export import check_torch_export, write_torch_export
    from hydractl.inference import load

    refuse_existing(output, force)
    hydra = load(model, dtype=choose_dtype(dtype))
    if check and format == "onnx":
        require_checkable(hydra)
    classes, template = prompts
    if classes is not None:
        hydra.set_classes(read_classes(classes), template)
    traced = trace(hydra)
    write, compare = {
        "onnx": (write_onnx, check_onnx),
        "torch-export": (write_torch_export, check_torch_export),
    }[format]
    write(traced, output, force)
    if check:
        difference = compare(output, hydra)
        console.note(f"{output}: probabilities within {difference:.1g} of the model's", quiet)


def _refuse(given: Mapping[str, object], why: str) -> None:
    for option, value in given.items():
        if value:
            raise OptionError(f"{option} {why}: leave it out")


def _export_folder(model: str, folder: Path, report: Path | None, force: bool) -> None:
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.checkpoint.tensors import read_json
    from hydractl.families.open import read_checkpoint
    from hydractl.formats.folder import write_hydra
    from hydractl.formats.stock import write_stock

    refuse_existing(folder, force)
    checkpoint = read_checkpoint(model)
    if checkpoint.members == 1:
        write_stock(checkpoint, folder, force)
    else:
        write_hydra(checkpoint, folder, read_json(report) if report else None, force)
