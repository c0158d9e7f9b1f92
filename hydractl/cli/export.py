"""`hydractl export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hydractl.cli import console
from hydractl.cli.classes import read_classes
from hydractl.cli.device import choose_dtype
from hydractl.cli.options import DEFAULT_TEMPLATE, Classes, Dtype, Force, Quiet, Template

Format = Literal["onnx", "torch-export"]


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face folder or a file of ours.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="What to write.")],
    format: Annotated[Format, typer.Option("--format", help="The format to write.")],  # noqa: A002
    check: Annotated[
        bool, typer.Option("--check", help="Run what was written on random inputs and compare its answers.")
    ] = False,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    dtype: Dtype = None,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Write a model for another runtime.

    Example: hydractl export hydra.safetensors --format onnx -o hydra.onnx --check

    Formats onnx and torch-export are one graph from preprocessed inputs to the mean `probabilities` and the
    `member_logits`, with batch size and text length open. Labels and preprocessing travel along as metadata.
    """
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.export.graph import trace
    from hydractl.export.onnx import check_onnx, write_onnx
    from hydractl.export.torch_export import check_torch_export, write_torch_export
    from hydractl.inference import load

    refuse_existing(output, force)
    hydra = load(model, dtype=choose_dtype(dtype))
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
    print(output)
