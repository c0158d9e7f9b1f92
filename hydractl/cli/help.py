"""The parsing and the `--help` of a subcommand, from the declaration of its step's options."""

import inspect
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import typer.core

from hydractl.errors import OptionError
from hydractl.options import HEADINGS, Declared, flags_of
from hydractl.text import continued

STDOUT = "-"
SOURCES = (
    "SOURCE: a folder, a .parquet, .csv, .tsv or .jsonl file, or a data set of the hub. %1/4 behind it takes the first "
    "of four parts, ?label=NAME and ?text=NAME name columns: data.csv%1/4?label=stars. ID is in-distribution, as in "
    "training; OOD is out-of-distribution; MSP is the maximum softmax probability; ECE is the expected calibration "
    "error."
)
ARGUMENTS = "Arguments"
EXAMPLE_WIDTH = 78  # of 80 columns, less two of indentation
UNBROKEN = "\u2011"  # a hyphen at which no line ends
#: The placeholder for a value of a type.
METAVARS: dict[Any, str] = {int: "N", float: "X", str: "TEXT"}
LONGEST_METAVAR = 40  # characters of choices in the flag's column; longer ones stand in the sentence
FEWEST_HIDDEN = 3  # options; one or two are not worth a second look
TELLING_BOUND = 100  # a higher bound only keeps nonsense out


