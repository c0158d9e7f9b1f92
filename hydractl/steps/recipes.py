"""The published fine-tuning recipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.options import Option, function
from hydractl.steps.result import Result
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.training.recipe import Recipe

    RecipeLike = str | Path | Recipe
else:  # what the command line derives flags from
    RecipeLike = Any


@dataclass(frozen=True, eq=False, repr=False)
class Recipes(Result):
    """The published recipes by name."""

    recipes: Mapping[str, Recipe]

    def to_json(self) -> dict[str, Any]:
        from hydractl.training.recipe import to_json

        return {"recipes": {name: to_json(recipe) for name, recipe in self.recipes.items()}}

    def lines(self) -> Iterator[str]:
        yield from (f"{name:17} {summary}" for name, summary in self.facts().items())

    def facts(self) -> Mapping[str, object]:
        return {name: _summary(recipe) for name, recipe in self.recipes.items()}


@dataclass(frozen=True, eq=False, repr=False)
class ShownRecipe(Result):
    """One recipe, setting by setting."""

    recipe: Recipe

    def to_json(self) -> dict[str, Any]:
        from hydractl.training.recipe import to_json

        return to_json(self.recipe)

    def lines(self) -> Iterator[str]:
        from hydractl.training.recipe import to_toml

        yield from to_toml(self.recipe).splitlines()

    def facts(self) -> Mapping[str, object]:
        return self.to_json()


def _summary(recipe: Recipe) -> str:
    length = f"{recipe.steps} steps" if recipe.steps else f"{recipe.epochs:g} epochs"
    rates = ", ".join(f"{lr:g}" for lr in recipe.lr)
    return f"{recipe.optimizer}, lr {rates}, {recipe.schedule}, {length}, {recipe.batch} samples a step"


@dataclass(frozen=True)
class ListRecipes:
    """List the published recipes and what each trains.

    Example: hydractl recipes list

    >>> hydractl.list_recipes().recipes["sst2"].epochs
    7
    """

    def run(self, watch: Watcher) -> Recipes:
        from hydractl.training.published import RECIPES

        return Recipes(RECIPES)


@dataclass(frozen=True)
class ShowRecipe:
    """Print a recipe as TOML, ready to be changed and passed to finetune.

    Example: hydractl recipes show sst2 > mine.toml

    >>> hydractl.show_recipe("sst2").recipe.optimizer
    'adamw'

    Raises:
        OptionError: neither a published recipe nor a readable file.
    """

    recipe: Annotated[
        RecipeLike, Option("A published recipe, or a TOML file.", "Model", metavar="RECIPE", positional=True)
    ]

    def run(self, watch: Watcher) -> ShownRecipe:
        from hydractl.training.published import find_recipe

        return ShownRecipe(find_recipe(self.recipe))


list_recipes, show_recipe = function(ListRecipes), function(ShowRecipe)
