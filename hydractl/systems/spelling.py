"""Systems of an evaluation as texts spell them; torch is imported when one is opened."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os.path import exists  # also of names that no path can have
from pathlib import Path
from typing import TYPE_CHECKING

from hydractl.artifacts import PREDICTIONS
from hydractl.bounds import NETWORKS, PASSES, real, whole
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.systems.networks import NetworkSystem
    from hydractl.systems.system import Dropout, System

DROPOUT_EXAMPLE = "MODEL,mc-dropout=PASSES,p=P, as in vit,mc-dropout=10,p=0.1"
OPTION = re.compile(r"(?P<before>.+),(?P<key>[a-z-]+)=(?P<value>[^,=/]*)", re.DOTALL)
MEMBERS = re.compile(r"(?P<model>.+):(?P<members>\d{1,4}(,\d{1,4})*)")
NAME = re.compile(r"(?P<name>[^=,+:/\\]+)=(?P<rest>.+)", re.DOTALL)


def parse_system(text: str) -> tuple[str, System]:
    """Returns the name and the system that a text spells; a path that exists may hold `=`, `+` and `,`.

    Raises:
        OptionError: nothing named, an unknown option, or numbers out of range.
    """
    match = None if exists(text) else NAME.fullmatch(text)
    name, rest = match.group("name", "rest") if match else (None, text)
    if rest == PREDICTIONS:
        raise OptionError(f"{text}: names no folder: write predictions:FOLDER")
    opened = (system for kind in SYSTEM_KINDS if kind.parse and (system := kind.parse(rest)) is not None)
    system = next(opened, None) or parse_networks(rest)
    return name or system.name, system


def _saved(text: str) -> System | None:
    from hydractl.systems.saved import SavedPredictions

    return SavedPredictions(Path(text.removeprefix(PREDICTIONS))) if text.startswith(PREDICTIONS) else None


def _graph(text: str) -> System | None:
    from hydractl.systems.onnx import OnnxSystem
    from hydractl.systems.onnx_file import is_onnx

    return OnnxSystem(Path(text)) if is_onnx(text) else None


@dataclass(frozen=True)
class SystemKind:
    """One kind of system: how it is written, what it is, to stand after that, and what opens a text that spells it.

    Texts that no kind opens are networks.
    """

    name: str
    spelling: str
    help: str
    parse: Callable[[str], System | None] | None = None


SYSTEM_KINDS = (
    SystemKind("predictions", "predictions:FOLDER", "saved predictions", _saved),
    SystemKind("mc-dropout", "MODEL,mc-dropout=PASSES[,p=P]", "passes with dropout on"),
    SystemKind("deep-ensemble", "MODEL+MODEL[+...]", "a Deep Ensemble"),
    SystemKind("members", "MODEL:0,2", "some members of a Hydra"),
    SystemKind("onnx", "FILE.onnx", "a graph that export wrote, run by onnxruntime", _graph),
    SystemKind("model", "MODEL", "one network, or a Hydra"),
)
SPELLINGS = f"[NAME=] and {', or '.join(f'{kind.spelling} ({kind.help})' for kind in SYSTEM_KINDS)}"


def parse_networks(text: str) -> NetworkSystem:
    """Returns the networks that a text spells, in any way of `SYSTEM_KINDS`."""
    from hydractl.systems.networks import NetworkSystem

    body, options = _split_options(text)
    if unknown := sorted(options.keys() - {"mc-dropout", "p"}):
        raise OptionError(f"{text}: {unknown[0]!r} is not an option of a system: write {SPELLINGS}")
    networks = networks_in(body)
    if not all(networks):
        raise OptionError(f"{text}: has an empty model name: write {SPELLINGS}")
    if options:
        return NetworkSystem(networks, _dropout(text, options))
    some = None if exists(body) or len(networks) > 1 else MEMBERS.fullmatch(body)
    if some is not None:
        return NetworkSystem((some["model"],), members=tuple(map(int, some["members"].split(","))))
    return NetworkSystem(networks)


def _split_options(text: str) -> tuple[str, dict[str, str]]:
    """Splits the options `,key=value` off the end of a text; a path that exists keeps all of it."""
    options: dict[str, str] = {}
    while not exists(text) and (match := OPTION.fullmatch(text)):
        text = match["before"]
        options[match["key"]] = match["value"]
    return text, options


def networks_in(text: str) -> tuple[str, ...]:
    """Returns the models that a text adds up; itself alone where a file has that name."""
    networks = (text,) if exists(text) else tuple(text.split("+"))
    if len(networks) > NETWORKS:
        raise OptionError(f"{text[:40]}...: adds up {len(networks)} models, expected {NETWORKS} at most")
    return networks


def _dropout(text: str, options: Mapping[str, str]) -> Dropout:
    from hydractl.systems.system import Dropout

    passes = whole(options.get("mc-dropout", ""), 1, PASSES)
    rate = real(options["p"], 0, 1) if "p" in options else None
    if passes is None or ("p" in options and (rate is None or not 0 < rate < 1)):
        raise OptionError(f"{text}: expected 1 to {PASSES} passes, and p above 0 and below 1: write {DROPOUT_EXAMPLE}")
    return Dropout(passes, rate)
