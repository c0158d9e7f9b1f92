"""What an evaluation measures: a row for each kind of system, with how it is spelt, and what every kind does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os.path import exists  # also of names that no path can have
from typing import TYPE_CHECKING, Any, Protocol

from hydractl.errors import OptionError

if TYPE_CHECKING:
    import torch

    from hydractl.data.ranks import InParallel, Ranks
    from hydractl.data.reading import Modality, Reading
    from hydractl.evaluation.predictor import Predictor
    from hydractl.evaluation.results import Description, KnownLeak
    from hydractl.evaluation.sets import EvaluationData, SetKey

NAME = re.compile(r"(?P<name>[^=,+:/\\]+)=(?P<rest>.+)", re.DOTALL)
OPTION = re.compile(r"(?P<before>.+),(?P<key>[a-z-]+)=(?P<value>[^,=/]*)", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Running:
    """How networks are run.

    Attributes:
        reading: names the classes of zero-shot models, by default those of the ID data, and their prompt.
        on_note: called with what a reader of the numbers should know.
    """

    device: torch.device
    dtype: torch.dtype | None
    compiled: bool
    batch_size: int
    workers: int
    seed: int
    reading: Reading
    ranks: Ranks
    in_parallel: InParallel
    on_note: Callable[[str], None]


class Opened(Protocol):
    """A system whose files are open; no weights are read yet."""

    @property
    def modality(self) -> Modality | None:
        """What it takes; None where it brings its answers along."""

    @property
    def sets(self) -> Mapping[SetKey, int]:
        """How many samples of which data sets it brings answers for; none where it computes them."""

    @property
    def histories(self) -> Sequence[Mapping[str, Any]]:
        """How its networks were made, by which it knows what samples they have seen."""

    @property
    def leaks(self) -> Sequence[KnownLeak]:
        """What leaked when its answers were saved."""

    @property
    def draws(self) -> bool:
        """Whether its answers depend on a seed."""

    def describe(self) -> Description:
        """Returns its networks."""

    def conditions(self, running: Running) -> dict[str, Any]:
        """What its answers depend on beside the data, as plain JSON; nothing where it brings them along."""

    def check_data(self, data: EvaluationData) -> None:
        """Nothing, if it can be evaluated on this data.

        Raises:
            DataError: it brings answers for other samples.
            OptionError: the data is a stream, and it cannot compare that with what it brings.
        """

    def answering(self, data: EvaluationData | None, running: Running) -> AbstractContextManager[Predictor]:
        """The system ready to answer, for as long as the block lasts.

        Args:
            data: what it answers; None where all systems bring their answers along.
        """

    def serve(self, data: EvaluationData | None, running: Running) -> None:
        """What a process beside the leading one does while that one evaluates this system."""


class SystemSpec(Protocol):
    """A system as asked for: nothing is open yet."""

    @property
    def name(self) -> str:
        """What reports call it if nobody gives it a name."""

    def open(self) -> Opened:
        """The system, opened.

        Raises:
            CheckpointError: a checkpoint cannot be read.
            DataError: a folder of predictions cannot be read.
            OptionError: networks that are no ensemble.
        """


@dataclass(frozen=True)
class SystemKind:
    """One kind of system.

    Attributes:
        spelling: how it is written.
        help: what it is, to stand after its spelling.
        parse: what a text without NAME= asks for; None where it is not spelt this way.
    """

    name: str
    spelling: str
    help: str
    parse: Callable[[str], SystemSpec | None]


def _predictions(text: str) -> SystemSpec | None:
    from hydractl.evaluation.predictions import parse_predictions

    return parse_predictions(text)


def _mc_dropout(text: str) -> SystemSpec | None:
    from hydractl.evaluation.dropout import parse_dropout

    return parse_dropout(text)


def _deep_ensemble(text: str) -> SystemSpec | None:
    from hydractl.evaluation.checkpoints import parse_deep_ensemble

    return parse_deep_ensemble(text)


def _members(text: str) -> SystemSpec | None:
    from hydractl.evaluation.checkpoints import parse_members

    return parse_members(text)


def _model(text: str) -> SystemSpec | None:
    from hydractl.evaluation.checkpoints import parse_model

    return parse_model(text)


#: The first that a text is a spelling of is what it asks for.
SYSTEM_KINDS = (
    SystemKind("predictions", "predictions:FOLDER", "saved predictions", _predictions),
    SystemKind("mc-dropout", "MODEL,mc-dropout=PASSES[,p=P]", "passes with dropout on", _mc_dropout),
    SystemKind("deep-ensemble", "MODEL+MODEL[+...]", "a Deep Ensemble", _deep_ensemble),
    SystemKind("members", "MODEL:0,2", "some members of a Hydra", _members),
    SystemKind("model", "MODEL", "one network, or a Hydra", _model),
)
SPELLINGS = f"[NAME=] and {', or '.join(f'{kind.spelling} ({kind.help})' for kind in SYSTEM_KINDS)}"


def parse_system(text: str) -> tuple[str, SystemSpec]:
    """The name and the system that a text asks for; a path that exists may hold `=`, `+` and `,`.

    Raises:
        OptionError: nothing named, an unknown option, or numbers out of range.
    """
    named = None if exists(text) else NAME.fullmatch(text)
    name, rest = named.group("name", "rest") if named else (None, text)
    for kind in SYSTEM_KINDS:
        spec = kind.parse(rest)
        if spec is not None:
            return name or spec.name, spec
    raise OptionError(f"{text}: is no system: write {SPELLINGS}")


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the options `,key=value` at the end of a text, and the options; a path keeps what it holds."""
    options: dict[str, str] = {}
    while not exists(text) and (found := OPTION.fullmatch(text)):
        text = found["before"]
        options[found["key"]] = found["value"]
    return text, options


def check_names(names: Sequence[str], seeds: bool) -> None:
    """Nothing, if each name is there once, or several may be seeds of one system.

    Raises:
        OptionError: one is there twice without `seeds`.
    """
    for name, count in Counter(names).items():
        if count > 1 and not seeds:
            raise OptionError(
                f"{count} systems are called {name}: give them names, as in first={name}, or pass `seeds` where they "
                "are seeds of one system"
            )


def modality_of(systems: Sequence[tuple[str, Opened]]) -> Modality | None:
    """What all of the systems take; None where all bring their answers along.

    Raises:
        OptionError: some take images and some take texts.
    """
    modalities = {name: system.modality for name, system in systems if system.modality is not None}
    if len(set(modalities.values())) > 1:
        listed = ", ".join(f"{name} takes {modality}s" for name, modality in modalities.items())
        raise OptionError(f"one evaluation is of images or of texts: {listed}")
    return next(iter(modalities.values()), None)
