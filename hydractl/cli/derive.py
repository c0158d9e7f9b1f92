"""Subcommands made from the options of their steps: flags, streams, and the run itself."""

import inspect
import os
import re
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer

from hydractl.cli import console
from hydractl.cli.help import STDOUT, help_text, metavar, respelled
from hydractl.cli.signals import Signals
from hydractl.errors import HydractlError, OptionError
from hydractl.inputs.result import Result
from hydractl.options import Declared, Option, declared, flags_of, make, refuse_read, run_step

STEPS = Path(__file__).parents[1] / "steps"
FORMS = ("json", "csv")


@dataclass(frozen=True)
class Command:
    """A subcommand: its step, and the few facts that only a command line needs."""

    name: str  # in full, with a space before the second word of `analyse heads`
    place: str  # the step's module in `hydractl.steps` and its name there, with a colon between
    output: str | None = None  # the default of `--output`
    panel: str = "Measure"  # the heading of `hydractl --help` that it stands under
    writes: bool = False  # whether `--output` must be given
    # Returns the JSON that `-o -` prints; None if the output cannot go to stdout.
    artifact: Callable[[Any], dict[str, Any]] | None = None
    csv: Callable[[Any], str] | None = None  # returns the result as CSV; None if it is no table of rows
    # Rejects options that would make several artifacts, before any work is done.
    may_stream: Callable[[dict[str, Any]], None] = lambda values: None

    @property
    def step(self) -> Any:
        """The step, imported on access: a command line needs only one of them."""
        return resolve_name(f"hydractl.steps.{self.place}")

    @property
    def first_line(self) -> str:
        """The first line of the step's docstring, read from its file: importing all steps takes far longer."""
        module, _, name = self.place.partition(":")
        text = (STEPS / f"{module}.py").read_text(encoding="utf-8")
        return re.split(rf"\n(?:class|def) {name}\b", text)[-1].partition('"""')[2].partition("\n")[0]


# The options of every command besides its step's.
OWN = (
    Declared(
        "json", str, None, Option("Write the result as JSON.", "Output", "FILE|-", flags=("--json",), bare=STDOUT)
    ),
    Declared("csv", str, None, Option("Write the result as CSV.", "Output", "FILE|-", flags=("--csv",), bare=STDOUT)),
    Declared("force", bool, False, Option("Replace an output that exists.", "Output", flags=("--force", "-f"))),
    Declared("quiet", bool, False, Option("No progress and no notes on stderr.", "Output", flags=("--quiet", "-q"))),
    Declared(
        "token",
        str,
        None,
        Option("Token for private models and data. Default: HF_TOKEN.", "Output", "TOKEN", rare=True),
    ),
)


def _show_everything(context: typer.Context, asked_for: bool) -> None:
    if asked_for:
        context.command.everything = True  # type: ignore[attr-defined]  # a StepCommand
        print(context.get_help())
        raise typer.Exit


HELP_ALL = Annotated[
    bool,
    typer.Option("--help-all", callback=_show_everything, is_eager=True, help="Show all options and notes, and exit."),
]


def options_of(command: Command) -> tuple[Declared, ...]:
    """Returns all options of a command: those of its step, then its own."""
    of_step = declared(command.step)
    left_out = {option.name for option in of_step} | ({"csv"} if command.csv is None else set())
    if not any(re.search("MODEL|SOURCE", option.option.metavar or "") for option in of_step):
        left_out.add("token")  # none of its inputs can lie on the hub
    return of_step + tuple(option for option in OWN if option.name not in left_out)


