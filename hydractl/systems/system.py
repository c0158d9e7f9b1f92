"""The protocol of systems, their descriptions as a report has them, and the settings they run under."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from hydractl.artifacts import Size, TowerName
from hydractl.data.reading import Group
from hydractl.schema import Checked, Items

if TYPE_CHECKING:
    import torch

    from hydractl.checkpoint.calibration import Calibration
    from hydractl.data.batching import Batch
    from hydractl.data.ranks import InParallel, Ranks
    from hydractl.data.reading import Modality, Reading
    from hydractl.data.samples import Samples
    from hydractl.metrics.arrays import FloatArray
    from hydractl.model.answering import OodHead, RawPreprocessor
    from hydractl.ood.score import Beside
    from hydractl.tasks.task import Answers, Task

Positive = Annotated[float, Checked(ge=0)]
Share = Annotated[float, Checked(ge=0, le=1)]
Count = Annotated[int, Checked(ge=0)]
NULL = {"null": True}  # marks a field that JSON writes as null
Role = Literal["calibration", "id", "ood", "shift"]
#: Called with the number of samples in each finished batch.
OnBatch = Callable[[int], None]
#: Returns the answers to a set, with what a score reads of them.
Answering = Callable[["SetKey", "Beside", OnBatch], "Answers"]
#: Returns the batches of a set for a network's preprocessing.
ReadBatches = Callable[["Samples", "RawPreprocessor"], Iterable["Batch"]]


@dataclass(frozen=True)
class Model:
    """The reference and identity of a system."""

    reference: str
    sha256: str | None = None


@dataclass(frozen=True)
class Heads:
    """The heads that each member keeps in each layer, and how many there are."""

    of: Size
    kept: Items[Items[Items[int]]]

    def __post_init__(self) -> None:
        if len({len(members) for members in self.kept}) > 1:
            raise ValueError("layers differ in how many members they have")


@dataclass(frozen=True)
class Network:
    """One of the networks of a system, and the heads it keeps."""

    reference: str
    sha256: str
    heads: Mapping[TowerName, Heads]


@dataclass(frozen=True)
class Dropout:
    """Dropout that stays on at test time: how often each network answers, and the rate; None for the model's own."""

    passes: int
    rate: float | None = field(default=None, metadata=NULL)


@dataclass(frozen=True)
class KnownLeak:
    """Samples of a set that made the system or fitted something in it; `used_as` says for what."""

    set: str
    name: str
    samples: Count
    overlap: Count
    used_as: Items[str]


@dataclass(frozen=True)
class Description:
    """The networks that a system is made of, and the samples of the evaluation that it was made with."""

    model: Model
    networks: Items[Network] = ()
    dropout: Dropout | None = None
    leaks: Items[KnownLeak] | None = None
    exposed: Items[str] | None = None  # OOD sets of the kind that its training saw


@dataclass(frozen=True)
class Cost:
    """Members, parameters stored, and multiply-adds of matrix products for one sample of `tokens` tokens.

    `multiply_adds` are those of the network as it is published, every token through every layer; `performed` are those
    of this very model, fewer once it is optimised for inference. A zero-shot model's class prompts are encoded once for
    all samples and not counted.
    """

    members: Count
    parameters: Count
    multiply_adds: Count
    performed: Count = 0
    tokens: Count = 0


def plain(value: Any) -> Any:
    """Returns a value as plain JSON; NaN becomes null."""
    if is_dataclass(value):
        pairs = ((entry, getattr(value, entry.name)) for entry in fields(value))
        return {entry.name: plain(inner) for entry, inner in pairs if inner is not None or entry.metadata}
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if hasattr(value, "tolist"):  # an array
        return plain(value.tolist())
    if hasattr(value, "_asdict"):  # a named tuple
        return plain(value._asdict())
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and value != value else value


@dataclass(frozen=True)
class SetKey:
    """One data set: what it is for, its name, the group of an OOD set, the severity of a shifted one."""

    role: Role
    name: str
    group: Group | None = None
    severity: int | None = None
    labelled: bool = True  # whether its labels are read

    @property
    def path(self) -> str:
        """The place of its predictions in a folder, without ending: `id`, `ood/far/textures`, `shift/blur/3`."""
        match self.role:
            case "ood":
                return "/".join(part for part in ("ood", self.group, self.name) if part)
            case "shift":
                return f"shift/{self.name}/{self.severity}"
            case _:
                return self.role

    @property
    def has_labels(self) -> bool:
        """True if its labels are the model's; those of OOD data are other classes."""
        return self.labelled and self.role != "ood"


@dataclass(frozen=True, eq=False)
class EvaluationData:
    """The data sets of an evaluation, in order; exactly one has the role `id`, at most one `calibration`."""

    sets: Mapping[SetKey, Samples]
    match: Literal["name", "index"] = "name"
    read: ReadBatches | None = None  # makes the batches of a set; by default `make_batches`

    @property
    def id(self) -> Samples:
        """The in-distribution set."""
        return next(samples for key, samples in self.sets.items() if key.role == "id")


@dataclass(frozen=True, eq=False)
class Running:
    """Says how networks are run."""

    device: torch.device
    dtype: torch.dtype | None
    batch_size: int
    reading: Reading  # names the classes of zero-shot models, by default those of the ID data, and their prompt
    ranks: Ranks  # the processes that share the batches; the leading one asks, the others serve
    in_parallel: InParallel  # runs several batches side by side
    on_note: Callable[[str], None]  # called with what a reader of the numbers should know
    workers: int = 0
    seed: int = 0


class System(Protocol):
    """A system that answers data sets: a network or an ensemble, a graph of another runtime, saved predictions.

    It is spelled by a text (see `SYSTEM_KINDS` in `spelling`) and opens its files at the first use of what they hold;
    weights are in memory from its first answer to its last. Under torchrun the leading process asks and the others
    `serve`, until it lets the system go by `dismiss`.
    """

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

    def on(self, data: EvaluationData | None, running: Running, /) -> System:
        """Returns the system with the data that it is to answer, and how it is run."""

    @property
    def own_confidence(self) -> bool:
        """True if it holds a confidence of its own, which is its score whatever score is chosen."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of its classes."""

    @property
    def task(self) -> Task:
        """The task that it answers."""

    @property
    def calibration(self) -> Calibration:
        """The fits to its answers."""

    @property
    def cost(self) -> Cost | None:
        """Its members, parameters and multiply-adds; None if they are unknown."""

    @property
    def ood_head(self) -> OodHead | None:
        """The OOD score that its file brings."""

    @property
    def scores_itself(self) -> bool:
        """True if its answers bring the numbers of that score."""

    def samples(self, key: SetKey) -> int:
        """Returns the number of samples of a set."""

    def answers(self, key: SetKey, reads: Beside, on_batch: OnBatch) -> Answers:
        """Returns the answers to a set, with the parts that a score reads."""

    def profiles(self, samples: Samples) -> tuple[FloatArray, FloatArray] | None:
        """Returns the typicality of some samples `[N]`, and that by each layer `[N,L]`; None without a score for it."""

    def serve(self) -> None:
        """Answers what the leading process asks."""

    def dismiss(self) -> None:
        """Ends the serving of other processes."""
