"""`hydractl inspect`."""

from __future__ import annotations

from typing import Annotated

import typer

from hydractl.cli import console
from hydractl.cli.options import Json, Token


def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A file of ours, a Hugging Face folder or hub id.")],
    json: Json = False,
    token: Token = None,
) -> None:
    """Show what a model is made of.

    Example: hydractl inspect hydra.safetensors

    Prints a map with a row per layer and a column per member: a square is a head kept, a dot one dropped.
    """
    from hydractl.families.open import read_checkpoint
    from hydractl.report.summary import summarize, summary_lines

    summary = summarize(read_checkpoint(model))
    if json:
        console.print_json(summary)
    else:
        print("\n".join(summary_lines(summary)))
