"""Where the command `hydractl` begins and ends: its streams, its signals, and errors as one line and an exit code.

What can fail stands inside `run`, imports among it: a signal or a limit of memory may meet them as well.
"""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from hydractl.errors import HydractlError
from hydractl.text import LONGEST_SENTENCE, abridged, first_sentence, one_line, printable, shortened, without_secrets

READER_GONE = 1  # as typer has it when it notices first
#: What ends a process from outside; a hang-up is unknown to Windows.
ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
INTERRUPTED = 128 + signal.SIGINT
GRACE = 3.0  # seconds in which a process of torchrun ends by itself

#: How libraries that raise whatever they like say that memory is short.
_MEMORY = re.compile(
    r"(can't|cannot|unable to|failed to) (re|m)?alloc|bad alloc|out of memory|start new thread|failed to map segment",
    re.IGNORECASE,
)
#: How gloo and NCCL say that another process of the job is gone.
_ALONE = re.compile(r"gloo/transport|connection (closed|reset) by peer|nccl (communicator|error)", re.IGNORECASE)
#: How torch says that one of the processes that read data for it is gone.
_READER = re.compile(r"DataLoader worker .*(killed by signal|exited unexpectedly)")
TORCHRUN = "TORCHELASTIC_RUN_ID"  # what it sets in the processes that it starts


def run() -> NoReturn:
    """Runs the command line and exits.

    The code is 0 when done, 1 failed, 2 wrong usage, and as shells have it 130 interrupted, 143 terminated, 129 left
    by the terminal.
    """
    _prepare_streams()
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup wants it
            signal.signal(number, _end)
    if TORCHRUN in os.environ:
        _heed_signals()
    if os.environ.get("HYDRACTL_TRACEBACK"):
        sys.exit(_invoke())
    try:
        code = _invoke()
        sys.stdout.flush()
    except SystemExit:
        raise
    except BrokenPipeError:
        # Python flushes stdout once more at exit; give that flush somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = READER_GONE
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException as error:  # what libraries in Rust raise when they panic is no Exception
        code = _report(error)
    if code == INTERRUPTED:
        _say("interrupted")
    sys.exit(code)


def _invoke() -> int:
    from hydractl.cli.app import app

    return app(prog_name="hydractl", standalone_mode=False) or 0


def _prepare_streams() -> None:
    """Gives closed streams a place, and lets no character fail that a stream cannot encode.

    A file that is opened gets the lowest number that is free: left closed, a model's file could become standard
    output, and what a library prints would be written into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """Ends by an exception, so that half-written files are removed on the way out; the next signal does not wait."""
    for each in ENDING:
        signal.signal(each, _end_at_once)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _end_at_once(number: int, _frame: FrameType | None) -> NoReturn:
    # Parts of files that stay are removed by the next run of that output.
    os._exit(128 + number)


def _heed_signals() -> None:
    """Ends this process soon after a signal, also while it waits for another, until when Python hears of none."""
    heard, tell = socket.socketpair()
    tell.setblocking(False)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    # Those that it starts have the socket too, and may be ended without it.
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    threading.Thread(target=_end_late, args=(heard, tell), daemon=True).start()


def _end_late(heard: socket.socket, _tell: socket.socket) -> NoReturn:
    while (number := heard.recv(1)[0]) not in ENDING:
        pass
    time.sleep(GRACE)
    os._exit(128 + number)


def _report(error: BaseException) -> int:
    message, code = _explain(error)
    # Steps' own options are spelled already; this is for what nobody declared.
    message = re.sub(r"`([a-z_]+)`", lambda found: f"--{found[1].replace('_', '-')}", message)
    _say(f"error: {message}")
    return code


def _say(message: str) -> None:
    """A line on stderr, if that is there to be read."""
    with suppress(OSError):
        print(one_line(without_secrets(message)), file=sys.stderr, flush=True)


def _explain(error: BaseException) -> tuple[str, int]:
    """The one line a user sees of an error, and the exit code."""
    if (short := _out_of_memory(error)) is not None:
        said = f" ({short})" if short else ""
        return f"out of memory{said}: lower `batch_size` or choose another `device`", 1
    if isinstance(error, HydractlError):
        return str(error), error.exit_code
    if TORCHRUN in os.environ and _ALONE.search(str(error)):
        return "a process of this job ended before its time: see what it said", 1
    if _READER.search(str(error)):
        return "a process that reads data was killed, as when memory is short: lower `workers`", 1
    if isinstance(error, OSError) and error.errno is not None:
        return _explain_os_error(error), 1
    if isinstance(error, ValueError) and str(error).startswith("embedded null"):  # from the library that opens files
        return "a name holds a zero byte, which no file can have: correct it", 2
    return _explain_usage(error) or (_explain_bug(error), 1)


def _explain_usage(error: BaseException) -> tuple[str, int] | None:
    typer = sys.modules.get("typer")
    if typer is not None and isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context else ""
        # What was typed may be of any length, and what is wrong with it comes after it. Half a secret is known by no
        # pattern: they go first.
        said = without_secrets(error.format_message())
        message = re.sub(r"\S{100,}", lambda typed: abridged(typed[0], 60), said)
        return first_sentence(message) + hint, error.exit_code
    return ("aborted", 1) if typer is not None and isinstance(error, typer.Abort) else None


def _explain_bug(error: BaseException) -> str:
    said = f"{type(error).__name__}: {shortened(one_line(str(error)), LONGEST_SENTENCE)}"
    return f"internal error: {said} (HYDRACTL_TRACEBACK=1 shows where; please report it)"


def _explain_os_error(error: OSError) -> str:
    remedy = {
        errno.ENOSPC: ": free some space or name another output",
        errno.EACCES: ": check the permissions",
        errno.ENOENT: ": check the name",
    }.get(error.errno or 0, "")
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "output"
    return f"{abridged(printable(name), LONGEST_SENTENCE)}: {error.strerror}{remedy}"


def _out_of_memory(error: BaseException) -> str | None:
    """What was said where an error, or what caused it, is a lack of memory; None where it is not."""
    torch = sys.modules.get("torch")
    for each in _causes(error):
        if isinstance(each, HydractlError):
            continue  # which may name a file as it likes
        short = isinstance(each, MemoryError) or (torch is not None and isinstance(each, torch.OutOfMemoryError))
        if short or (isinstance(each, OSError) and each.errno == errno.ENOMEM) or _MEMORY.search(str(each)):
            return first_sentence(str(each))
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it, each once: a library may chain errors in a circle."""
    met: set[int] = set()
    while error is not None and id(error) not in met:
        met.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
