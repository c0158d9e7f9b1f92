"""The streams of a command: results on stdout, progress and notes on stderr."""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from hydractl.inputs.result import Result
from hydractl.text import one_line, printable, without_secrets, wrapped
from hydractl.watch import Advance

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

PIPE_WIDTH = 120
SECRETS = ("--token",)
#: An absolute path in an argument: all of it, or behind NAME=, predictions:, near/ or far/, or one of several joined by
#: + or a comma.
ABSOLUTE = re.compile(r"(?:(?<![^=+,])|(?<=[^:]/)|(?<=predictions:))/[^+,]*")


def silence_libraries() -> None:
    """Keeps other libraries' progress bars and warnings off the command's own streams.

    Values that the user has set win, and `python -W` still shows warnings.
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
    """Prints one JSON object on stdout."""
    from hydractl.artifacts import json_text

    print(json_text(value))


def is_closed(stream: TextIO) -> bool:
    """Returns whether the command was started without this stream, so that nobody can read it."""
    return getattr(stream, "name", None) == os.devnull


def show(result: Result) -> None:
    """Prints a result on stdout, in bold and colours if it can be drawn."""
    draw = getattr(result, "draw", None)
    if draw is not None:
        draw(stdout_console())
        return
    width = stdout_console().width if sys.stdout.isatty() else None  # a program reads lines as they are
    for line in result.lines():
        # Tabs are between columns; tabs in names were escaped before.
        safe = "\t".join(map(printable, line.split("\t")))
        for piece in [safe] if width is None else wrapped(safe, width):
            print(piece)


def stdout_console() -> Console:
    """Returns a console on stdout, as wide as its window; a pipe gets a width that logs are read in."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)


class Terminal:
    """Watches a step for a person: notes and bars on stderr, bars only on a terminal."""

    def __init__(self, quiet: bool, respell: Callable[[str], str] = str, leads: bool = True) -> None:
        """
        Args:
            respell: turns Python's names of options in messages into flags.
            leads: whether this is the process of a job that prints.
        """
        self.quiet, self._respell, self._leads = quiet or not leads, respell, leads
        self._told = set[str]()
        self.warnings: Sequence[str] = ()
        # Looked up once: the first bar replaces stderr by a stream that may be no terminal (rich before 15).
        self._is_watched = not self.quiet and sys.stderr.isatty()
        self._bars: Progress | None = None
        self._done: tuple[str, float, float | None] = ("", 0, None)
        self.command: str | None = shlex.join(["hydractl", *_for_readers(sys.argv[1:])])

    def note(self, message: str) -> None:
        """Prints a line on stderr, once, unless quiet."""
        if not self.quiet and message not in self._told:
            self._told.add(message)
            _print_error(self._respell(message))

    def warn(self, message: str) -> None:
        """Prints a line on stderr, once, quiet or not, and keeps it for JSON."""
        message = self._respell(message)
        if message not in self.warnings and self._leads:
            self.warnings = (*self.warnings, message)
            _print_error(f"warning: {message}")

    def reached(self) -> str:
        """Returns how far the last part of the work with a known end has come."""
        what, done, total = self._done
        return "" if total is None or done >= total else f" at {done:,.0f} of {total:,.0f} ({printable(what)})"

    def _advance(self, done: float) -> None:
        what, before, total = self._done
        self._done = (what, before + done, total)

    @contextmanager
    def progress(self, what: str, total: float | None) -> Iterator[Advance]:
        """Draws a bar on stderr if it is a terminal; the bar of a part takes the place of the whole's."""
        self._done = (what, 0, total) if total else self._done
        if not self._is_watched:
            yield lambda done, text=None: self._advance(done)
            return
        bars = self._bars = self._bars or _bars()
        outer = [task.id for task in bars.tasks if task.visible]
        for hidden in outer:
            bars.update(hidden, visible=False)
        task = bars.add_task(printable(what), total=total)
        bars.start()
        try:

            def advance(done: float, text: str | None = None) -> None:
                self._advance(done)
                bars.update(task, advance=done, description=printable(text or what))

            yield advance
        finally:
            bars.refresh()  # shows the last text, however short the work
            bars.remove_task(task)
            for hidden in outer:
                bars.update(hidden, visible=True)
            if not outer:
                bars.stop()
                self._bars = None


def _print_error(message: str) -> None:
    print(one_line(without_secrets(message)), file=sys.stderr)


def _for_readers(arguments: Sequence[str]) -> Iterator[str]:
    """Yields the arguments of a command as a report may show them: without secrets, paths from the current folder."""
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


def _bars() -> Progress:
    """Returns bars that vanish at their end and leave stdout alone, which a program may read."""
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class Time(progress.TimeRemainingColumn):
        """Shows the time left, or the time gone by if the total is unknown."""

        def render(self, task: progress.Task) -> Text:
            return progress.TimeElapsedColumn().render(task) if task.total is None else super().render(task)

    # Names of files may stand in the description: their square brackets are no markup.
    text = progress.TextColumn("{task.description}", markup=False)
    columns = (text, progress.BarColumn(), progress.TaskProgressColumn(), Time())
    return progress.Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
