"""Signals that end a command: none is lost, and none waits long.

An exception ends a command, because it removes half-written files on its way out. It can be lost: Python drops what is
raised in callbacks, such as the one after every import, and libraries catch more than they should. It can also be late,
because Python runs no handler during a native call. So a thread repeats a lost one, and ends the process in the end.

Only the entry point of the command line lets this begin: functions of Python leave the signals of their process alone.
"""

import _thread
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import ClassVar, NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 128 + signal.SIGINT
REPEATED = 0.1  # seconds between two looks at whether the exception was lost
LOOKS = 20  # from the signal to the end of the process; looks, not seconds, wait for a process that hardly runs


class Signals:
    """Ends a command by the first signal that it receives, and at once by the second.

    Attributes:
        received: the number of the first signal; None until then.
        advice: tells how to go on after an interrupt.
    """

    advice: ClassVar[Callable[[], str]] = str

    def __init__(self) -> None:
        self.received: int | None = None
        self._repeats = self._finished = False

    def handle(self) -> None:
        """Takes the signals of this process, which must be the command's own, to its end."""
        for number in ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores some
                signal.signal(number, self._end)
        read, write = os.pipe()
        os.set_blocking(write, False)
        # Python writes the number of a signal there at once, long before it may run a handler.
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # the signals of workers are their own
        with suppress(RuntimeError):  # no thread under a limit of memory: then exceptions must do
            _thread.start_new_thread(self._watch, (read,))

    def finish(self) -> None:
        """Notes that the command is done: a signal from now on ends the process at once."""
        self._finished = True

    @classmethod
    def message(cls) -> str:
        """Returns the line that an interrupt ends with."""
        return f"interrupted{cls.advice()}"

    def _end(self, number: int, _frame: FrameType | None) -> None:
        repeated, self._repeats = self._repeats, False
        if repeated and (self._finished or _is_on_its_way()):
            return
        again = self._finished or (self.received is not None and not repeated)
        if again or _imports_torch():
            self._end_process(number, silent=again)
        self.received = number
        sys.unraisablehook = lambda lost: None  # which would print a traceback where Python drops the exception
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    def _watch(self, read: int) -> None:
        """Waits for a signal, then for the end of the process."""
        while (number := os.read(read, 1)[0]) not in ENDING:
            pass
        for _ in range(LOOKS):
            time.sleep(REPEATED)
            if self.received is not None:  # else the main thread is in a native call
                self._repeats = True
                _thread.interrupt_main(signal.Signals(number))
        self._end_process(number, silent=self._finished)

    def _end_process(self, number: int, silent: bool) -> NoReturn:
        """Ends the process at once; the next run of the same output removes the parts of files that stay."""
        if number == signal.SIGINT and not silent:
            with suppress(OSError):
                os.write(2, f"{self.message()}\n".encode())
        os._exit(128 + number)


def _imports_torch() -> bool:
    """Returns whether torch is half imported: its C++ then aborts the process at an exception of Python."""
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def _is_on_its_way() -> bool:
    """Returns whether the main thread cleans up after the exception of a signal."""
    met: set[int] = set()  # a library may chain errors in a circle
    error = sys.exception()
    while error is not None and id(error) not in met:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            return True
        met.add(id(error))
        error = error.__context__
    return False
