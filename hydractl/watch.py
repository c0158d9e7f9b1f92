"""Progress and notes of a step: the command line draws bars and prints notes, a library logs them."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from hydractl.text import printable

logger = logging.getLogger("hydractl")


class Advance(Protocol):
    """Receives how much more is done, in the unit of the total, and a text to show beside it."""

    def __call__(self, done: float, text: str | None = None, /) -> None: ...


class Watcher(Protocol):
    """Receives the notes and the progress of a step."""

    command: str | None  # the command line that called it; None in Python
    warnings: Sequence[str]  # those that were shown, for JSON; empty in Python

    def note(self, message: str) -> None:
        """Shows a line that a person may want to know and a program may ignore."""

    def warn(self, message: str) -> None:
        """Shows a line that a person must see."""

    def progress(self, what: str, total: float | None) -> AbstractContextManager[Advance]:
        """Shows how far long work has come; `total` is None if unknown."""


class Log:
    """Sends notes and warnings to the logger `hydractl` and ignores progress."""

    command: str | None = None
    warnings: Sequence[str] = ()

    def note(self, message: str) -> None:
        logger.info(printable(message))

    def warn(self, message: str) -> None:
        logger.warning(printable(message))

    @contextmanager
    def progress(self, what: str, total: float | None) -> Iterator[Advance]:
        yield lambda done, text=None: None


LOG = Log()


def noting(watch: Watcher) -> Callable[[str], None]:
    """Returns a function that shows a text as a note."""
    return lambda text: watch.note(f"note: {text}")


def tell(watch: Watcher, notes: Iterable[str]) -> None:
    """Shows texts as notes."""
    for note in notes:
        watch.note(f"note: {note}")
