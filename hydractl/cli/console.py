"""What the commands say: results on stdout, progress and notes on stderr."""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from hydractl.cli.bars import Bars
from hydractl.steps.result import Result
from hydractl.text import one_line, printable, without_secrets, wrapped
from hydractl.watch import Advance

if TYPE_CHECKING:
    from rich.console import Console

STDOUT = "-"
PIPE_WIDTH = 120


def silence_libraries() -> None:
    """Keeps other libraries' progress bars and warnings away from the command's own streams.

    Values the user has set win, and `python -W` still shows warnings.
    """
    for name, value in {
        "TRANSFORMERS_VERBOSITY": "error",
        "DATASETS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }.items():
        os.environ.setdefault(name, value)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    from hydractl.artifacts import json_text

    print(json_text(value))


def refuse_existing(path: Path, force: bool) -> None:
    """Raises OutputError when `path` cannot become an output: called before long work starts."""
    from hydractl.checkpoint import atomic

    atomic.refuse_existing(path, force)


def write_json(path: Path, value: Mapping[str, Any], force: bool) -> None:
    """One JSON object in a file, or on stdout where the path is `-`.

    Raises:
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    from hydractl import artifacts

    if str(path) == STDOUT:
        print_json(value)
    else:
        artifacts.write_json(path, value, force)


def write_text(path: Path, text: str, force: bool) -> None:
    """Text in a file, or on stdout where the path is `-`.

    Raises:
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.checkpoint.atomic import write_bytes

    if str(path) == STDOUT:
        print(text, end="")
    else:
        write_bytes(path, text.encode(), force)


SECRETS = ("--token",)
#: An absolute path in an argument: all of it, or behind NAME=, predictions:, near/ or far/, or one of several joined by
#: + or a comma.
ABSOLUTE = re.compile(r"(?:(?<![^=+,])|(?<=[^:]/)|(?<=predictions:))/[^+,]*")


def _without_secrets(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments of a command as a report may show them: without what nobody else may know.

    Where the files lie on this machine is of no use to anybody else: they are named from the current folder.
    """
    secret = False
    for argument in arguments:
        flag, equals, _ = argument.partition("=")
        if not secret and not (equals and flag in SECRETS) and argument not in SECRETS:
            yield ABSOLUTE.sub(lambda path: _from_here(path[0]), without_secrets(argument))
        secret = not secret and argument in SECRETS


def _from_here(path: str) -> str:
    try:
        return os.path.relpath(path)
    except FileNotFoundError:  # somebody has removed the current folder
        return os.path.basename(path)


def is_closed(stream: TextIO) -> bool:
    """Whether the command was started without this stream, so that nobody can read what it writes there."""
    return getattr(stream, "name", None) == os.devnull


class Terminal:
    """Watches a step for a person: notes and bars on stderr, bars only where somebody looks."""

    def __init__(self, quiet: bool, respell: Callable[[str], str] = str) -> None:
        """
        Args:
            respell: what messages call options, from Python's names to the command line's.
        """
        self.quiet, self._respell = quiet, respell
        # Asked once: the first bar puts a stream in the place of stderr that may be no terminal (rich before 15).
        self._is_watched = not quiet and sys.stderr.isatty()
        self._bars: Bars | None = None  # while the command works
        self.command: str | None = shlex.join(["hydractl", *_without_secrets(sys.argv[1:])])

    def note(self, message: str) -> None:
        """A line on stderr, unless quiet."""
        if not self.quiet:
            _say(self._respell(message))

    def guide(self, result: Result) -> None:
        """What a result says to whoever typed the command, on stderr, unless quiet."""
        if not self.quiet:
            for line in result.guidance():
                self.note(line)

    def warn(self, message: str) -> None:
        """A line on stderr, quiet or not."""
        _say(f"warning: {self._respell(message)}")

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """While the command works, a person sees that it does, after a while also where it draws no bar itself."""
        if not self._is_watched:
            yield
            return
        self._bars = Bars(what)
        try:
            yield
        finally:
            self._bars.close()
            self._bars = None

    @contextmanager
    def progress(self, what: str, total: float | None) -> Iterator[Advance]:
        """A bar on stderr if a person watches."""
        if not self._is_watched:
            yield lambda done, said=None: None
            return
        bars = self._bars or Bars(what)
        try:
            with bars.of(what, total) as advance:
                yield advance
        finally:
            if bars is not self._bars:
                bars.close()


def _say(message: str) -> None:
    print(one_line(without_secrets(message)), file=sys.stderr)


def show(result: Result) -> None:
    """A result on stdout, drawn in bold and colours where it has such a form."""
    draw = getattr(result, "draw", None)
    if draw is not None:
        draw(stdout_console())
        return
    width = stdout_console().width if sys.stdout.isatty() else None  # a program reads lines as they are
    for line in result.lines():
        # Tabs are between columns, and every other one in a name has been escaped by who made the line.
        safe = "\t".join(map(printable, line.split("\t")))
        for piece in [safe] if width is None else wrapped(safe, width):
            print(piece)


def stdout_console() -> Console:
    """A console on stdout, as wide as its window; a pipe has none, so what most people read logs in."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
