"""The kinds of systems with their spellings, and what every system does."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os.path import exists  # also of names that no path can have
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hydractl.errors import DataError, OptionError
from hydractl.ood.score import FitSamples

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hydractl.data.ranks import InParallel, Ranks
    from hydractl.data.reading import Reading
    from hydractl.evaluation.checkpoints import NetworkSystem
    from hydractl.evaluation.networks import Networks
    from hydractl.evaluation.saved_predictions import SavedPredictions
    from hydractl.metrics.checks import BoolArray, FloatArray, IntArray, Logits

#: A system that a user named, and one that is ready to answer.
SystemSpec: TypeAlias = "NetworkSystem | SavedPredictions"
Predictor: TypeAlias = "Networks | SavedPredictions"

NAME = re.compile(r"(?P<name>[^=,+:/\\]+)=(?P<rest>.+)", re.DOTALL)
OPTION = re.compile(r"(?P<before>.+),(?P<key>[a-z-]+)=(?P<value>[^,=/]*)", re.DOTALL)


#: Called with the number of samples in each finished batch.
OnBatch = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Running:
    """Says how networks are run."""

    device: torch.device
    dtype: torch.dtype | None
    compiled: bool
    batch_size: int
    workers: int
    seed: int
    reading: Reading  # names the classes of zero-shot models, by default those of the ID data, and their prompt
    ranks: Ranks  # the processes that share the batches; the leading one asks, the others serve
    in_parallel: InParallel  # runs several batches side by side
    on_note: Callable[[str], None]  # called with what a reader of the numbers should know


@dataclass(frozen=True, eq=False)
class SetAnswers:
    """A system's answers to the N samples of a set, in its order, in float32 or float64."""

    member_logits: Logits | None  # `[M,N,C]`, before any temperature; None if only a confidence was saved
    labels: IntArray | None  # `[N]` int64 in 0..C-1, or None for samples without
    features: Logits | None = None  # `[M,N,D']`, the inputs of the members' classifiers; None unless wanted
    # `[N]`, how sure the system is that it is right, by its own account; None if logits say it.
    confidence: FloatArray | None = None
    # `[N]` booleans, whether it is right, beside a confidence without logits; None without labels.
    correct: BoolArray | None = None
    hidden: Sequence[Logits] = ()  # `[S,N,D]` of each hidden layer, S 1 or M; empty unless wanted
    ood_score: FloatArray | None = None  # `[N]`, by the score in the system's own file, where that reads every layer

    @property
    def samples(self) -> int:
        """N."""
        if self.member_logits is not None:
            return self.member_logits.shape[1]
        return 0 if self.confidence is None else len(self.confidence)

    def to_score(self, classifier: Classifier | None = None) -> FitSamples:
        """Returns the answers as OOD scores take them.

        Args:
            classifier: of the members, for fits that need it.
        """
        assert self.member_logits is not None
        features = self.member_logits[..., :0] if self.features is None else self.features
        affine = None if classifier is None else (classifier.weight.numpy(), classifier.bias.numpy())
        return FitSamples(self.member_logits, features, self.labels, affine, hidden=self.hidden)

    def to_fit_on(self) -> tuple[Logits, IntArray]:
        """Returns logits and labels.

        Raises:
            DataError: there are none.
        """
        if self.member_logits is None:
            raise DataError("saved confidences hold no logits to fit anything on: save `logits` as well")
        if self.labels is None:
            raise DataError("the calibration data has no labels")
        return self.member_logits, self.labels


class Classifier(NamedTuple):
    """The affine maps by which members make logits of features: `[M,C,D']` and `[M,C]`."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class SystemKind:
    """One kind of system: how it is written, and what it is, to stand after that."""

    name: str
    spelling: str
    help: str


SYSTEM_KINDS = (
    SystemKind("predictions", "predictions:FOLDER", "saved predictions"),
    SystemKind("mc-dropout", "MODEL,mc-dropout=PASSES[,p=P]", "passes with dropout on"),
    SystemKind("deep-ensemble", "MODEL+MODEL[+...]", "a Deep Ensemble"),
    SystemKind("members", "MODEL:0,2", "some members of a Hydra"),
    SystemKind("model", "MODEL", "one network, or a Hydra"),
)
PREDICTIONS = "predictions:"
SPELLINGS = f"[NAME=] and {', or '.join(f'{kind.spelling} ({kind.help})' for kind in SYSTEM_KINDS)}"


def parse_system(text: str) -> tuple[str, SystemSpec]:
    """Returns the name and the system that a text spells; a path that exists may hold `=`, `+` and `,`.

    Raises:
        OptionError: nothing named, an unknown option, or numbers out of range.
    """
    # Imported at the first use, as torch takes a while.
    from hydractl.evaluation.checkpoints import parse_networks
    from hydractl.evaluation.saved_predictions import SavedPredictions

    named = None if exists(text) else NAME.fullmatch(text)
    name, rest = named.group("name", "rest") if named else (None, text)
    if rest == PREDICTIONS:
        raise OptionError(f"{text}: names no folder: write predictions:FOLDER")
    system: SystemSpec
    if rest.startswith(PREDICTIONS):
        system = SavedPredictions(Path(rest.removeprefix(PREDICTIONS)))
    else:
        system = parse_networks(rest)
    return name or system.name, system


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """Splits the options `,key=value` off the end of a text; a path that exists keeps all of it."""
    options: dict[str, str] = {}
    while not exists(text) and (found := OPTION.fullmatch(text)):
        text = found["before"]
        options[found["key"]] = found["value"]
    return text, options
