"""Options and inputs that steps share: models, circuits and scores, by path or by value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

from hydractl import bounds
from hydractl.errors import OptionError
from hydractl.options import Option

Kind = TypeVar("Kind")

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.circuit.circuit_file import Circuit
    from hydractl.circuit.scores import ScoreTable
    from hydractl.model.hydra import Hydra

    class HasCheckpoint(Protocol):
        """A result of a step that made a model."""

        @property
        def checkpoint(self) -> Checkpoint: ...

    ModelLike = str | Path | Hydra | Checkpoint | HasCheckpoint

    class HasCircuit(Protocol):
        """A result of a search for one circuit."""

        @property
        def circuit(self) -> Circuit: ...

    class HasScores(Protocol):
        """A result of scoring heads."""

        @property
        def scores(self) -> ScoreTable: ...

    CircuitLike = str | Path | Circuit | HasCircuit
    ScoresLike = str | Path | ScoreTable | HasScores
else:  # what the command line derives flags from: any text will do
    ModelLike = CircuitLike = ScoresLike = Any

# Options that several steps share.
Model = Annotated[
    ModelLike,
    Option(
        "A file of hydractl, a folder of transformers, timm or OpenCLIP, or a hub id.",
        "Model",
        "MODEL",
        positional=True,
        remembered=False,
    ),
]
Precision = Annotated[
    Literal["no", "bf16", "fp16"], Option("Mixed precision of products; weights stay float32.", "Compute")
]
Compiled = Annotated[bool, Option("Compile the model with torch.compile first.", "Compute", flags=("--compile",))]


Workers = Annotated[
    int,
    Option(
        "Processes that decode images; they do not change the result.",
        "Compute",
        minimum=0,
        maximum=1024,
        remembered=False,
    ),
]
Seed = Annotated[int, Option("Seed of all random draws.", "Compute", minimum=0, maximum=bounds.SEED)]
Output = Annotated[str | Path | None, Option("File to write.", "Output", flags=("--output", "-o"), remembered=False)]
Force = Annotated[bool, Option("Replace an output that exists.", "Output", flags=("--force", "-f"), remembered=False)]
Resume = Annotated[bool, Option("Continue an interrupted run, if there is one.", "Output", remembered=False)]


@dataclass(frozen=True)
class PlotOptions:
    """The picture of a result and whether to replace an old one."""

    plot: Annotated[
        str | Path | None,
        Option("Draw the result too; .svg and .pdf also work.", "Output", "FILE.png", remembered=False),
    ] = None
    force: Force = False

    def check(self) -> None:
        """Raises OutputError or OptionError if the picture cannot be written; call it before long work starts."""
        from hydractl.report.drawing import check_picture

        if self.plot is not None:
            check_picture(Path(self.plot), self.force)

    def write(self, draw: Callable[[], Figure]) -> None:
        """Draws and writes the picture, if one is wanted."""
        from hydractl.report.drawing import write_picture

        if self.plot is not None:
            write_picture(draw(), Path(self.plot), self.force)


def as_checkpoint(model: ModelLike, without_classifier: bool = False) -> Checkpoint:
    """Returns the checkpoint of a model; tensors of a model named by a path stay on disk.

    Args:
        model: a reference as the command line takes it, a loaded model, a checkpoint, or the result of a step.
        without_classifier: also read a network without a classifier, to train a new one.

    Raises:
        CheckpointError: no such model, or one that hydractl does not read.
        OptionError: not a model.
    """
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.families.load import read_checkpoint

    if isinstance(model, str | Path):
        return read_checkpoint(model, without_classifier)

    from hydractl.model.assembly import to_checkpoint
    from hydractl.model.hydra import Hydra

    if isinstance(model, Hydra):
        return to_checkpoint(model)
    return _value(getattr(model, "checkpoint", model), Checkpoint, "a model (a path, or what hydractl.load returns)")


def as_several(models: ModelLike | Sequence[ModelLike]) -> Sequence[ModelLike]:
    """Returns models that were given one by one or together."""
    return [models] if isinstance(models, str) or not isinstance(models, Sequence) else models


def as_member(model: ModelLike) -> Checkpoint:
    """Returns the checkpoint of a model of one member; see `as_checkpoint`.

    Raises:
        OptionError: it has several.
    """
    checkpoint = as_checkpoint(model)
    if checkpoint.members > 1:
        raise OptionError(f"{checkpoint.name}: has {checkpoint.members} members: name one network")
    return checkpoint


def as_circuit(circuit: CircuitLike) -> Circuit:
    """Returns a circuit from its file (`-` is standard input), or from the search that found it.

    Raises:
        ArtifactError: the file cannot be read, or is no circuit.
        OptionError: not a circuit.
    """
    from hydractl.circuit.circuit_file import Circuit, read_circuit

    if isinstance(circuit, str | Path):
        return read_circuit(str(circuit))
    found = getattr(circuit, "circuit", circuit)
    return _value(found, Circuit, "a circuit (a path, or the result of extract_circuit)")


def as_scores(scores: ScoresLike) -> ScoreTable:
    """Returns head scores from their file (`-` is standard input), or from the step that computed them.

    Raises:
        ArtifactError: the file cannot be read, or holds no scores.
        OptionError: not head scores.
    """
    from hydractl.circuit.scores import ScoreTable, read_scores

    if isinstance(scores, str | Path):
        return read_scores(str(scores))
    return _value(getattr(scores, "scores", scores), ScoreTable, "head scores (a path, or the result of score_heads)")


def _value(found: object, kind: type[Kind], expected: str) -> Kind:
    if not isinstance(found, kind):
        raise OptionError(f"expected {expected}, got {type(found).__name__}")
    return found


def model_name(model: ModelLike) -> str:
    """Returns the name of a model in tables and messages: the stem of its file, or the name of its folder."""
    name = str(model) if isinstance(model, str | Path) else as_checkpoint(model).name
    return Path(name).resolve().name.removesuffix(".safetensors")