class StepCommand(typer.core.TyperCommand):
    """A command whose help groups options under headings, and whose bare flags stand for a value."""

    options: Sequence[Declared] = ()
    everything = False  # whether its help shows rare options and all of its text

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        arguments = with_bare_flags(args, self.options)
        self._refuse_data_twice(ctx, arguments)
        return super().parse_args(ctx, arguments)

    def _refuse_data_twice(self, ctx: Any, arguments: Sequence[str]) -> None:
        """Rejects a repeated data option, which would silently drop the first data set."""
        _, _, parameters = self.make_parser(ctx).parse_args(list(arguments))
        data = {option.name for option in self.options if "SOURCE" in (option.option.metavar or "")}
        for parameter in parameters:
            if parameter.name in data and not parameter.multiple and parameters.count(parameter) > 1:
                raise OptionError(f"{parameter.opts[0]} is given {parameters.count(parameter)} times: give it once")

    def get_help(self, ctx: Any) -> str:
        return set_out(super().get_help(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [option for option in self.options if option.option.positional]
        return ["[OPTIONS]", *map(usage, sorted(arguments, key=lambda option: not option.required))]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(unbroken(first_screen(self.help or "") if self.left_out() else self.help or ""))

    def left_out(self) -> tuple[Declared, ...]:
        """Returns the options that only `--help-all` shows."""
        rare = tuple(option for option in self.options if option.option.rare and not self.everything)
        return rare if len(rare) >= FEWEST_HIDDEN else ()

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {ARGUMENTS: [], **{heading: [] for heading in HEADINGS}}
        parameters: dict[str, Any] = {parameter.name: parameter for parameter in self.get_params(ctx)}
        hidden = self.left_out()
        for option in self.options:
            parameter = parameters.pop(option.name)
            if option in hidden:
                continue
            default = parameter.default if parameter.show_default is True else parameter.show_default
            group = ARGUMENTS if option.option.positional else option.option.heading
            groups[group].append(_record(option, parameter.help, default and str(default)))
        groups[HEADINGS[-1]] += [parameter.get_help_record(ctx) for parameter in parameters.values()]  # --help
        for heading, records in groups.items():
            if records:
                with formatter.section(heading):
                    if heading == "Data" and any("SOURCE" in written for written, _ in records):
                        formatter.write_text(unbroken(SOURCES))
                        formatter.write_paragraph()
                    formatter.write_dl(records)
        if hidden:
            formatter.write_paragraph()
            formatter.write_text(f"{len(hidden)} more options, and notes: {ctx.command_path} --help-all")


def first_screen(text: str) -> str:
    """Returns a command's sentence, its example, and the paragraph behind that, which says what it writes."""
    paragraphs = text.split("\n\n")
    example = next((at for at, paragraph in enumerate(paragraphs) if "Example: " in paragraph), 0)
    return "\n\n".join([paragraphs[0], *paragraphs[max(example, 1) : example + 2]])


def with_bare_flags(arguments: Sequence[str], options: Sequence[Declared]) -> list[str]:
    """Returns the arguments with a value after each flag that may stand alone and does."""
    bare = {flag: option.option.bare for option in options if option.option.bare for flag in flags_of(option)}

    def completed() -> Iterator[str]:
        for argument, following in zip(arguments, [*arguments[1:], None], strict=False):
            yield argument
            value = bare.get(argument)
            if value is not None and (following is None or (following.startswith("-") and following != STDOUT)):
                yield value

    return list(completed())


def respelled(text: str, options: Sequence[Declared]) -> str:
    """Returns a message with flags in place of options in backquotes, which are Python's names."""
    spelled = {option.name: option_spelling(option) for option in options}
    return re.sub(r"`(\w+)`", lambda option: spelled.get(option[1], option[0]), text)


def option_spelling(option: Declared) -> str:
    """Returns an option's name on the command line: its first flag, or the placeholder of an argument."""
    return metavar(option).removesuffix("...") if option.option.positional else flags_of(option)[0]


def help_text(step: Any, options: Sequence[Declared]) -> str:
    """Returns the text above the options: a step's docstring without the parts for Python."""
    text = inspect.getdoc(step) or ""
    of_python = (">>>", "In Python", "Raises:", "Source:", "Returns:")
    blocks = [block for block in text.split("\n\n") if not block.startswith(of_python)]
    # Typer does not wrap a block after this mark.
    unwrapped = (
        "\n".join(["\b", *continued(block, EXAMPLE_WIDTH)]) if block.startswith("Example: ") else block
        for block in blocks
    )
    return respelled("\n\n".join(unwrapped), options)


def metavar(option: Declared) -> str:
    """Returns the placeholder of a value: the choices, if they are few."""
    if option.option.metavar:
        return option.option.metavar
    if option.choices:
        choices = "|".join(map(str, option.choices))
        return choices if len(choices) <= LONGEST_METAVAR else "NAME"
    return METAVARS.get(option.type, "FILE")


def usage(option: Declared) -> str:
    """Returns an argument for the line of usage, in brackets if it may be left out."""
    return metavar(option) if option.required else f"[{metavar(option)}]"


def _record(option: Declared, text: str, default: str | None) -> tuple[str, str]:
    """Returns an option's two columns: its spelling and its description."""
    written = metavar(option)
    if not option.option.positional:
        flags = ", ".join(sorted(flags_of(option), key=lambda flag: flag.startswith("--")))
        written = flags if option.type is bool else f"{flags} {written}"
    if any(str(choice) not in written + text for choice in option.choices):
        text += f" One of {', '.join(map(str, option.choices))}."
    notes = [f"default: {default}" if default else "", _range(option), "required" if option.required else ""]
    note = "; ".join(filter(None, notes))
    return written, unbroken(f"{text}  [{note}]" if note else text)


def _range(option: Declared) -> str:
    """Returns the range of a number, as far as it helps a reader."""
    if option.type not in (int, float) or option.option.within is None:
        return ""
    low, high = option.option.within
    if high <= TELLING_BOUND:
        return f"{low:g} to {high:g}"
    return f"at least {low:g}" if low > 1 else ""


def unbroken(text: str) -> str:
    """Returns text whose lines end at blanks only: a flag that is cut in two cannot be read or copied."""
    return re.sub(r"(?<=[\w-])-(?=\w)|(?<!\S)-(?=-\w)", UNBROKEN, text)


def set_out(text: str) -> str:
    """Returns help as it is printed, with bold headings on a terminal that can show them."""
    text = text.replace(UNBROKEN, "-")
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return text if plain else re.sub(r"^\S[^:\n]*:", "\x1b[1m\\g<0>\x1b[0m", text, flags=re.MULTILINE)
