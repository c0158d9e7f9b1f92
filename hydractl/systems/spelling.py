"""Systems of an evaluation as texts spell them."""

import re
from collections.abc import Mapping
from dataclasses import replace
from os.path import exists  # also of names that no path can have
from pathlib import Path

from hydractl.artifacts import PREDICTIONS
from hydractl.bounds import NETWORKS, PASSES, real, whole
from hydractl.errors import OptionError
from hydractl.systems.networks import NetworkSystem
from hydractl.systems.onnx import OnnxSystem
from hydractl.systems.onnx_file import is_onnx
from hydractl.systems.saved import SavedPredictions
from hydractl.systems.system import SPELLINGS, Dropout, System

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
    system: System
    if rest.startswith(PREDICTIONS):
        system = SavedPredictions(Path(rest.removeprefix(PREDICTIONS)))
    elif is_onnx(rest):
        system = OnnxSystem(Path(rest))
    else:
        system = parse_networks(rest)
    return name or system.name, system


def parse_networks(text: str) -> NetworkSystem:
    """Returns the networks that a text spells, in any way of `SYSTEM_KINDS`."""
    body, options = _split_options(text)
    if unknown := sorted(options.keys() - {"mc-dropout", "p"}):
        raise OptionError(f"{text}: {unknown[0]!r} is no option of a system: write {SPELLINGS}")
    networks = networks_in(body)
    if not all(networks):
        raise OptionError(f"{text}: names a model that is empty: write {SPELLINGS}")
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
    passes = whole(options.get("mc-dropout", ""), 1, PASSES)
    rate = real(options["p"], 0, 1) if "p" in options else None
    if passes is None or ("p" in options and (rate is None or not 0 < rate < 1)):
        raise OptionError(f"{text}: expected 1 to {PASSES} passes, and p above 0 and below 1: write {DROPOUT_EXAMPLE}")
    return Dropout(passes, rate)


def by_size(name: str, system: System) -> list[tuple[str, System]]:
    """Returns the first member of a network, the first two, and so on to the whole; other systems as they are."""
    if not isinstance(system, NetworkSystem) or len(system.networks) > 1 or system.members is not None:
        return [(name, system)]
    firsts = [tuple(range(size)) for size in range(1, system.checkpoints[0].members)]
    some = [(f"{name}:{','.join(map(str, members))}", replace(system, members=members)) for members in firsts]
    return [*some, (name, system)]
