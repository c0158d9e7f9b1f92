"""`hydractl recipes`."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    name="recipes", help="Show the published fine-tuning recipes.", no_args_is_help=True, pretty_exceptions_enable=False
)


@app.command("list")
def list_recipes() -> None:
    """List the published recipes and what each trains.

    Example: hydractl recipes list
    """
    from hydractl.training.published import RECIPES

    for name, recipe in RECIPES.items():
        length = f"{recipe.steps} steps" if recipe.steps else f"{recipe.epochs:g} epochs"
        rates = ", ".join(f"{lr:g}" for lr in recipe.lr)
        print(f"{name:17} {recipe.optimizer}, lr {rates}, {recipe.schedule}, {length}, {recipe.batch} samples a step")


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="A published recipe, or a TOML file.")],
) -> None:
    """Print a recipe as TOML, ready to be changed and passed to finetune.

    Example: hydractl recipes show sst2 > mine.toml
    """
    from hydractl.training.published import find_recipe
    from hydractl.training.recipe import to_toml

    print(to_toml(find_recipe(name)), end="")
