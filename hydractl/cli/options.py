"""Options that several subcommands share, each said once; defaults stand in the commands' signatures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

DtypeName = Literal["float64", "float32", "bfloat16", "float16"]

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face folder or a file of ours.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the result as well; .svg and .pdf will do.")]
Device = Annotated[
    str, typer.Option(metavar="auto|cpu|cuda[:N]|mps", help="Where to compute; auto takes a GPU if there is one.")
]
Dtype = Annotated[DtypeName | None, typer.Option(help="Precision; without it the checkpoint's own.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Samples per forward pass; fixes the batches, so the result.")]
Compiled = Annotated[bool, typer.Option("--compile", help="Compile the model with torch.compile first.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of whatever is drawn at random.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace an output that exists.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="File to write; without it the name says how it was made.")
]


def _use_token(token: str | None) -> None:
    # Where every library that fetches something for a command looks for it.
    if token is not None:
        os.environ["HF_TOKEN"] = token


Token = Annotated[
    str | None,
    typer.Option(metavar="TOKEN", callback=_use_token, help="Token of the hub, for what is private; else HF_TOKEN."),
]

ImageColumn = Annotated[str | None, typer.Option(help="Column that holds the images, where it cannot be guessed.")]
TextColumn = Annotated[
    str | None, typer.Option(help="Column that holds the texts, or two with a comma between for pairs of texts.")
]
LabelColumn = Annotated[str | None, typer.Option(help="Column that holds the labels.")]
MatchLabels = Annotated[
    Literal["name", "index"], typer.Option(help="Match the data's labels to the model's by name, or by index.")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave unreadable images and empty texts out, and say which.")
]
Workers = Annotated[int, typer.Option(min=0, help="Processes that decode images; the result is the same for any.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Use only N samples of each data set, spread evenly over it.")]
Classes = Annotated[
    Path | None, typer.Option(help="File with one class name a line, for a zero-shot model without labels of its own.")
]
Template = Annotated[str, typer.Option(help="Prompt of a zero-shot model; {label} stands for the class name.")]

DEFAULT_BATCH_SIZE = 64
DEFAULT_TEMPLATE = "A photo of a {label}."
