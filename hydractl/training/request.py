"""The options of fine-tuning in groups: what to compute, from which seeds, on which data, and on which machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl import bounds
from hydractl.data.reading import DataLike, DataSetsLike
from hydractl.options import Option

if TYPE_CHECKING:
    import torch

    from hydractl.training.recipe import Recipe

    DeviceLike = str | torch.device
    RecipeLike = str | Path | Recipe
    Numbers = str | float | Sequence[float]
    Names = str | Sequence[str]
else:  # the command line takes any text
    DeviceLike = RecipeLike = Numbers = Names = Any

Precision = Literal["no", "bf16", "fp16"]


@dataclass(frozen=True)
class Hyperparameters:
    """A recipe and what replaces its settings."""

    recipe: Annotated[
        RecipeLike | None, Option("What is computed; see hydractl list recipes.", metavar="NAME|FILE.toml")
    ] = None
    settings: Annotated[
        Mapping[str, Any] | Sequence[str],
        Option("Change a setting of the recipe; repeat it.", metavar="KEY=VALUE", flags=("--set",), repeated=True),
    ] = ()
    lr_grid: Annotated[Numbers | None, Option("Learning rates to try; validation chooses.", metavar="A,B,...")] = None
    epochs: Annotated[
        float | None, Option("Passes over the training data.", metavar="X", minimum=0, maximum=bounds.EPOCHS)
    ] = None
    steps: Annotated[int | None, Option("Optimiser steps.", metavar="N", minimum=1, maximum=bounds.STEPS)] = None
    train_only: Annotated[
        Names | None, Option("Train these parts only: attention, mlp, text.norm ...", metavar="PART,...")
    ] = None
    freeze_below: Annotated[
        int | None,
        Option(
            "Freeze the layers below this; negative counts from the top.",
            metavar="L",
            minimum=-bounds.LAYERS,
            maximum=bounds.LAYERS,
        ),
    ] = None
    new_classifier: Annotated[
        Literal["no", "zeros", "normal"] | None,
        Option("Replace the classifier by an untrained one over the data's labels, or give a base network one."),
    ] = None

    def changed_recipe(self) -> Recipe:
        """Returns the recipe with the settings that replace its own; an option wins over `settings`.

        Raises:
            OptionError: the recipe or setting does not exist, or a value does not fit it.
        """
        from hydractl.training.published import find_recipe
        from hydractl.training.recipe import Recipe, changed, parse_settings

        chosen = Recipe() if self.recipe is None else find_recipe(self.recipe)
        settings = self.settings if isinstance(self.settings, Mapping) else parse_settings(self.settings)
        own = ("lr_grid", "epochs", "steps", "train_only", "freeze_below", "new_classifier")
        given = {name: value for name in own if (value := getattr(self, name)) is not None}
        named = ", ".join(f"`{name}`" for name in given)
        changes = {"lr" if name == "lr_grid" else name: value for name, value in given.items()}
        return changed(changed(chosen, settings, "`settings`"), changes, named)


@dataclass(frozen=True)
class Seeds:
    """The seeds of a run's draws; each may be varied alone ([HE] B.5)."""

    seed: Annotated[int, Option("Seed of whatever is drawn at random.", "Compute", minimum=0, maximum=bounds.SEED)] = 0
    order_seed: Annotated[
        int | None,
        Option(
            "Seed of the samples' order, for all members. Default: each member's own seed.",
            "Compute",
            minimum=0,
            maximum=bounds.SEED,
        ),
    ] = None
    noise_seed: Annotated[
        int | None,
        Option(
            "Seed of dropout and augmentation, for all members. Default: each member's own seed.",
            "Compute",
            minimum=0,
            maximum=bounds.SEED,
        ),
    ] = None

    @property
    def order(self) -> int:
        """The seed of the samples' order."""
        return self.seed if self.order_seed is None else self.order_seed

    @property
    def noise(self) -> int:
        """The seed of dropout and augmentation."""
        return self.seed if self.noise_seed is None else self.noise_seed

    def of_member(self, number: int) -> Seeds:
        """Returns the seeds of a member, counted from 0."""
        return replace(self, seed=self.seed + number)


@dataclass(frozen=True)
class TrainingSources:
    """Data to learn from beside the training data."""

    val_data: Annotated[DataLike | None, Option("Labelled validation data.", "Data", "SOURCE[:SPLIT]")] = None
    val_split: Annotated[
        int | None,
        Option(
            "Hold N training samples out for validation, always the same ones.",
            "Data",
            "N",
            minimum=1,
            maximum=bounds.SAMPLES,
        ),
    ] = None
    outlier_data: Annotated[
        DataSetsLike,
        Option(
            "Samples of no class, on which the network learns to be unsure; repeat it for several sets.",
            "Data",
            "SOURCE[:SPLIT]",
            repeated=True,
        ),
    ] = ()
    teacher: Annotated[
        Any,
        Option(
            "Classifier whose probabilities members learn in place of labels, which the data then need not have; "
            "repeat it for the mean of several.",
            metavar="MODEL",
            repeated=True,
        ),
    ] = ()


@dataclass(frozen=True)
class Execution:
    """The machine and the output of a run. Only `precision` changes the result beyond rounding."""

    device: Annotated[
        DeviceLike, Option("Where to compute; auto takes a GPU if there is one.", "Compute", "auto|cpu|cuda[:N]|mps")
    ] = "auto"
    precision: Annotated[Precision | None, Option("Mixed precision of products; weights stay float32.", "Compute")] = (
        "no"
    )
    batch_size: Annotated[
        int | None,
        Option(
            "Samples per forward pass and device; a step adds up as many passes as it needs. Default: one pass.",
            "Compute",
            minimum=1,
            maximum=bounds.BATCH,
        ),
    ] = None
    workers: Annotated[
        int,
        Option(
            "Processes that decode images; the result is the same for any number.", "Compute", minimum=0, maximum=1024
        ),
    ] = 0
    output: Annotated[
        str | Path | None,
        Option(
            "File to write; for several members a folder, or a name with {member}.", "Output", flags=("--output", "-o")
        ),
    ] = None
    resume: Annotated[bool, Option("Continue an interrupted run, if there is one.", "Output")] = False
    save_every: Annotated[
        int | None,
        Option("Steps between saved states. Default: at each validation.", "Output", minimum=1, maximum=bounds.STEPS),
    ] = None
    force: Annotated[bool, Option("Replace an output that exists.", "Output", flags=("--force", "-f"))] = False
