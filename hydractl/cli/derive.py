"""From a step's declaration to a subcommand: its flags, its help, its streams."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer

from hydractl.cli import console
from hydractl.cli.help import help_text, metavar, respelled
from hydractl.cli.parsing import STDOUT
from hydractl.errors import HydractlError, OptionError
from hydractl.options import make, run
from hydractl.steps.options import Declared, Option, declared, flags_of
from hydractl.steps.result import Result
from hydractl.watch import Watcher

STEPS = Path(__file__).parents[1] / "steps"


@dataclass(frozen=True)
class Command:
    """A subcommand: the step that it runs, and what only a command line needs to know of it.

    Attributes:
        name: in full, with a space before the second word of `circuit overlap`.
        place: the step's module in `hydractl.steps` and its name there, with a colon between.
        output: where the result goes without `--output`.
        writes: whether it must be told where to write.
        artifact: what `-o -` prints on standard output instead of writing a file; None where it cannot.
        csv: the result as CSV, where it is a table of rows.
        may_stream: refuses options of which no single artifact would come, before any work is done.
    """

    name: str
    place: str
    output: str | None = None
    writes: bool = False
    artifact: Callable[[Any], dict[str, Any]] | None = None
    csv: Callable[[Any], str] | None = None
    may_stream: Callable[[dict[str, Any]], None] = lambda values: None

    @property
    def step(self) -> Any:
        """Imported when it is asked for: a command line needs one step of them all."""
        return resolve_name(f"hydractl.steps.{self.place}")

    @property
    def first_line(self) -> str:
        """What the step's docstring begins with, read from its file: to import all steps takes many times as long."""
        module, _, function = self.place.partition(":")
        text = (STEPS / f"{module}.py").read_text(encoding="utf-8")
        kind = "class" if function[0].isupper() else "def"
        return re.split(rf"\n{kind} {function}\b", text)[-1].partition('"""')[2].partition("\n")[0]


# What every command takes besides its step's options.
OWN = (
    Declared(
        "json", str, None, Option("Write the result as JSON.", "Output", "FILE|-", flags=("--json",), bare=STDOUT)
    ),
    Declared("csv", str, None, Option("Write the result as CSV.", "Output", "FILE|-", flags=("--csv",), bare=STDOUT)),
    Declared("force", bool, False, Option("Replace an output that exists.", "Output", flags=("--force", "-f"))),
    Declared("quiet", bool, False, Option("No progress and no notes on stderr.", "Output", flags=("--quiet", "-q"))),
    Declared("token", str, None, Option("Token of the hub, for what is private; else HF_TOKEN.", "Model", "TOKEN")),
)


def options_of(command: Command) -> tuple[Declared, ...]:
    """All options of a command: those of its step, then its own."""
    named = declared(command.step)
    left_out = {option.name for option in named} | ({"csv"} if command.csv is None else set())
    if not any(re.search("MODEL|SOURCE", option.option.metavar or "") for option in named):
        left_out.add("token")  # nothing that it reads can lie on the hub
    return named + tuple(own for own in OWN if own.name not in left_out)


def runner(command: Command) -> Callable[..., None]:
    """The function that typer runs: its signature has the command's flags, its docstring the help."""
    options = options_of(command)

    def run(**values: Any) -> None:
        try:
            _run(command, {option.name: _as_declared(option, values[option.name]) for option in options})
        except HydractlError as error:
            error.args = (respelled(str(error), options),)
            raise

    parameters = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(command, option),
            annotation=_flag(command, option, options),
        )
        for option in options
    ]
    # Typer puts those first that must be given; a function may not, so all are keywords.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = help_text(command.step, options)
    run.__name__ = command.name.replace(" ", "_").replace("-", "_")
    return run