def runner(command: Command) -> Callable[..., None]:
    """Returns the function for typer: its signature has the command's flags, its docstring the help."""
    options = options_of(command)

    def run(context: typer.Context, help_all: bool, **values: Any) -> None:
        defaults = {name for name in values if getattr(context.get_parameter_source(name), "name", "") == "DEFAULT"}
        try:
            values = {option.name: _as_declared(option, values[option.name]) for option in options}
            _run(command, values, defaults)
        except HydractlError as error:
            error.args = (respelled(str(error), options),)
            raise

    # Typer puts required options first; a Python function may not, so all are keywords.
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(
            option.name, keyword, default=_default(command, option), annotation=_flag(command, option, options)
        )
        for option in options
    ]
    parameters.append(inspect.Parameter("help_all", keyword, default=False, annotation=HELP_ALL))
    parameters.append(inspect.Parameter("context", keyword, annotation=typer.Context))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = help_text(command.step, options)
    run.__name__ = command.name.replace(" ", "_").replace("-", "_")
    return run


def _run(command: Command, values: dict[str, Any], defaults: Container[str]) -> None:
    of_step = {option.name: option.default for option in declared(command.step)}
    places = _places(command, values, of_step)
    of_command = {option.name: values.pop(option.name, None) for option in OWN if option.name not in of_step}
    if of_command.get("token"):
        os.environ["HF_TOKEN"] = of_command["token"]  # where every library that downloads looks
    leads = os.environ.get("RANK", "0") == "0"  # one process of torchrun prints
    terminal = console.Terminal(of_command["quiet"], lambda text: respelled(text, options_of(command)), leads=leads)
    import_module("hydractl.inputs.models").check_places(options_of(command), values)
    if "device" in values:
        import_module("hydractl.process").prepare()

    Signals.advice = partial(_advice, command, values, terminal)
    # A step that reads options from a file as well must know which the user typed, the defaults among them too.
    typed = {name: value for name, value in values.items() if name not in defaults or value != of_step[name]}

    def put_out(result: Result) -> None:
        if leads:
            places.put(result, terminal.warnings)
            for line in result.guidance():
                terminal.note(line)

    try:
        with terminal.progress(command.name, None):
            result: Result = run_step(make(command.step, typed), terminal)
    except BaseException as error:
        # A step that was interrupted may have finished a part of its work, which is put out before the error is.
        finished = getattr(error, "partial", None)
        if isinstance(finished, Result):
            put_out(finished)
        raise
    put_out(result)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _advice(command: Command, values: Mapping[str, Any], terminal: console.Terminal) -> str:
    """Returns how far an interrupted command has come, and how it goes on from there."""
    kept = values.get("save_logits" if "save_logits" in values else "output") is not None
    if kept and command.name == "build":
        return f"{terminal.reached()}: run it again to go on"
    return f"{terminal.reached()}{': run it again with --resume to go on' if kept and 'resume' in values else ''}"


@dataclass(frozen=True)
class _Destinations:
    """The destinations of a result, besides the files that its step writes itself."""

    command: Command
    streamed: bool  # whether the artifact goes to stdout
    printed: str | None  # the form that goes to stdout; None for the one that people read
    files: dict[str, Path]  # a file for each further form
    force: bool

    @property
    def in_json(self) -> bool:
        """True if some of it is JSON."""
        return "json" in (self.printed, *self.files)

    def put(self, result: Result, warnings: Sequence[str]) -> None:
        """Writes and prints a result, in JSON with the warnings if there are some."""
        content = {**result.to_json(), **({"warnings": list(warnings)} if warnings else {})} if self.in_json else {}
        if self.streamed and self.command.artifact is not None:
            console.print_json(self.command.artifact(result))
        for form, file in self.files.items():
            self._write(form, result, file, content)
        if self.printed == "csv" and self.command.csv is not None:
            print(self.command.csv(result), end="")
        elif self.printed:
            console.print_json(content)
        elif not self.streamed:
            console.show(result)

    def _write(self, form: str, result: Result, file: Path, content: Mapping[str, Any]) -> None:
        from hydractl.artifacts import write_json
        from hydractl.checkpoint.output import write_bytes

        if form == "csv" and self.command.csv is not None:
            write_bytes(file, self.command.csv(result).encode(), self.force)
        else:
            write_json(file, content, self.force)


