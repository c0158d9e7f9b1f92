"""A pipeline as a list of commands: run in order, continued after an interruption, written as a Makefile."""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydractl.errors import OutputError
from hydractl.options import declared, flags_of
from hydractl.steps.result import Result
from hydractl.text import printable
from hydractl.watch import Watcher


@dataclass(frozen=True)
class Made:
    """A file or folder that the pipeline makes, by its name in the pipeline's folder."""

    name: str


@dataclass(frozen=True)
class Given:
    """A model or a data source that the user named.

    Attributes:
        variable: its name in the Makefile.
        prefix, suffix: text before and after it in a command.
    """

    variable: str
    text: str
    prefix: str = ""
    suffix: str = ""


@dataclass(frozen=True)
class Task:
    """One command of a pipeline.

    Attributes:
        command: its name, `extract-circuit`.
        values: its options by their Python names.
        makes: the files it writes, by name in the pipeline's folder.
        needs: the files it reads that other tasks wrote.
    """

    command: str
    step: Callable[..., Result]
    values: Mapping[str, Any]
    makes: tuple[str, ...]
    needs: tuple[str, ...] = ()

    def run(self, folder: Path, watch: Watcher) -> Result:
        """Runs the command; outputs that a killed run left are made again."""
        values = {name: _located(value, folder) for name, value in self.values.items()}
        own = {"force": True, "watch": watch}
        known = inspect.signature(self.step).parameters
        return self.step(**values, **{name: value for name, value in own.items() if name in known})

    def line(self) -> str:
        """Returns the command as a line of a Makefile, with the Makefile's variables for sources."""
        words = ["hydractl", *self.command.split()]
        flags: list[str] = []
        for option in declared(self.step):
            # A user who changes a step lets make replace its outputs, and everything made of them.
            value = True if option.name == "force" else self.values.get(option.name)
            if value is None:
                continue
            listed = [_word(one) for one in _several(value)]
            if option.option.positional:
                words += listed
            elif value is True:
                flags.append(flags_of(option)[0])
            elif value is not False:
                flags += [word for value in listed for word in (flags_of(option)[0], value)]
        return " ".join([*words, *flags])

    def is_done(self, folder: Path) -> bool:
        """Returns whether every output exists; each is written whole or not at all."""
        return all((folder / name).exists() for name in self.makes)


def run_tasks(tasks: Sequence[Task], folder: Path, watch: Watcher) -> None:
    """Runs the tasks that are not done, in order."""
    for number, task in enumerate(tasks, 1):
        if not task.is_done(folder):
            watch.note(f"[{number}/{len(tasks)}] {task.command}: {', '.join(task.makes)}")
            task.run(folder, watch)


def makefile(tasks: Sequence[Task], folder: Path, goal: str) -> str:
    """Returns the pipeline as a Makefile that makes the same bytes wherever it runs.

    Args:
        folder: the folder of the Makefile; paths are relative to it.
        goal: the default target.
    """
    given = {value.variable: value for task in tasks for value in _givens(task.values)}
    lines = [
        "# Written by hydractl build: every step, with the options that it was run with. Change it and run make.",
        "HERE := $(dir $(lastword $(MAKEFILE_LIST)))",
        *(f"{name} ?= {_in_makefile(_relative(value.text, folder))}" for name, value in sorted(given.items())),
        "",
        f".PHONY: all\nall: {goal}",
    ]
    for task in tasks:
        targets = " ".join(task.makes)
        lines += ["", f"{targets}{' &' if len(task.makes) > 1 else ''}: {' '.join(task.needs)}".rstrip()]
        lines.append(f"\t{task.line()}")
    return "\n".join(lines) + "\n"


def require_same(folder: Path, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Raises OutputError if a pipeline began with other commands, and names the first that differs."""
    for number, (old, new) in enumerate(zip(found, wanted, strict=False), 1):
        if old != new:
            raise OutputError(
                f"{folder}: was begun with other options: step {number} was `{old}`, now it is `{new}`: "
                "name another folder, or give the same options"
            )
    if len(found) != len(wanted):
        raise OutputError(f"{folder}: began with {len(found)} steps, now there are {len(wanted)}: name another folder")


def _located(value: Any, folder: Path) -> Any:
    if isinstance(value, Made):
        return folder / value.name
    if isinstance(value, Given):
        return f"{value.prefix}{value.text}{value.suffix}"
    if isinstance(value, Mapping):
        return {name: _located(inner, folder) for name, inner in value.items()}
    return [_located(inner, folder) for inner in value] if isinstance(value, list) else value


def _several(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [(name, inner) for name, inner in value.items()]
    return value if isinstance(value, list) else [value]


def _word(value: Any) -> str:
    """Returns a value as a word for the shell."""
    if isinstance(value, tuple):
        return f"{value[0]}={_word(value[1])}"
    if isinstance(value, Made):
        return shlex.quote(value.name).replace("$", "$$")
    if isinstance(value, Given):
        return f'"{_in_quotes(value.prefix)}$({value.variable}){_in_quotes(value.suffix)}"'
    return shlex.quote(printable(str(value))).replace("$", "$$")


def _givens(values: Any) -> Iterator[Given]:
    if isinstance(values, Given):
        yield values
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from _givens(value)
    elif isinstance(values, list):
        for value in values:
            yield from _givens(value)


def _relative(text: str, folder: Path) -> str:
    """Returns a source relative to the Makefile's folder if it is a path on this machine."""
    path, colon, split = text.partition(":")
    if not os.path.exists(path):
        return text
    return f"$(HERE){os.path.relpath(path, folder)}{colon}{split}"


def _in_makefile(text: str) -> str:
    """Returns a source as the value of a variable that a command quotes."""
    here = "$(HERE)" if text.startswith("$(HERE)") else ""
    return here + _in_quotes(text.removeprefix(here)).replace("#", r"\#")  # else a comment


def _in_quotes(text: str) -> str:
    """Returns text for double quotes of the shell, escaped for make; a line end would begin another rule."""
    return re.sub(r'([\\"`$])', r"\\\1", printable(text)).replace("$", "$$")
