"""The subcommands of `hydractl`, in the order of the pipeline."""

from __future__ import annotations

from hydractl.cli.derive import Command
from hydractl.steps.benchmark import benchmark
from hydractl.steps.export import export
from hydractl.steps.families import families
from hydractl.steps.finetune import finetune
from hydractl.steps.fuse import fuse
from hydractl.steps.guide import guide
from hydractl.steps.inspect import inspect
from hydractl.steps.predict import predict
from hydractl.steps.recipes import list_recipes, show_recipe

COMMANDS = (
    Command("finetune", finetune, writes=True),
    Command("fuse", fuse, writes=True),
    Command("inspect", inspect),
    Command("families", families),
    Command("predict", predict),
    Command("benchmark", benchmark),
    Command("export", export, writes=True),
    Command("recipes list", list_recipes),
    Command("recipes show", show_recipe),
    Command("guide", guide),
)
