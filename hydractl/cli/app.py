"""The command `hydractl`: its subcommands and groups, and what `--help` and `--version` print."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Annotated

import typer

from hydractl.cli import console
from hydractl.cli.commands import COMMANDS
from hydractl.cli.derive import command_class, runner
from hydractl.cli.parsing import StepGroup

WIDEST = 120  # longer lines are hard to read


def _width() -> int | None:
    """The width of the terminal that a person sits at, also where help goes through a pipe to a pager."""
    for stream in (0, 1, 2):
        with suppress(OSError):
            return min(os.get_terminal_size(stream).columns, WIDEST)
    return None


app = typer.Typer(
    name="hydractl",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    cls=StepGroup,
    rich_markup_mode=None,  # whose boxes leave the text half of a terminal's columns
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST, "terminal_width": _width()},
)
GROUPS = {
    "circuit": "Look at circuits and compare them.",
    "analyse": "Measure what pruning does to a network.",
    "recipes": "Show the published fine-tuning recipes.",
    "suites": "Show the built-in suites of tasks to evaluate on.",
}
groups = {
    name: typer.Typer(help=text, cls=StepGroup, rich_markup_mode=None, no_args_is_help=True)
    for name, text in GROUPS.items()
}
for each in COMMANDS:
    group, _, name = each.name.rpartition(" ")
    place = groups[group] if group else app
    place.command(name, cls=command_class(each), no_args_is_help=False)(runner(each))
for name, commands in groups.items():
    app.add_typer(commands, name=name)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"hydractl {version('hydractl')}")
        raise typer.Exit


@app.callback()
def hydractl(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Turn a trained transformer classifier into one Hydra ensemble that knows when it is wrong.

    checkpoint -> pruned members -> one fused Hydra -> table of results

    hydractl build does it all; hydractl guide is the manual.
    """
    console.silence_libraries()
    if context.invoked_subcommand is None:
        print(context.get_help())
