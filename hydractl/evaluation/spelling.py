"""Systems of an evaluation as texts spell them."""

import re
from os.path import exists  # also of names that no path can have
from pathlib import Path

from hydractl.artifacts import PREDICTIONS
from hydractl.errors import OptionError
from hydractl.evaluation.checkpoints import parse_networks
from hydractl.evaluation.onnx_file import is_onnx
from hydractl.evaluation.onnx_system import OnnxSystem
from hydractl.evaluation.saved_predictions import SavedPredictions
from hydractl.evaluation.systems import SystemSpec

NAME = re.compile(r"(?P<name>[^=,+:/\\]+)=(?P<rest>.+)", re.DOTALL)


def parse_system(text: str) -> tuple[str, SystemSpec]:
    """Returns the name and the system that a text spells; a path that exists may hold `=`, `+` and `,`.

    Raises:
        OptionError: nothing named, an unknown option, or numbers out of range.
    """
    named = None if exists(text) else NAME.fullmatch(text)
    name, rest = named.group("name", "rest") if named else (None, text)
    if rest == PREDICTIONS:
        raise OptionError(f"{text}: names no folder: write predictions:FOLDER")
    system: SystemSpec
    if rest.startswith(PREDICTIONS):
        system = SavedPredictions(Path(rest.removeprefix(PREDICTIONS)))
    elif is_onnx(rest):
        system = OnnxSystem(Path(rest))
    else:
        system = parse_networks(rest)
    return name or system.name, system
