"""The options of `hydractl finetune` that no other subcommand has; defaults stand in its signature."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Method = Literal["lora-ensemble", "batch-ensemble"]

Models = Annotated[list[str], typer.Argument(metavar="MODEL...", help="One network, or members to train each.")]
Outputs = Annotated[
    str, typer.Option("--output", "-o", help="File to write; for several members a folder, or a name with {member}.")
]

# Data
TrainingSource = Annotated[str, typer.Option(metavar="SOURCE[:SPLIT]", help="Labelled training data.")]
ValidationSource = Annotated[str | None, typer.Option(metavar="SOURCE[:SPLIT]", help="Labelled validation data.")]
ValidationSplit = Annotated[
    int | None, typer.Option(min=1, help="Hold so many training samples out for validation, always the same.")
]
Streaming = Annotated[
    bool, typer.Option("--streaming", help="Read training data as it comes and keep none of it; see the README.")
]

# What is computed: the recipe, and what the command line changes in it
RecipeName = Annotated[
    str | None, typer.Option(metavar="NAME|FILE.toml", help="What is computed; see hydractl recipes list.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe; repeat it.")
]
LrGrid = Annotated[str | None, typer.Option(metavar="A,B,...", help="Learning rates to try; validation chooses.")]
Epochs = Annotated[float | None, typer.Option(min=0, help="Passes over the training data.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Optimiser steps.")]
TrainOnly = Annotated[
    str | None, typer.Option(metavar="PART,...", help="Train these parts only: attention, mlp, text.norm ...")
]
FreezeBelow = Annotated[
    int | None, typer.Option(metavar="L", help="Freeze the layers below this; negative counts from the top.")
]
NewClassifier = Annotated[
    Literal["no", "zeros", "normal"] | None,
    typer.Option(help="Replace the classifier by an untrained one over the data's labels."),
]

# Which networks
Members = Annotated[
    str | None,
    typer.Option(
        metavar="[N]", help="Train each member of a Hydra on its own; with --method, how many members to make."
    ),
]
Joint = Annotated[
    bool, typer.Option("--joint", help="Train a Hydra as it is fused, on the mean of its members' losses.")
]
BaselineMethod = Annotated[
    Method | None,
    typer.Option(help="Make an ensemble of one dense network, as a baseline, and fold it into one file."),
]
Rank = Annotated[int | None, typer.Option(min=1, help="Rank of each member's deltas in a LoRA ensemble.")]
Alpha = Annotated[float | None, typer.Option(help="LoRA's deltas count alpha / rank, once unless given.")]

# How a run is carried out
Resume = Annotated[bool, typer.Option("--resume", help="Go on where an interrupted run stopped.")]
PassSize = Annotated[
    int | None, typer.Option(min=1, help="Samples per forward pass and device; a step adds up as many as it needs.")
]
MixedPrecision = Annotated[
    Literal["no", "bf16", "fp16"], typer.Option(help="Mixed precision of products; weights stay float32.")
]
SaveEvery = Annotated[
    int | None, typer.Option(min=1, help="Steps between saved states; at each validation unless given.")
]
Keep = Annotated[int, typer.Option(min=1, help="Saved states to keep.")]
