"""What a user writes for a system of an evaluation: `[NAME=]MODEL[+MODEL...][,mc-dropout=PASSES][,p=P]`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hydractl.errors import OptionError

FORM = "[NAME=]MODEL[+MODEL...][,mc-dropout=PASSES][,p=P] or [NAME=]predictions:FOLDER"
PREDICTIONS = "predictions:"
NAME = re.compile(r"(?P<name>[^=,+:/\\]+)=(?P<rest>.+)", re.DOTALL)
OPTION = re.compile(r"(?P<before>.+),(?P<key>[a-z-]+)=(?P<value>[^,=/]*)", re.DOTALL)


@dataclass(frozen=True)
class Dropout:
    """Dropout left on at test time: how often each network answers, and with which rate; None is its own."""

    passes: int
    rate: float | None = None


@dataclass(frozen=True)
class SystemSpec:
    """A system as asked for: networks that answer in turn, or the folder of its saved predictions."""

    name: str
    references: tuple[str, ...] = ()
    predictions: Path | None = None
    dropout: Dropout | None = None


def parse_system(text: str) -> SystemSpec:
    """What the text asks for; a path that exists wins over any other reading, so it may hold `=`, `+` and `,`.

    Raises:
        OptionError: nothing named, an unknown option, or numbers out of range.
    """
    named = None if Path(text).exists() else NAME.fullmatch(text)
    name, rest = named.group("name", "rest") if named else (None, text)
    if rest.startswith(PREDICTIONS):
        folder = rest.removeprefix(PREDICTIONS)
        if not folder:
            raise OptionError(f"{text}: names no folder: write {FORM}")
        return SystemSpec(name or Path(folder).resolve().name, predictions=Path(folder))
    body, options = _split_options(rest)
    references = (body,) if Path(body).exists() else tuple(body.split("+"))
    if not all(references):
        raise OptionError(f"{text}: names a model that is empty: write {FORM}")
    dropout = _dropout(text, options)
    default = "+".join(_stem(reference) for reference in references) + (" mc-dropout" if dropout else "")
    return SystemSpec(name or default, references, dropout=dropout)


def _split_options(text: str) -> tuple[str, dict[str, str]]:
    options: dict[str, str] = {}
    while not Path(text).exists() and (found := OPTION.fullmatch(text)):
        text = found["before"]
        options[found["key"]] = found["value"]
    return text, options


def _dropout(text: str, options: dict[str, str]) -> Dropout | None:
    if unknown := sorted(options.keys() - {"mc-dropout", "p"}):
        raise OptionError(f"{text}: {unknown[0]!r} is no option of a system: write {FORM}")
    if not options:
        return None
    try:
        passes, rate = int(options["mc-dropout"]), float(options["p"]) if "p" in options else None
    except (KeyError, ValueError) as error:
        raise OptionError(f"{text}: write MODEL,mc-dropout=PASSES,p=P, as in vit,mc-dropout=10,p=0.1") from error
    if passes < 1 or (rate is not None and not 0 < rate < 1):
        raise OptionError(f"{text}: expected at least one pass, and p above 0 and below 1")
    return Dropout(passes, rate)


def _stem(reference: str) -> str:
    return Path(reference).resolve().name.removesuffix(".safetensors")
