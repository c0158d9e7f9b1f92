"""A pipeline as a list of commands: run in order, continued after an interruption, written as a Makefile."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydractl.data.reading import DataSpec, Part, path_seen_from
from hydractl.inputs.result import Result
from hydractl.options import Declared, Step, declared, flags_of, flat, make, run_step
from hydractl.text import printable
from hydractl.watch import Watcher

#: The folder of the Makefile, whose path may have blanks, and which another Makefile may include.
HERE = r"""HERE := $(shell f='$(subst ','\'',$(strip $(MAKEFILE_LIST)))'; \
  until [ -e "$$f" ] || [ "$$f" = "$${f#* }" ]; do f="$${f#* }"; done; dirname "$$f")/"""


class Made(str):
    """A file or folder that the pipeline makes, by its name in the pipeline's folder."""


class Given(str):
    """A model or a data source that the user named.

    Attributes:
        variable: its name in the Makefile.
        source: what the variable stands for.
        part: the samples to take of a data source; None for all.
    """

    variable: str
    source: str | DataSpec
    part: Part | None

    def __new__(cls, variable: str, source: str | DataSpec, part: Part | None = None) -> Given:
        text = super().__new__(cls, source.within(part) if isinstance(source, DataSpec) and part else source)
        text.variable, text.source, text.part = variable, source, part
        return text


