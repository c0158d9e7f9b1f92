"""How a subcommand's arguments are read and its help is laid out, where typer by itself does something else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import typer.core

from hydractl.cli.help import record, set_out, unbroken, usage
from hydractl.errors import OptionError
from hydractl.steps.options import HEADINGS, Declared, flags_of

ARGUMENTS = "Arguments"
STDOUT = "-"


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
    """A command whose help groups options under headings, and whose bare flags stand for a value."""

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
        return set_out(super().get_help(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [option for option in self.options if option.option.positional]
        return ["[OPTIONS]", *map(usage, sorted(arguments, key=lambda option: not option.required))]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(unbroken(self.help or ""))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {ARGUMENTS: [], **{heading: [] for heading in HEADINGS}}
        parameters: dict[str, Any] = {parameter.name: parameter for parameter in self.get_params(ctx)}
        for option in self.options:
            parameter = parameters.pop(option.name)
            default = parameter.default if parameter.show_default is True else parameter.show_default
            group = ARGUMENTS if option.option.positional else option.option.heading
            groups[group].append(record(option, parameter.help, default and str(default)))
        groups[HEADINGS[-1]] += [parameter.get_help_record(ctx) for parameter in parameters.values()]  # --help
        for heading, records in groups.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)
