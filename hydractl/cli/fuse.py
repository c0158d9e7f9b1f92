"""`hydractl fuse`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hydractl.cli import console
from hydractl.cli.device import choose_dtype
from hydractl.cli.options import Dtype, Force, Json, Token


def fuse(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="The members, in order.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
    separate: Annotated[
        str,
        typer.Option(
            metavar="mlp,norm,embeddings,classifier,pooler|all",
            help="What stays with its member instead of being averaged; TOWER.PART for one tower only.",
        ),
    ] = "",
    dtype: Dtype = None,
    json: Json = False,
    force: Force = False,
    token: Token = None,
) -> None:
    """Fuse members into one Hydra.

    Attention stands side by side, the rest is averaged unless kept separate.

    Example: hydractl fuse m1 m2 m3 -o hydra.safetensors

    Writes one safetensors file and prints its path. What is bit-identical in all members is stored once and never
    changed. With --separate all, dense members make an exact Deep Ensemble in one file.
    """
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.families.open import read_checkpoint, write_checkpoint
    from hydractl.surgery.fuse import fuse as fuse_members
    from hydractl.surgery.fuse import parse_separate
    from hydractl.surgery.provenance import with_provenance

    parts = parse_separate(part.strip() for part in separate.split(",") if part.strip())
    refuse_existing(output, force)
    members = [read_checkpoint(model) for model in models]
    fused = fuse_members(members, parts, choose_dtype(dtype))
    fused = with_provenance(fused, "fuse", members, {"separate": sorted(parts), "dtype": dtype})
    write_checkpoint(fused, output, force)
    if json:
        console.print_json({"output": str(output), "members": fused.members})
    else:
        print(output)
