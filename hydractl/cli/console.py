"""What the commands say: results on stdout, progress and notes on stderr."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    print(_to_json(value))


def write_json(path: Path, value: Mapping[str, Any], force: bool) -> None:
    """One JSON object in a file, or on stdout where the path is `-`.

    Raises:
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.checkpoint.atomic import write_bytes

    if str(path) == STDOUT:
        print_json(value)
    else:
        write_bytes(path, f"{_to_json(value)}\n".encode(), force)


def _to_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def note(message: str, quiet: bool) -> None:
    """A line on stderr that a person may want to know and a program may ignore."""
    if not quiet:
        print(message, file=sys.stderr)


@contextmanager
def progress(what: str, total: float | None, quiet: bool) -> Iterator[Callable[[float], None]]:
    """A function to tell how much more is done, in samples or in work; draws a bar on stderr if a person watches."""
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


def stdout_console() -> Console:
    """A console on stdout, as wide as its window; a pipe has none, so what most people read logs in."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