def _places(command: Command, values: dict[str, Any], of_step: Container[str]) -> _Destinations:
    """Returns where the result goes, and takes from the step's options what goes to stdout.

    Raises:
        OptionError: stdout is closed, would get several things, or something other than JSON.
        OutputError: a file exists and `force` is not set, or a folder takes no file.
    """
    streamed = str(values.get("output")) == STDOUT
    if streamed:
        if command.artifact is None:
            raise OptionError("`output` -: only JSON goes to standard output: name a file")
        command.may_stream(values)
        values["output"] = None
    printed = [form for form in FORMS if str(values.get(form)) == STDOUT]
    if len(several := [*(["output"] if streamed else []), *printed]) > 1:
        raise OptionError(
            f"`{several[0]}` and `{several[1]}` -: standard output takes one of them: name a file for the other"
        )
    values.update(dict.fromkeys(printed))
    files = {form: Path(values[form]) for form in FORMS if form not in of_step and values.get(form) is not None}
    _refuse_places(options_of(command), values)
    refuse_read(options_of(command), values)
    for file in files.values():
        from hydractl.checkpoint.output import refuse_existing

        refuse_existing(file, values["force"])
    form = printed[0] if printed else None
    if (form or streamed) and console.is_closed(sys.stdout):
        raise OptionError(f"`{form or 'output'}` -: standard output is closed: name a file")
    return _Destinations(command, streamed=streamed, printed=form, files=files, force=bool(values["force"]))


def _refuse_places(options: Sequence[Declared], values: Mapping[str, Any]) -> None:
    """Raises OutputError for a place that takes no file, before the step imports what it computes with."""
    from hydractl.checkpoint.output import require_folder_of

    for option in options:
        place = values.get(option.name)
        if option.option.heading == "Output" and option.name != "token" and isinstance(place, str | Path):
            path = Path(place)
            require_folder_of(path / "file" if os.path.isdir(path) else path, option.option.metavar == "FOLDER")


def _default(command: Command, option: Declared) -> Any:
    if option.name == "output" and not option.required:
        return inspect.Parameter.empty if command.writes else Path(command.output) if command.output else None
    return option.default


def _flag(command: Command, option: Declared, options: Sequence[Declared]) -> Any:
    """Returns the annotation from which typer makes a flag or an argument."""
    kind, about = _kind(option), option.option
    text = respelled(about.help, options)
    if about.positional:
        return Annotated[kind, typer.Argument(metavar=metavar(option), help=text)]
    low, high = (option.type in (int, float) and about.within) or (None, None)
    flag = typer.Option(
        *flags_of(option),
        metavar=metavar(option),
        help=text,
        rich_help_panel=about.heading,
        show_default=_shown(command, option),
        min=low,
        max=high,
    )
    return Annotated[kind, flag]


def _shown(command: Command, option: Declared) -> bool | str:
    if option.name == "output" and command.output:
        return command.output
    if option.row_default not in (None, False, "", ()):
        return str(option.row_default)
    return option.default not in (None, False, "", ()) and not option.required


def _kind(option: Declared) -> Any:
    """Returns the type that typer parses: text, wherever Python accepts several types."""
    kind = option.type
    if takes_several(option):
        parsed: Any = list[str]
    elif (kind in (int, float, bool, Path) and option.option.parse is None) or option.choices:
        parsed = kind
    else:
        parsed = str
    return parsed if option.required or kind is bool else parsed | None


def takes_several(option: Declared) -> bool:
    """Returns whether a flag may be repeated, or an argument may have several values."""
    return option.option.repeated or _is_list(option.type)


def _is_list(kind: Any) -> bool:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return any(map(_is_list, get_args(kind)))
    return isinstance(origin, type) and issubclass(origin, Sequence) and origin is not tuple


def _as_declared(option: Declared, value: Any) -> Any:
    """Returns a value for the step: its own default where the command line gave none."""
    if value is None or (isinstance(value, list) and not value):
        return None if option.required else option.default if option.name != "output" else value
    return value
