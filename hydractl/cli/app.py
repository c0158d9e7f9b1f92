"""The command `hydractl`: its subcommands in the order of the pipeline, its groups, `--help` and `--version`."""

import os
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from operator import methodcaller
from typing import Annotated, Any

import typer
import typer.core

from hydractl.cli import console
from hydractl.cli.derive import Command, options_of, runner
from hydractl.cli.help import StepCommand, set_out
from hydractl.errors import OptionError


def _one_objective(values: Mapping[str, Any]) -> None:
    if "," in (values["objective"] or ""):
        raise OptionError(f"`objective` {values['objective']} makes several circuits: name a file as `output`")


STEPS = "Step by step"
COMMANDS = (
    Command("build", "build:Build", panel="Start"),
    Command(
        "score-heads", "score_heads:ScoreHeads", output="scores.json", artifact=methodcaller("to_json"), panel=STEPS,
    ),
    Command(
        "extract-circuit", "extract_circuit:ExtractCircuit", "circuit.json", panel=STEPS,
        artifact=lambda extracted: next(iter(extracted.to_json().values())), may_stream=_one_objective,
    ),
    Command("prune", "prune:Prune", output=".", panel=STEPS),
    Command("select", "select:Select", artifact=methodcaller("to_json"), panel=STEPS),
    Command("finetune", "finetune:Finetune", writes=True, panel=STEPS),
    Command("fuse", "fuse:Fuse", writes=True, panel=STEPS),
    Command("evaluate", "evaluate:Evaluate"),
    Command("calibrate", "calibrate:Calibrate", writes=True, panel=STEPS),
    Command("check", "check:Check"),
    Command("report", "show:Report"),
    Command("inspect", "show:Inspect", panel="Start"),
    Command("predict", "predict:Predict", csv=methodcaller("to_csv"), panel="Start"),
    Command("monitor", "monitor:MonitorInputs"),
    Command("export", "export:Export", writes=True, panel=STEPS),
    Command("list families", "show:ListFamilies", panel="Look up"),
    Command("list recipes", "show:ListRecipes", panel="Look up"),
    Command("list suites", "show:ListSuites", panel="Look up"),
    Command("analyse heads", "analyse:AnalyseHeads"),
    Command("analyse speed", "analyse:AnalyseSpeed"),
    Command("guide", "guide:Guide", panel="Look up"),
)  # fmt: skip


PANELS = ("Start", "Step by step", "Measure", "Look up")
GROUP_PANELS = {"analyse": "Measure", "list": "Look up"}
WIDEST = 120  # longer lines are hard to read
GROUPS = {"analyse": "Analyse heads and speed.", "list": "List architectures, recipes and suites."}


class Listed(typer.core.TyperCommand):
    """A subcommand in a list: its name and first line. The rest is built only if it is selected."""

    def __init__(self, command: Command) -> None:
        super().__init__(command.name.split()[-1])
        self.command = command

    def get_short_help_str(self, limit: int = 0) -> str:
        return self.command.first_line

    def built(self) -> Any:
        """Returns the subcommand with its flags, made from its step's options."""
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        kind = type("StepCommand", (StepCommand,), {"options": options_of(self.command)})
        alone.command(self.name, cls=kind)(runner(self.command))
        return typer.main.get_command(alone)


class StepGroup(typer.core.TyperGroup):
    """A command group that builds only the selected subcommand."""

    def get_help(self, ctx: Any) -> str:
        return set_out(super().get_help(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands under their headings, in the order in which a user meets them."""
        panels: dict[str, list[tuple[str, str]]] = {name: [] for name in PANELS}
        for name, command in self.commands.items():
            panel = command.command.panel if isinstance(command, Listed) else GROUP_PANELS.get(name, PANELS[-1])
            panels[panel].append((name, command.get_short_help_str(200)))
        for panel, rows in panels.items():
            if rows:
                with formatter.section(panel if len(self.commands) > len(rows) else "Commands"):
                    formatter.write_dl(rows)

    def get_params(self, ctx: Any) -> list[Any]:
        flags = super().get_params(ctx)
        for flag in flags:
            # Typer hands a flag that is None to pydantic, whose import takes as long as everything else here.
            flag.default = False
        return flags

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # Called to run a command, to show its help and to complete its options, but not to list it.
        if args and args[0] not in self.commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            paths = [command.name for command in COMMANDS] if self.name == "hydractl" else list(self.commands)
            names = {name: path for path in paths for name in (path.split()[-1], path.replace(" ", "-"))}
            names |= {"benchmark": "analyse speed"} if "analyse speed" in paths else {}
            close = get_close_matches(args[0], names, 1)
            meant = f": did you mean {ctx.command_path} {names[close[0]]}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}{meant}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.built() if isinstance(command, Listed) else command, rest


def _width() -> int | None:
    """Returns the width of the terminal, also where help goes through a pipe to a pager."""
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


def _print_version(asked_for: bool) -> None:
    if asked_for:
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

    Example: hydractl build MODEL --id-data DATA:test --ood-data OTHER -o built

    build does it all; the other steps do it one by one. hydractl guide is the manual.
    """
    console.silence_libraries()
    if context.invoked_subcommand is None:
        print(context.get_help())


def _whole() -> Any:
    """Returns the command line with its subcommands and groups, in the order of the table."""
    command_line: Any = typer.main.get_command(frame)
    groups = {name: StepGroup(name=name, help=text, rich_markup_mode=None) for name, text in GROUPS.items()}
    for command in COMMANDS:
        group = command.name.rpartition(" ")[0]
        (groups[group] if group else command_line).add_command(Listed(command))
    for each in groups.values():
        command_line.add_command(each)
    return command_line


app = _whole()