@dataclass(frozen=True)
class Stage:
    """One command of a pipeline."""

    # Its options; `Made` and `Given` stand among them for files of the pipeline and sources of the user.
    step: Step[Result]
    makes: tuple[str, ...]  # the files it writes, by name in the pipeline's folder
    share: float = 1.0  # of the passes of a network that its command is counted to take

    @property
    def command(self) -> str:
        """The name of the command, `extract-circuit`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", type(self.step).__name__).lower()

    @property
    def places(self) -> list[Made | Given]:
        """The files of the pipeline and the sources of the user among its options."""
        return list(_places(flat(self.step)))

    def run(self, folder: Path, watch: Watcher) -> Result:
        """Runs the command; outputs that a killed run left are made again."""
        return run_step(make(type(self.step), _located(flat(self.step), folder) | {"force": True}), watch)

    def line(self, folder: Path | None = None) -> str:
        """Returns the command as a line of a Makefile, with its variables for sources, or as one of a shell.

        Args:
            folder: of the pipeline's files, for a shell.
        """
        words, flags = ["hydractl", self.command], []
        # A user who changes a step lets make replace its outputs, and everything made of them.
        values = flat(self.step) | {"force": True}
        if folder is not None:
            values = _located(values, folder)
        spelled = _word if folder is None else _shell_word
        for option in declared(type(self.step)):
            listed = [spelled(value) for value in _changed(option, values.get(option.name))]
            if option.option.positional:
                words += listed
            elif option.type is bool:
                flags += [flags_of(option)[0]] if listed else []
            else:
                flags += [word for entry in listed for word in (flags_of(option)[0], entry)]
        return " ".join([*words, *flags])

    @property
    def trains(self) -> bool:
        """True if it trains networks."""
        return self.command == "finetune"

    def is_done(self, folder: Path) -> bool:
        """Returns whether every output exists; each is written whole or not at all."""
        return all((folder / name).exists() for name in self.makes)


def run_stages(stages: Sequence[Stage], folder: Path, passes: Mapping[str, float], watch: Watcher) -> None:
    """Runs the stages that are not done, in order, and notes the time that is left.

    A pass takes another time in training, so that the time is told once what is left has run before: training, answers.

    Args:
        passes: how many samples the network is run on, by command; see `Stage.share`.
    """
    counts = [stage.share * passes.get(stage.command, 0.0) for stage in stages]
    left, done, spent = ({True: 0.0, False: 0.0} for _ in range(3))  # by whether networks are trained
    for stage, count in zip(stages, counts, strict=True):
        left[stage.trains] += 0 if stage.is_done(folder) else count
    for number, (stage, count) in enumerate(zip(stages, counts, strict=True), 1):
        if not stage.is_done(folder):
            about = _time_left(left, done, spent)
            watch.note(f"[{number}/{len(stages)}] {stage.command}: {', '.join(stage.makes)}{about}")
            if count > sum(counts) / 2:
                watch.note(
                    f"note: {stage.command} takes longer than all other steps together, about {count:,.0f} passes of "
                    "the network; a smaller `effort` takes fewer"
                )
            begun = time.monotonic()
            stage.run(folder, watch)
            spent[stage.trains] += time.monotonic() - begun if count else 0.0  # a step without passes foretells none
            done[stage.trains] += count
            left[stage.trains] -= count


def _time_left(left: Mapping[bool, float], done: Mapping[bool, float], spent: Mapping[bool, float]) -> str:
    """Returns words about the time that is left, by passes and seconds; none where a kind of pass has not run yet."""
    kinds = [kind for kind, count in left.items() if count]
    if not kinds or not all(done[kind] for kind in kinds):
        return ""
    return f", about {duration(sum(spent[kind] / done[kind] * left[kind] for kind in kinds))} left"


def duration(seconds: float) -> str:
    """Returns a time as people read it.

    >>> duration(45.3), duration(150), duration(3600)
    ('45 seconds', '2.5 minutes', '60 minutes')
    """
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.{1 if seconds < 600 else 0}f} minutes"


def makefile(stages: Sequence[Stage], folder: Path, goals: Sequence[str]) -> str:
    """Returns the pipeline as a Makefile that makes the same bytes wherever it runs.

    Args:
        folder: the folder of the Makefile; paths are relative to it.
        goals: what it makes unless told.
    """
    variables = {place.variable: place for stage in stages for place in stage.places if isinstance(place, Given)}
    made = {name for stage in stages for name in stage.makes}
    lines = [
        "# Written by hydractl build: every step, with the options that it was run with. Change it and run make.",
        HERE,
        *(f"{name} ?= {_in_makefile(value.source, folder)}" for name, value in sorted(variables.items())),
        "",
        # `make -n` writes nothing.
        "$(if $(findstring n,$(firstword -$(MAKEFLAGS))),,$(shell mkdir -p work))",
        f".PHONY: all\nall: {' '.join(goals)}",
    ]
    for stage in stages:
        needs = [place for place in stage.places if place in made - set(stage.makes)]
        targets = " ".join(stage.makes)
        lines += ["", f"{targets}{' &' if len(stage.makes) > 1 else ''}: {' '.join(needs)}".rstrip()]
        lines.append(f"\t{stage.line()}")
    return "\n".join(lines) + "\n"


def _places(value: Any) -> Iterator[Made | Given]:
    if isinstance(value, Made | Given):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _places(inner)


def _located(value: Any, folder: Path) -> Any:
    if isinstance(value, Made):
        return folder / value
    if isinstance(value, Given):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _located(inner, folder) for name, inner in value.items()}
    return [_located(inner, folder) for inner in value] if isinstance(value, list | tuple) else value


def _changed(option: Declared, value: Any) -> list[Any]:
    """Returns the option's values; empty at its default."""
    if value is None or value == (option.default if option.choice is None else option.row_default):
        return []
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(value)
    return [option.option.plain(value) if option.option.plain else value]


def _word(value: Any) -> str:
    """Returns a value as a word in a line of a Makefile."""
    if isinstance(value, tuple):
        return f"{value[0]}={_word(value[1])}"
    if isinstance(value, Given):
        return f'"$({value.variable}){value.part or ""}"'
    return _shell_word(value).replace("$", "$$")


def _shell_word(value: Any) -> str:
    return shlex.quote(printable("=".join(map(str, value)) if isinstance(value, tuple) else str(value)))


def _in_makefile(source: str | DataSpec, folder: Path) -> str:
    """Returns a source as the value of a variable that a command quotes; its paths are seen from the Makefile."""
    mark = "\0"  # which no path can have
    seen = source.seen_from(folder, mark) if isinstance(source, DataSpec) else path_seen_from(source, folder, mark=mark)
    return "$(HERE)".join(map(_in_quotes, str(seen).split(mark))).replace("#", r"\#")  # else a comment


def _in_quotes(text: str) -> str:
    """Returns text for double quotes of the shell, escaped for make; a line end would begin another rule."""
    return re.sub(r'([\\"`$])', r"\\\1", printable(text)).replace("$", "$$")
