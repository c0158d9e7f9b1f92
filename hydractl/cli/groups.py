"""Groups of subcommands, of which the one that is chosen is made."""

from __future__ import annotations

from typing import Any

import typer.core

from hydractl.cli.derive import Command, options_of, runner
from hydractl.cli.help import set_out
from hydractl.cli.parsing import StepCommand


class Listed(typer.core.TyperCommand):
    """A subcommand as a list of them shows it: by its name and first line."""

    def __init__(self, command: Command) -> None:
        super().__init__(command.name.split()[-1])
        self.command = command

    def get_short_help_str(self, limit: int = 0) -> str:
        return self.command.first_line

    def chosen(self) -> Any:
        """The subcommand with its flags, made of its step's declaration."""
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        known = type("StepCommand", (StepCommand,), {"options": options_of(self.command)})
        alone.command(self.name, cls=known)(runner(self.command))
        return typer.main.get_command(alone)


class StepGroup(typer.core.TyperGroup):
    """A group of commands whose help looks as theirs does."""

    def get_help(self, ctx: Any) -> str:
        return set_out(super().get_help(ctx))

    def get_params(self, ctx: Any) -> list[Any]:
        flags = super().get_params(ctx)
        for flag in flags:
            # A flag that is None typer hands to pydantic, which takes as long to import as everything else here.
            flag.default = False
        return flags

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # Where a command is entered, to run it, to show its help or to complete its options; lists do not come here.
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.chosen() if isinstance(command, Listed) else command, rest
