"""Bars on stderr that tell a person how a command gets on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, Timer
from typing import TYPE_CHECKING

from hydractl.text import printable
from hydractl.watch import Advance

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE = 2.0  # seconds without a bar after which a person wonders


class Bars:
    """The bars of one command.

    One says from `PATIENCE` seconds on for how long the command has been at work. A step that knows what is left draws
    its own, in whose place it then stands.
    """

    def __init__(self, what: str) -> None:
        """
        Args:
            what: is done while no step says more.
        """
        self._what, self._closed = what, False
        self._drawn: Progress | None = None
        self._waiting: TaskID | None = None
        self._lock = RLock()  # the timer has a thread of its own
        self._timer = Timer(PATIENCE, self._wait)
        self._timer.daemon = True
        self._timer.start()

    @contextmanager
    def of(self, what: str, total: float | None) -> Iterator[Advance]:
        """A bar for a part of the work, `total` of it where that is known, for as long as the block lasts."""
        self._timer.cancel()
        with self._lock:
            bars = self._drawn = self._drawn or _started()
            if self._waiting is not None:
                bars.update(self._waiting, visible=False)
        task = bars.add_task(printable(what), total=total)
        try:
            yield lambda done, said=None: bars.update(task, advance=done, description=printable(said or what))
        finally:
            bars.refresh()  # what was said last is seen, however short the work
            bars.remove_task(task)
            self._wait()

    def close(self) -> None:
        """No bar is left on the screen."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._drawn is not None:
                self._drawn.stop()

    def _wait(self) -> None:
        with self._lock:
            if self._closed:
                return
            bars = self._drawn = self._drawn or _started()
            if self._waiting is None:
                self._waiting = bars.add_task(printable(self._what), total=None)
            bars.update(self._waiting, visible=True)


def _started() -> Progress:
    """Bars that vanish at their end; what goes to stdout meanwhile, which a program may read, stays there."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Time(TimeRemainingColumn):
        """What is left, or where nobody knows that, what has gone by."""

        def render(self, task: Task) -> Text:
            return TimeElapsedColumn().render(task) if task.total is None else super().render(task)

    # Names of files may stand in what is said of the work: their square brackets are no markup.
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), Time())
    bars = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
    bars.start()
    return bars
