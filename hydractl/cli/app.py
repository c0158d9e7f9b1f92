"""The command `hydractl`: its subcommands and groups, and what `--help` and `--version` print."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Annotated, Any

import typer

from hydractl.cli import console
from hydractl.cli.commands import COMMANDS
from hydractl.cli.groups import Listed, StepGroup

WIDEST = 120  # longer lines are hard to read


def _width() -> int | None:
    """The width of the terminal that a person sits at, also where help goes through a pipe to a pager."""
    for stream in (0, 1, 2):
        with suppress(OSError):
            return min(os.get_terminal_size(stream).columns, WIDEST)
    return None


frame = typer.Typer(
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


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"hydractl {version('hydractl')}")
        raise typer.Exit


@frame.callback()
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


def _whole() -> Any:
    """The command line with its subcommands and groups, in the order of the table."""
    whole: Any = typer.main.get_command(frame)
    groups = {
        name: StepGroup(name=name, help=text, no_args_is_help=True, rich_markup_mode=None)
        for name, text in GROUPS.items()
    }
    for command in COMMANDS:
        group = command.name.rpartition(" ")[0]
        (groups[group] if group else whole).add_command(Listed(command))
    for each in groups.values():
        whole.add_command(each)
    return whole


app = _whole()
