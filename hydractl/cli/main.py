"""The command `hydractl`: its subcommands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Annotated, NoReturn

import typer

from hydractl.cli import console
from hydractl.cli.commands import COMMANDS
from hydractl.cli.derive import command_class, runner
from hydractl.errors import HydractlError

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
READER_GONE = 1  # as typer has it when it notices first

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
    # Boxes and colours are for people: in a pipe, help is plain text.
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST, "terminal_width": _width()},
)
groups = {
    "circuit": typer.Typer(help="Look at circuits and compare them.", no_args_is_help=True),
    "analyse": typer.Typer(help="Measure what pruning does to a network.", no_args_is_help=True),
    "recipes": typer.Typer(help="Show the published fine-tuning recipes.", no_args_is_help=True),
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

    checkpoint -> pruned members (prune, finetune) -> one fused Hydra (fuse) -> table of results (evaluate)
    """
    console.silence_libraries()
    if context.invoked_subcommand is None:
        print(context.get_help())


def run() -> NoReturn:
    """Runs the command line and exits: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 143 terminated."""
    signal.signal(signal.SIGTERM, _exit_on_termination)
    if os.environ.get("HYDRACTL_TRACEBACK"):
        sys.exit(_invoke())
    try:
        code = _invoke()
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit; give that flush somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = READER_GONE
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        code = _report(error)
    if code == INTERRUPTED:
        print("interrupted", file=sys.stderr)
    sys.exit(code)


def _invoke() -> int:
    return app(prog_name="hydractl", standalone_mode=False) or 0


def _exit_on_termination(_signal: int, _frame: FrameType | None) -> NoReturn:
    # Raised instead of dying on the spot, so that half-written temporary files are removed on the way out.
    raise SystemExit(TERMINATED)


def _report(error: Exception) -> int:
    message, code = _explain(error)
    # Steps' own options are spelled already; this is for what nobody declared.
    message = re.sub(r"`([a-z_]+)`", lambda found: f"--{found[1].replace('_', '-')}", message)
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _explain(error: Exception) -> tuple[str, int]:
    """The one line a user sees of an error, and the exit code."""
    if isinstance(error, HydractlError):
        return str(error), error.exit_code
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context else ""
        return error.format_message() + hint, error.exit_code
    if isinstance(error, typer.Abort):
        return "aborted", 1
    if isinstance(error, OSError) and error.errno is not None:
        return _explain_os_error(error), 1
    if _is_out_of_memory(error):
        return f"out of memory ({error}): lower --batch-size or choose another --device", 1
    return f"internal error: {type(error).__name__}: {error} (HYDRACTL_TRACEBACK=1 shows where; please report it)", 1


def _explain_os_error(error: OSError) -> str:
    remedy = {
        errno.ENOSPC: ": free some space or name another output",
        errno.EACCES: ": check the permissions",
        errno.ENOENT: ": check the name",
    }.get(error.errno or 0, "")
    return f"{error.filename or 'output'}: {error.strerror}{remedy}"


def _is_out_of_memory(error: Exception) -> bool:
    torch = sys.modules.get("torch")
    return isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError))
