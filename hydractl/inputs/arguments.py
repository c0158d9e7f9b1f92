"""Options that steps share, and models by path or by value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import OptionError
from hydractl.options import Option, option
from hydractl.reports.drawing import check_picture, write_picture
from hydractl.run_options import Force

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ModelLike = Any  #: a path or a hub id, a `Hydra`, a `Checkpoint`, or the result of a step that made a model

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


@dataclass(frozen=True)
class PlotOptions:
    """The picture of a result and whether to replace an old one."""

    plot: str | Path | None = option(
        None, "Draw the result too; .svg and .pdf also work.", "Output", "FILE.png", remembered=False
    )
    force: Force = False

    def check(self) -> None:
        """Raises OutputError or OptionError if the picture cannot be written; call it before long work starts."""
        if self.plot is not None:
            check_picture(Path(self.plot), self.force)

    def write(self, draw: Callable[[], Figure]) -> None:
        """Draws and writes the picture, if one is wanted."""
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
    if isinstance(model, str | Path):
        from hydractl.families.load import read_checkpoint

        return read_checkpoint(model, without_classifier)
    from hydractl.model.assembly import to_checkpoint
    from hydractl.model.hydra import Hydra

    checkpoint = to_checkpoint(model) if isinstance(model, Hydra) else getattr(model, "checkpoint", model)
    if not isinstance(checkpoint, Checkpoint):
        raise OptionError(
            f"expected a model (a path, or what hydractl.load returns), got {type(checkpoint).__name__}: open one of "
            "transformers by hydractl.load(model, processor)"
        )
    return checkpoint


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
