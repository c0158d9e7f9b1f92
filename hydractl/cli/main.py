"""The start and the end of the command `hydractl`: its streams, its signals, and errors as one line and an exit code.

Everything that can fail stands inside `run`, imports included: signals and memory limits may hit those as well.
"""

import errno
import io
import os
import re
import sys
from contextlib import suppress
from typing import NoReturn

from hydractl.cli.signals import INTERRUPTED, Signals
from hydractl.errors import HydractlError
from hydractl.text import LONGEST_SENTENCE, abridged, first_sentence, one_line, printable, shortened, without_secrets

READER_GONE = 1  # typer's code, where it notices first

#: The messages of libraries that have no error of their own for a lack of memory.
_MEMORY = re.compile(
    r"(can't|cannot|unable to|failed to) (re|m)?alloc|bad alloc|out of memory|start new thread|failed to map segment",
    re.IGNORECASE,
)
#: Messages of libraries about another process that is gone, and what to say instead.
_GONE = {
    r"gloo/transport|connection (closed|reset) by peer|nccl (communicator|error)": (
        "a process of this job ended early: see its own message"
    ),
    r"DataLoader worker .*(killed by signal|exited unexpectedly)": (
        "a process that reads data was killed, as when memory is short: lower `workers`"
    ),
}
_REMEDIES = {
    errno.ENOSPC: ": free some space or name another output",
    errno.ENAMETOOLONG: ": give a shorter name",
    errno.EACCES: ": check the permissions",
    errno.ENOENT: ": check the name",
}


def run() -> NoReturn:
    """Runs the command line and exits; the process is its own, signals included.

    The code is 0 for done, 1 for failed, 2 for wrong usage, and as in shells 130 for interrupted, 143 for terminated
    and 129 for a closed terminal.
    """
    _prepare_streams()
    signals = Signals()
    signals.handle()
    if os.environ.get("HYDRACTL_TRACEBACK"):
        sys.exit(_invoke())
    try:
        code = _invoke()
        sys.stdout.flush()
    except SystemExit:
        raise
    except BrokenPipeError:
        code = READER_GONE
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException as error:  # a panic of a library in Rust is no Exception
        # Libraries turn the exception of a signal into errors of their own.
        code = _report(error) if signals.received is None else 128 + signals.received
    finally:
        signals.finish()
    if signals.received is not None:
        code = 128 + signals.received
    if code == INTERRUPTED:
        _print_error(signals.message())
    try:
        sys.stdout.flush()
    except OSError:
        # Python flushes stdout once more at exit; give that flush somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _invoke() -> int:
    from hydractl.cli.app import app

    return app(prog_name="hydractl", standalone_mode=False) or 0


def _prepare_streams() -> None:
    """Opens closed streams on the null device, and escapes characters that a stream cannot encode.

    An opened file gets the lowest free number. If stdout stayed closed, a model's file could take its number, and
    whatever a library prints would be written into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _report(error: BaseException) -> int:
    message, code = _explain(error)
    # Steps' own options are respelled before; these are what nobody declared.
    _print_error("error: " + re.sub(r"`([a-z_]+)`", lambda option: f"--{option[1].replace('_', '-')}", message))
    return code


def _print_error(message: str) -> None:
    with suppress(OSError):  # nobody may be there to read it
        print(one_line(without_secrets(message)), file=sys.stderr, flush=True)


def _explain(error: BaseException) -> tuple[str, int]:
    """Returns the one line that a user sees of an error, and the exit code."""
    text = str(error)
    if (short := _out_of_memory(error)) is not None:
        return f"out of memory{short and f' ({short})'}: lower `batch_size` or choose another `device`", 1
    if isinstance(error, HydractlError):
        return text, error.exit_code
    for pattern, meaning in _GONE.items():
        if re.search(pattern, text, re.IGNORECASE):
            return meaning, 1
    if isinstance(error, OSError) and error.errno is not None:
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "output"
        return f"{abridged(printable(name), LONGEST_SENTENCE)}: {error.strerror}{_REMEDIES.get(error.errno, '')}", 1
    typer = sys.modules.get("typer")
    if typer is not None and isinstance(error, typer.Abort):
        return "aborted", 1
    if typer is not None and isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        # Secrets go first: no pattern finds half of one. The finding follows the argument, which may be of any length.
        message = one_line(without_secrets(error.format_message()).replace(". Choose from:", ": choose from"))
        message = re.sub(r"\S{100,}", lambda typed: abridged(typed[0], 60), message)
        message = _with_close_value(first_sentence(message.replace("Value error, ", "")))  # pydantic's word for it
        return message + (f" (see {context.command_path} --help)" if context else ""), error.exit_code
    message = f"{type(error).__name__}: {shortened(one_line(text), LONGEST_SENTENCE)}"
    return f"internal error: {message} (HYDRACTL_TRACEBACK=1 shows where; please report it)", 1


def _with_close_value(message: str) -> str:
    """Returns the message about a value that is not one of several, with the one that was probably meant."""
    if (message_parts := re.search(r"'([^']+)' is not one of ('.+')\.?$", message)) is None:
        return message
    from difflib import get_close_matches

    close = get_close_matches(message_parts[1], re.findall(r"'([^']+)'", message_parts[2]), 1)
    return f"{message.rstrip('.')}: did you mean {close[0]}?" if close else message


def _out_of_memory(error: BaseException) -> str | None:
    """Returns the message of a lack of memory that an error is or came from; None if there was none."""
    torch = sys.modules.get("torch")
    met: set[int] = set()  # a library may chain errors in a circle
    cause: BaseException | None = error
    while cause is not None and id(cause) not in met:
        met.add(id(cause))
        short = isinstance(cause, MemoryError) or (torch is not None and isinstance(cause, torch.OutOfMemoryError))
        short = short or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM)
        # The message of our own errors may name any file.
        if short or (not isinstance(cause, HydractlError) and _MEMORY.search(str(cause))):
            return first_sentence(str(cause))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None