def _run(command: Command, values: dict[str, Any]) -> None:
    force, streamed = bool(values["force"]), _streamed(command, values)
    printed, files = _places(command, values, force)
    if (printed or streamed) and console.is_closed(sys.stdout):
        raise OptionError(f"`{printed or 'output'}` -: standard output is closed: name a file")
    of_step = {option.name for option in declared(command.step)}
    own = {option.name: values.pop(option.name, None) for option in OWN if option.name not in of_step}
    if own["token"]:
        os.environ["HF_TOKEN"] = own["token"]  # where every library looks that fetches something
    leads = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun starts, one speaks
    terminal = console.Terminal(own["quiet"] or not leads, lambda text: respelled(text, options_of(command)))
    if "device" in values:
        import_module("hydractl.process").prepare()

    def put_out(result: Result) -> None:
        if not leads:
            return
        if streamed and command.artifact is not None:
            console.print_json(command.artifact(result))
        for form, file in files.items():
            _put(command, form, result, file, force)
        if printed:
            _put(command, printed, result, Path(STDOUT), force)
        elif not streamed:
            console.show(result)
        terminal.guide(result)

    try:
        with terminal.working(command.name):
            result = _run_step(command.step, values, terminal)
    except BaseException as error:
        # A step that was interrupted may have finished a part of its work, which is put out before the error is.
        partial = getattr(error, "partial", None)
        if isinstance(partial, Result):
            put_out(partial)
        raise
    put_out(result)


def _run_step(step: Any, values: dict[str, Any], watch: Watcher) -> Result:
    if isinstance(step, type):
        result: Result = run(make(step, values), watch)
        return result
    extra = {"watch": watch} if "watch" in inspect.signature(step).parameters else {}
    found: Result = step(**values, **extra)
    return found


def _streamed(command: Command, values: dict[str, Any]) -> bool:
    """Whether the output goes to standard output; a step then writes none."""
    if str(values.get("output")) != STDOUT:
        return False
    if command.artifact is None:
        raise OptionError("`output` -: only JSON goes to standard output: name a file")
    command.may_stream(values)
    values["output"] = None
    return True


def _places(command: Command, values: dict[str, Any], force: bool) -> tuple[str | None, dict[str, Path]]:
    """The form in which the result is printed, and the files it goes to by form, unless the step writes that itself."""
    of_step = {option.name for option in declared(command.step)}
    printed = [form for form in ("json", "csv") if str(values.get(form)) == STDOUT]
    if len(printed) > 1:
        raise OptionError("`json` and `csv` -: standard output takes one of them: name a file for the other")
    values.update(dict.fromkeys(printed))
    files = {
        form: Path(values[form]) for form in ("json", "csv") if form not in of_step and values.get(form) is not None
    }
    for file in files.values():
        console.refuse_existing(file, force)
    return (printed[0] if printed else None), files


def _put(command: Command, form: str, result: Result, place: Path, force: bool) -> None:
    """A result in a form that programs read, in a file, or on stdout where that is `-`."""
    if form == "csv" and command.csv is not None:
        console.write_text(place, command.csv(result), force)
    else:
        console.write_json(place, result.to_json(), force)


def _default(command: Command, option: Declared) -> Any:
    if option.name == "output" and not option.required:
        return inspect.Parameter.empty if command.writes else Path(command.output) if command.output else None
    return option.default


def _flag(command: Command, option: Declared, options: Sequence[Declared]) -> Any:
    """The annotation by which typer makes a flag or an argument of an option."""
    kind, said = _kind(option), option.option
    text = respelled(said.help, options)
    if said.positional:
        return Annotated[kind, typer.Argument(metavar=metavar(option), help=text)]
    low, high = (said.minimum, said.maximum) if option.type in (int, float) else (None, None)
    flag = typer.Option(
        *flags_of(option),
        metavar=metavar(option),
        help=text,
        rich_help_panel=said.heading,
        show_default=_shown(command, option),
        min=low,
        max=high,
    )
    return Annotated[kind, flag]


def _shown(command: Command, option: Declared) -> bool | str:
    if option.name == "output" and command.output:
        return command.output
    if option.row_default not in (None, False):
        return str(option.row_default)
    return option.default not in (None, False, "", ()) and not option.required


def _kind(option: Declared) -> Any:
    """What typer reads an option as: text, wherever values of other types will do for Python."""
    kind = option.type
    if takes_several(option):
        whole: Any = list[str]
    elif kind in (int, float, bool, Path) or option.choices:
        whole = kind
    else:
        whole = str
    return whole if option.required or kind is bool else whole | None


def takes_several(option: Declared) -> bool:
    """Whether a flag may be given again and again, or an argument stand for several."""
    return option.option.repeated or _is_list(option.type)


def _is_list(kind: Any) -> bool:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return any(map(_is_list, get_args(kind)))
    return isinstance(origin, type) and issubclass(origin, Sequence) and origin is not tuple


def _as_declared(option: Declared, value: Any) -> Any:
    """A value of the command line as the step takes it: of what was not given, the step's own default."""
    if value is None or (isinstance(value, list) and not value):
        return None if option.required else option.default if option.name != "output" else value
    return value
