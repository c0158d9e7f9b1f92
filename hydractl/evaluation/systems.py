"""The kinds of systems with their spellings, and what every system does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os.path import exists  # also of names that no path can have
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hydractl.errors import DataError, OptionError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hydractl.data.ranks import InParallel, Ranks
    from hydractl.data.reading import Modality, Reading
    from hydractl.evaluation.results import Cost, Description, KnownLeak
    from hydractl.evaluation.sets import EvaluationData, SetKey
    from hydractl.model.ood_head import OodHead

NAME = re.compile(r"(?P<name>[^=,+:/\\]+)=(?P<rest>.+)", re.DOTALL)
OPTION = re.compile(r"(?P<before>.+),(?P<key>[a-z-]+)=(?P<value>[^,=/]*)", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Running:
    """Says how networks are run.

    Attributes:
        reading: names the classes of zero-shot models, by default those of the ID data, and their prompt.
        ranks: the processes that share the batches; the leading one asks, the others serve.
        in_parallel: runs several batches side by side.
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


class AnsweredBatch(NamedTuple):
    """A system's answers to some samples of a set, on the CPU in float32 or float64.

    Attributes:
        member_logits: `[M,B,C]`, before any temperature; None if only a confidence was saved.
        labels: `[B]` int64 in 0..C-1, or None for samples without.
        positions: `[B]` int64, the places of the samples in their set.
        features: `[M,B,D']`, the inputs of the members' classifiers; None unless wanted.
        confidence: `[B]`, how sure the system is that it is right, by its own account; None if logits say it.
        correct: `[B]` booleans, whether it is right, beside a confidence without logits; None without labels.
    """

    member_logits: Tensor | None
    labels: Tensor | None
    positions: Tensor
    features: Tensor | None = None
    confidence: Tensor | None = None
    correct: Tensor | None = None

    def logits(self) -> Tensor:
        """Returns the members' logits.

        Raises:
            DataError: there are none.
        """
        if self.member_logits is None:
            raise DataError("saved confidences hold no logits to fit anything on: save `logits` as well")
        return self.member_logits


class Classifier(NamedTuple):
    """The affine maps by which members make logits of features: `[M,C,D']` and `[M,C]`."""

    weight: Tensor
    bias: Tensor


class Predictor(Protocol):
    """A system that is ready to answer, whether it computes its answers or reads saved ones."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of its classes, in the order of the logits, if they are known."""

    @property
    def temperature(self) -> float:
        """Its own: that of a calibrated file, else 1."""

    @property
    def cost(self) -> Cost | None:
        """Its cost, if that was recorded."""

    @property
    def classifier(self) -> Classifier | None:
        """Its members' classifiers, if they were recorded."""

    @property
    def ood_head(self) -> OodHead | None:
        """Its own OOD score, if a calibrated file brings one that holds for these answers."""

    @property
    def confident(self) -> bool:
        """True if its answers hold a confidence of its own, which is its score whatever score is chosen."""

    def samples(self, key: SetKey) -> int:
        """Returns how many samples of the set it answers."""

    def answers(self, key: SetKey, features: bool = False) -> Iterator[AnsweredBatch]:
        """Yields the set's answers, each sample once, in any order.

        Raises:
            DataError: the set cannot be read, or the system has nothing for it.
        """


class Opened(Protocol):
    """A system whose files are open; no weights are read yet."""

    @property
    def modality(self) -> Modality | None:
        """Its inputs; None if it brings its answers along."""

    @property
    def sets(self) -> Mapping[SetKey, int]:
        """Returns the number of samples that it has answers for, by data set; empty if it computes them."""

    @property
    def histories(self) -> Sequence[Mapping[str, Any]]:
        """The provenance of its networks, which tells the samples that they have seen."""

    @property
    def leaks(self) -> Sequence[KnownLeak]:
        """The leaks that were known when its answers were saved."""

    @property
    def draws(self) -> bool:
        """True if its answers depend on a seed."""

    def describe(self) -> Description:
        """Returns its networks."""

    def conditions(self, running: Running) -> dict[str, Any]:
        """Returns what its answers depend on besides the data, as plain JSON; empty if it brings them along."""

    def check_data(self, data: EvaluationData) -> None:
        """Raises an error if it cannot be evaluated on this data.

        Raises:
            DataError: it brings answers for other samples.
        """

    def answering(self, data: EvaluationData | None, running: Running) -> AbstractContextManager[Predictor]:
        """Returns the system ready to answer, for as long as the block lasts.

        Args:
            data: None if all systems bring their answers along.
        """

    def serve(self, data: EvaluationData | None, running: Running) -> None:
        """Does the work of a process beside the leading one while that one evaluates this system."""


class SystemSpec(Protocol):
    """A system that a user named: nothing is open yet."""

    @property
    def name(self) -> str:
        """Its name in reports unless the user gives it one."""

    def open(self) -> Opened:
        """Opens the system.

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
        parse: returns the system that a text without NAME= spells; None for another spelling.
    """

    name: str
    spelling: str
    help: str
    parse: Callable[[str], SystemSpec | None]


def _parsers() -> Any:
    # Imported at the first use, as torch takes a while.
    from hydractl.evaluation import checkpoints

    return checkpoints


def _predictions(text: str) -> SystemSpec | None:
    from hydractl.evaluation.saved_predictions import parse_predictions

    return parse_predictions(text)


#: A text means the first kind that it is a spelling of.
SYSTEM_KINDS = (
    SystemKind("predictions", "predictions:FOLDER", "saved predictions", _predictions),
    SystemKind(
        "mc-dropout",
        "MODEL,mc-dropout=PASSES[,p=P]",
        "passes with dropout on",
        lambda text: _parsers().parse_dropout(text),
    ),
    SystemKind(
        "deep-ensemble", "MODEL+MODEL[+...]", "a Deep Ensemble", lambda text: _parsers().parse_deep_ensemble(text)
    ),
    SystemKind("members", "MODEL:0,2", "some members of a Hydra", lambda text: _parsers().parse_members(text)),
    SystemKind("model", "MODEL", "one network, or a Hydra", lambda text: _parsers().parse_model(text)),
)
SPELLINGS = f"[NAME=] and {', or '.join(f'{kind.spelling} ({kind.help})' for kind in SYSTEM_KINDS)}"


def parse_system(text: str) -> tuple[str, SystemSpec]:
    """Returns the name and the system that a text spells; a path that exists may hold `=`, `+` and `,`.

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
    """Splits the options `,key=value` off the end of a text; a path that exists keeps all of it."""
    options: dict[str, str] = {}
    while not exists(text) and (found := OPTION.fullmatch(text)):
        text = found["before"]
        options[found["key"]] = found["value"]
    return text, options


def check_names(names: Sequence[str], seeds: bool) -> None:
    """Raises OptionError if a name is there twice without `seeds`."""
    for name, count in Counter(names).items():
        if count > 1 and not seeds:
            raise OptionError(
                f"{count} systems are called {name}: give them names, as in first={name}, or pass `seeds` where they "
                "are seeds of one system"
            )


def modality_of(systems: Sequence[tuple[str, Opened]]) -> Modality | None:
    """Returns the inputs of all the systems; None if all bring their answers along.

    Raises:
        OptionError: some take images and some take texts.
    """
    modalities = {name: system.modality for name, system in systems if system.modality is not None}
    if len(set(modalities.values())) > 1:
        listed = ", ".join(f"{name} takes {modality}s" for name, modality in modalities.items())
        raise OptionError(f"one evaluation is of images or of texts: {listed}")
    return next(iter(modalities.values()), None)
