"""The options of fine-tuning in groups: what to compute, from which seeds, on which data, and on which machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hydractl import bounds
from hydractl.data.reading import DataLike, DataSetsLike
from hydractl.options import option
from hydractl.run_options import Device, Force, Precision, Resume, Workers, output_option

if TYPE_CHECKING:
    from hydractl.training.recipe import Recipe

RecipeLike = Any  #: a name, a path, or a `Recipe`
Several = Any  #: text with commas between, or a sequence


@dataclass(frozen=True)
class Hyperparameters:
    """A recipe and what replaces its settings."""

    recipe: RecipeLike | None = option(None, "Recipe of training; see hydractl list recipes.", metavar="NAME|FILE.toml")
    settings: Mapping[str, Any] | Sequence[str] = option(
        (), "Change a setting of the recipe; repeat it.", metavar="KEY=VALUE", flags=("--set",), repeated=True
    )
    lr_grid: Several | None = option(None, "Learning rates to try; validation chooses.", metavar="A,B,...", rare=True)
    epochs: float | None = option(None, "Passes over the training data.", metavar="X", within=(0, bounds.EPOCHS))
    steps: int | None = option(None, "Optimiser steps.", metavar="N", within=(1, bounds.STEPS))
    train_only: Several | None = option(
        None, "Train these parts only: attention, mlp, text.norm ...", metavar="PART,...", rare=True
    )
    freeze_below: int | None = option(
        None,
        "Freeze the layers below this one; a negative number counts from the top.",
        metavar="L",
        within=(-bounds.LAYERS, bounds.LAYERS),
        rare=True,
    )
    new_classifier: Literal["no", "zeros", "normal"] | None = option(
        None, "Replace the classifier by an untrained one over the data's labels, or give a base network one."
    )

    def changed_recipe(self) -> Recipe:
        """Returns the recipe with the settings that replace its own; an option wins over `settings`.

        Raises:
            OptionError: the recipe or setting does not exist, or a value does not fit it.
        """
        from hydractl.training.recipe import Recipe, changed, find_recipe, parse_settings

        chosen = Recipe() if self.recipe is None else find_recipe(self.recipe)
        settings = self.settings if isinstance(self.settings, Mapping) else parse_settings(self.settings)
        names = ("lr_grid", "epochs", "steps", "train_only", "freeze_below", "new_classifier")
        options = {name: value for name in names if (value := getattr(self, name)) is not None}
        where = ", ".join(f"`{name}`" for name in options)
        changes = {"lr" if name == "lr_grid" else name: value for name, value in options.items()}
        return changed(changed(chosen, settings, "`settings`"), changes, where)


def _seed_of(draws: str) -> int | None:
    """Declares the seed of some draws, which all members share."""
    about = f"Seed of {draws}, for all members. Default: each member's own seed."
    return option(None, about, "Compute", within=(0, bounds.SEED), rare=True)


@dataclass(frozen=True)
class Seeds:
    """The seeds of a run's draws; each may be varied alone ([HE] B.5)."""

    seed: int = option(0, "Seed of all random draws.", "Compute", within=(0, bounds.SEED))
    order_seed: int | None = _seed_of("the samples' order")
    noise_seed: int | None = _seed_of("dropout and augmentation")

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

    val_data: DataLike | None = option(None, "Labelled validation data.", "Data", "SOURCE[:SPLIT]")
    val_split: int | None = option(
        None,
        "Hold N training samples out for validation, always the same ones.",
        "Data",
        "N",
        within=(1, bounds.SAMPLES),
        rare=True,
    )
    outlier_data: DataSetsLike = option(
        (),
        "Samples of no class, on which the network learns to be unsure; repeat it for several sets.",
        "Data",
        "SOURCE[:SPLIT]",
        repeated=True,
        rare=True,
    )
    teacher: Any = option(
        (),
        "Classifier whose probabilities members learn in place of labels, so that data need no labels; repeat it to "
        "learn the mean of several.",
        metavar="MODEL",
        repeated=True,
    )


@dataclass(frozen=True)
class Execution:
    """The machine and the output of a run. Only `precision` changes the result beyond rounding."""

    device: Device = "auto"
    precision: Precision = "no"
    batch_size: int | None = option(
        None,
        "Samples per forward pass and device; a step adds up as many passes as it needs. Default: one pass.",
        "Compute",
        within=(1, bounds.BATCH),
        rare=True,
    )
    workers: Workers = 0
    output: str | Path | None = output_option("File to write; for several members a folder, or a name with {member}.")
    resume: Resume = False
    save_every: int | None = option(
        None,
        "Steps between saved states. Default: an epoch, at most 500.",
        "Output",
        within=(1, bounds.STEPS),
        rare=True,
    )
    force: Force = False
