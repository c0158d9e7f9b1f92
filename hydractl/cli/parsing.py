"""How a subcommand's arguments are read and its help is laid out, where typer by itself does something else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import typer.core

from hydractl.errors import OptionError
from hydractl.steps.options import HEADINGS, Declared, flags_of

ARGUMENTS = "Arguments"
STDOUT = "-"
UNBROKEN = "\u2011"  # a hyphen at which no line ends


def with_bare_flags(arguments: Sequence[str], options: Sequence[Declared]) -> list[str]:
    """The arguments with a value put in after flags that may stand alone and do."""
    bare = {flag: option.option.bare for option in options if option.option.bare for flag in flags_of(option)}

    def completed() -> Iterator[str]:
        for place, argument in enumerate(arguments):
            yield argument
            following = arguments[place + 1] if place + 1 < len(arguments) else None
            value = bare.get(argument)
            if value is not None and (following is None or (following.startswith("-") and following != STDOUT)):
                yield value

    return list(completed())


class StepCommand(typer.core.TyperCommand):
    """A command whose plain help groups options under headings, and whose bare flags stand for a value."""

    options: Sequence[Declared] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        arguments = with_bare_flags(args, self.options)
        self._refuse_data_twice(ctx, arguments)
        return super().parse_args(ctx, arguments)

    def _refuse_data_twice(self, ctx: Any, arguments: Sequence[str]) -> None:
        """Of other options the last one counts, as everywhere; of data one set would be left out in silence."""
        _, _, given = self.make_parser(ctx).parse_args(list(arguments))
        data = {option.name for option in self.options if "SOURCE" in (option.option.metavar or "")}
        for parameter in given:
            if parameter.name in data and not parameter.multiple and given.count(parameter) > 1:
                raise OptionError(f"{parameter.opts[0]} is given {given.count(parameter)} times: give it once")

    def get_help(self, ctx: Any) -> str:
        return str(super().get_help(ctx)).replace(UNBROKEN, "-")

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_unbroken(self.help or ""))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {ARGUMENTS: [], **{heading: [] for heading in HEADINGS}}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                panel = getattr(parameter, "rich_help_panel", None)
                argument = parameter.param_type_name == "argument"
                name, text = record
                groups[ARGUMENTS if argument else panel or HEADINGS[-1]].append((name, _unbroken(text)))
        for heading, records in groups.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _unbroken(text: str) -> str:
    """Text whose lines end at blanks only: a flag that is cut in two cannot be read, nor copied."""
    return re.sub(r"(?<=[\w-])-(?=\w)|(?<!\S)-(?=-\w)", UNBROKEN, text)
