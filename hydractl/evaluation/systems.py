"""The kinds of systems with their spellings, and what every system does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hydractl.checkpoint.contents import PromisedSets
from hydractl.errors import DataError
from hydractl.ood.score import FitSamples

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from hydractl.data.ranks import InParallel, Ranks
    from hydractl.data.reading import Modality, Reading
    from hydractl.data.samples import Samples
    from hydractl.evaluation.number_rule import NumberRule
    from hydractl.evaluation.results import Cost, Description, KnownLeak
    from hydractl.evaluation.sets import EvaluationData, SetKey
    from hydractl.metrics.checks import BoolArray, FloatArray, IntArray, Logits
    from hydractl.model.ood_head import OodHead
    from hydractl.ood.score import Reads

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
    # `[N]` int64 in 0..C-1, `[N,C]` of several labels or float64 of numbers, or None for samples without
    labels: NDArray[Any] | None
    features: Logits | None = None  # `[M,N,D']`, the inputs of the members' classifiers; None unless wanted
    # `[N]`, how sure the system is that it is right, by its own account; None if logits say it.
    confidence: FloatArray | None = None
    # `[N]` booleans, whether it is right, beside a confidence without logits; None without labels.
    correct: BoolArray | None = None
    hidden: Sequence[Logits] = ()  # `[S,N,D]` of each hidden layer, S 1 or M; empty unless wanted
    ood_score: FloatArray | None = None  # `[N]`, by the score in the system's own file, where that reads every layer
    # `[n,2]`, sentence and number of each of n words in order; logits are then `[M,n,C]` and labels `[n]`.
    places: IntArray | None = None

    @property
    def samples(self) -> int:
        """N."""
        if self.places is not None:
            return int(self.places[:, 0].max()) + 1
        if self.member_logits is not None:
            return self.member_logits.shape[1]
        return 0 if self.confidence is None else len(self.confidence)

    def to_score(self, classifier: Classifier | None = None) -> FitSamples:
        """Returns the answers as OOD scores take them.

        Args:
            classifier: of the members, for fits that need it.
        """
        assert self.member_logits is not None
        logits = self.member_logits
        if self.places is not None and self.features is not None:
            logits = self.features[..., :0]  # those of words are no answers to samples
        features = logits[..., :0] if self.features is None else self.features
        affine = None if classifier is None else (classifier.weight.numpy(), classifier.bias.numpy())
        one = self.labels is not None and self.labels.ndim == 1 and self.places is None
        classes = self.labels if one else None
        return FitSamples(logits, features, classes, affine, hidden=self.hidden)

    def to_fit_on(self) -> tuple[Logits, NDArray[Any]]:
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


class Predictor(Protocol):
    """A system that is ready to answer the data sets of an evaluation.

    Under torchrun the leading process asks and the others `serve`, until it lets the system go by `dismiss`.
    """

    @property
    def confident(self) -> bool:
        """True if it holds a confidence of its own, which is its score whatever score is chosen."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of its classes."""

    @property
    def several(self) -> bool:
        """True if a sample has any number of labels."""

    @property
    def numbers(self) -> NumberRule | None:
        """The task and the intervals of its numbers; None if it chooses classes or labels."""

    @property
    def embeds(self) -> bool:
        """True if it answers with embeddings: its `member_logits` are those of its members."""

    @property
    def by_word(self) -> bool:
        """True if it labels each word of a text."""

    @property
    def thresholds(self) -> Sequence[float] | None:
        """The probability from which it answers with each of several labels; None for one half."""

    @property
    def promised_sets(self) -> PromisedSets | None:
        """The promise of its prediction sets; None without one."""

    @property
    def temperature(self) -> float:
        """The number that divides its logits."""

    @property
    def cost(self) -> Cost | None:
        """Its members, parameters and multiply-adds; None if they are unknown."""

    @property
    def classifier(self) -> Classifier | None:
        """Its members' classifiers; None if they are unknown."""

    @property
    def ood_head(self) -> OodHead | None:
        """The OOD score that its file brings."""

    @property
    def scores_itself(self) -> bool:
        """True if its answers bring the numbers of that score."""

    def samples(self, key: SetKey) -> int:
        """Returns the number of samples of a set."""

    def answers(self, key: SetKey, reads: Reads, on_batch: OnBatch) -> SetAnswers:
        """Returns the answers to a set, with the parts that a score reads."""

    def profiles(self, samples: Samples) -> tuple[FloatArray, FloatArray] | None:
        """Returns the typicality of some samples `[N]`, and that by each layer `[N,L]`; None without a score for it."""

    def serve(self) -> None:
        """Answers what the leading process asks."""

    def dismiss(self) -> None:
        """Ends the serving of other processes."""


class SystemSpec(Protocol):
    """A system that a user named; it opens its files at the first use of what they hold."""

    @property
    def name(self) -> str:
        """The name in reports."""

    @property
    def modality(self) -> Modality | None:
        """The kind of sample that it answers; None if it brings its answers along."""

    @property
    def histories(self) -> Sequence[Mapping[str, Any]]:
        """The provenance of its networks."""

    @property
    def draws(self) -> bool:
        """True if its answers depend on a seed."""

    @property
    def sets(self) -> Mapping[SetKey, int]:
        """The samples of each set that it brings answers for; empty if it answers any."""

    @property
    def leaks(self) -> Sequence[KnownLeak]:
        """The leaks that were known when its answers were saved."""

    def describe(self) -> Description:
        """Returns its part of a report."""

    def conditions(self, running: Running, /) -> dict[str, Any]:
        """Returns what its answers depend on besides the data, as plain JSON."""

    def check(self, data: EvaluationData | None) -> None:
        """Raises DataError if it cannot answer the data."""

    def load(self, data: EvaluationData | None, running: Running, /) -> Predictor:
        """Returns the system with its weights in memory."""


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
    SystemKind("onnx", "FILE.onnx", "a graph that export wrote, run by onnxruntime"),
    SystemKind("openvino", "FILE.onnx,openvino[=bf16]", "the same, run by OpenVINO"),
    SystemKind("model", "MODEL", "one network, or a Hydra"),
)
SPELLINGS = f"[NAME=] and {', or '.join(f'{kind.spelling} ({kind.help})' for kind in SYSTEM_KINDS)}"
