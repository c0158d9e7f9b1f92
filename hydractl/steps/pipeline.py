"""A pipeline as a list of commands: run one after the other, gone on with where it stopped, written as a Makefile."""

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
from hydractl.steps.options import declared, flags_of
from hydractl.steps.result import Result
from hydractl.text import printable
from hydractl.watch import Watcher


@dataclass(frozen=True)
class Made:
    """A file or folder of the pipeline's own, by its name in the pipeline's folder."""

    name: str


@dataclass(frozen=True)
class Given:
    """What the user named: a model or a data source, perhaps with a part of it behind.

    Attributes:
        variable: what the Makefile calls it.
        prefix, suffix: what stands before and behind it in a command.
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
        makes: what it writes, by name in the pipeline's folder.
        needs: what it reads of what others wrote.
    """

    command: str
    step: Callable[..., Result]
    values: Mapping[str, Any]
    makes: tuple[str, ...]
    needs: tuple[str, ...] = ()

    def run(self, folder: Path, watch: Watcher) -> Result:
        """Does it, as the command line would. What a killed run has made of its outputs is made again."""
        values = {name: _located(value, folder) for name, value in self.values.items()}
        own = {"force": True, "watch": watch}
        known = inspect.signature(self.step).parameters
        return self.step(**values, **{name: value for name, value in own.items() if name in known})

    def line(self) -> str:
        """It as a line of a Makefile, sources and outputs by the Makefile's variables and names."""
        words = ["hydractl", *self.command.split()]
        flags: list[str] = []
        for option in declared(self.step):
            # Whoever changes a step has make replace what it made, and all that was made of that.
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
        """Whether all that it makes is there; every output is written whole or not at all."""
        return all((folder / name).exists() for name in self.makes)


def run_tasks(tasks: Sequence[Task], folder: Path, watch: Watcher) -> Iterator[tuple[Task, Result | None]]:
    """Runs what is left to do, in order; yields each task with its result, or None where it was done before."""
    for number, task in enumerate(tasks, 1):
        if task.is_done(folder):
            yield task, None
            continue
        watch.note(f"[{number}/{len(tasks)}] {task.command}: {', '.join(task.makes)}")
        yield task, task.run(folder, watch)


def makefile(tasks: Sequence[Task], folder: Path, goal: str) -> str:
    """The pipeline as a Makefile that makes the same bytes wherever it is run.

    Args:
        folder: that it will lie in: paths in it are relative to that.
        goal: the target that `make` alone makes.
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


def refuse_other(folder: Path, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Raises OutputError where a pipeline was begun with other commands; the first that differs is named."""
    for number, (old, new) in enumerate(zip(found, wanted, strict=False), 1):
        if old != new:
            raise OutputError(
                f"{folder}: was begun with other options: step {number} was `{old}`, now it is `{new}`: "
                "name another folder, or give what it was begun with"
            )
    if len(found) != len(wanted):
        raise OutputError(
            f"{folder}: was begun with {len(found)} steps, now they are {len(wanted)}: name another folder"
        )


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
    """A value as a word of a recipe's shell."""
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
    """A source as the Makefile names it: relative to the Makefile's own folder where it lies on this machine."""
    path, colon, split = text.partition(":")
    if not os.path.exists(path):
        return text
    return f"$(HERE){os.path.relpath(path, folder)}{colon}{split}"


def _in_makefile(text: str) -> str:
    """A source as the value of a variable that stands between double quotes of a recipe's shell."""
    here = "$(HERE)" if text.startswith("$(HERE)") else ""
    return here + _in_quotes(text.removeprefix(here)).replace("#", r"\#")  # else a comment


def _in_quotes(text: str) -> str:
    """Text between double quotes of a recipe's shell, as make is told it; a line end would begin another rule."""
    return re.sub(r'([\\"`$])', r"\\\1", printable(text)).replace("$", "$$")
