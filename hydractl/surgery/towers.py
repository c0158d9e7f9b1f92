"""A tower of a network by itself, whose answer is an embedding."""

from dataclasses import replace
from typing import Literal

from hydractl.checkpoint.calibration import NOT_CALIBRATED, Calibration
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.slots import slots
from hydractl.checkpoint.spec import EMBEDDINGS, ModelSpec
from hydractl.errors import OptionError

Embeds = Literal["image", "text"]


def as_embedding(checkpoint: Checkpoint, what: Embeds) -> Checkpoint:
    """Returns the network that embeds images or texts as this one does, members and all.

    The embedding of a zero-shot model is what it compares, at unit length; that of a classifier is what its classifier
    reads. Images of a zero-shot model keep their OOD score, which reads no classes.

    Raises:
        OptionError: the network has no such tower, or labels words.
    """
    tower = "vision" if what == "image" else "text"
    encoder = next((each for each in checkpoint.spec.towers if each.name == tower), None)
    if encoder is None:
        other = "text" if what == "image" else "image"
        raise OptionError(f"`embed` {what}: {checkpoint.name} reads no {what}s: choose {other}")
    before = checkpoint.spec
    if before.embeds:
        return checkpoint
    if encoder.pool == "each":
        raise OptionError(
            f"`embed` {what}: {checkpoint.name} labels words and does not pool them: name the network below it"
        )
    spec = ModelSpec(
        EMBEDDINGS[tower],
        (encoder,),
        projection=before.projection,
        adapter=before.adapter,
        unit_length=before.embeds_unit,
    )
    table = slots(spec)
    fits = before.classes is None and what == "image"
    return replace(
        checkpoint,
        spec=spec,
        heads={tower: checkpoint.heads[tower]},
        units={tower: checkpoint.units[tower]} if tower in checkpoint.units else {},
        shared=checkpoint.shared & table.keys(),
        tensors={name: checkpoint.tensors[name] for name in table},
        labels=None,
        calibration=Calibration(ood=checkpoint.calibration.ood) if fits else NOT_CALIBRATED,
    )
