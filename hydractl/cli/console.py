"""What the commands say: results on stdout, progress and notes on stderr."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")


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
    print(json.dumps(value, indent=2, ensure_ascii=False))


def note(message: str, quiet: bool) -> None:
    """A line on stderr that a person may want to know and a program may ignore."""
    if not quiet:
        print(message, file=sys.stderr)


def track(items: Iterable[T], what: str, total: int, quiet: bool) -> Iterator[T]:
    """The items, with a progress bar on stderr while they are consumed if a person is watching."""
    if quiet or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as rich_track

    yield from rich_track(items, description=what, total=total, console=Console(stderr=True), transient=True)


def stdout_console() -> Console:
    """A console on stdout that folds nothing when its reader is a pipe, which has no width."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=10_000)
