"""What scores and searches start from: a model of one member, ready to run, and data opened for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hydractl.cli.device import choose_device, choose_dtype
from hydractl.cli.options import DtypeName
from hydractl.data.classes import set_classes
from hydractl.errors import OptionError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.data.batches import CachedBatches
    from hydractl.data.like import Modality
    from hydractl.data.ranks import Ranks
    from hydractl.data.samples import Samples
    from hydractl.model.hydra import Hydra
    from hydractl.scoring.data import ScoringData


@dataclass(frozen=True)
class DataOptions:
    """The options that say how data are read."""

    limit: int | None
    classes: Path | None
    template: str
    image_column: str | None
    text_column: str | None
    label_column: str | None
    match_labels: Literal["name", "index"]


@dataclass(frozen=True, eq=False)
class Material:
    """A model of one member and the samples to run it on: labelled ID ones, OOD ones where asked for."""

    checkpoint: Checkpoint
    model: Hydra
    id: Samples
    ood: Samples | None

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def batches(self, samples: Samples, batch_size: int) -> CachedBatches:
        """The samples as the model's inputs, the same batches on every rank."""
        from hydractl.data.batches import CachedBatches, make_batches
        from hydractl.data.preprocessing import preprocessor_from_json

        files, spec, name = self.checkpoint.preprocessing, self.checkpoint.spec, self.checkpoint.name
        preprocessor = preprocessor_from_json(files, spec, name, self.checkpoint.config)
        return CachedBatches(make_batches(samples, preprocessor, batch_size))

    def scoring_data(self, batch_size: int, ranks: Ranks) -> ScoringData:
        """The samples as head scores and searches take them."""
        from hydractl.scoring.data import ScoringData

        ood = () if self.ood is None else self.batches(self.ood, batch_size)
        count = 0 if self.ood is None else len(self.ood)
        return ScoringData(self.batches(self.id, batch_size), len(self.id), ood, count, self.prompts(batch_size), ranks)

    def prompts(self, batch_size: int) -> list[dict[str, Tensor]]:
        """The class prompts of a zero-shot model, in batches; none of any other."""
        prompts = self.model.class_prompts or {}
        count = len(next(iter(prompts.values()), ()))
        return [
            {name: tensor[start : start + batch_size] for name, tensor in prompts.items()}
            for start in range(0, count, batch_size)
        ]

    def origin(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """What an artifact says of how it was made.

        Args:
            options: those that determine the result; None stands for one that was not used and is left out.
        """
        return origin_of(self.checkpoint, {"id": self.id} | ({"ood": self.ood} if self.ood else {}), options)

    def data_identity(self) -> dict[str, Any]:
        """What the results depend on besides the model and the options, as plain JSON."""
        used = {"ID data": self.id} | ({"OOD data": self.ood} if self.ood else {})
        classes = {"classes": list(self.model.labels or ())} if self.model.spec.task == "zero-shot" else {}
        return {name: samples.identity() for name, samples in used.items()} | classes


def origin_of(checkpoint: Checkpoint, used: Mapping[str, Samples], options: Mapping[str, Any]) -> dict[str, Any]:
    """What an artifact says of how it was made.

    Args:
        used: the samples that an evaluation shall refuse later, by what they were used as.
        options: those that determine the result; None stands for one that was not used and is left out.
    """
    from hydractl.checkpoint.contents import identity
    from hydractl.data.seen import sketch

    search_data = {name: sketch(samples.content_hashes()) for name, samples in used.items()}
    return {
        "model": {
            "reference": checkpoint.name,
            "sha256": identity(checkpoint),
            "towers": {tower.name: [tower.layers, tower.heads] for tower in checkpoint.spec.towers},
        },
        "options": {name: value for name, value in options.items() if value is not None},
        **({"search_data": search_data} if search_data else {}),
        "versions": {library: version(library) for library in ("hydractl", "torch")},
    }


def open_single(reference: str) -> Checkpoint:
    """A model of one member.

    Raises:
        OptionError: it has several.
        CheckpointError: it cannot be read.
    """
    from hydractl.families.open import read_checkpoint

    checkpoint = read_checkpoint(reference)
    if checkpoint.members > 1:
        raise OptionError(f"{reference}: has {checkpoint.members} members: name one network")
    return checkpoint


def open_material(
    reference: str, id_data: str, ood_data: str | None, options: DataOptions, device: str, dtype: DtypeName | None
) -> Material:
    """The model and its data, labels matched.

    Raises:
        OptionError: a model of several members, or a zero-shot one without classes.
        CheckpointError: the model cannot be read.
        DataError: the data cannot, or their labels are not the model's.
    """
    from hydractl.data.columns import Columns
    from hydractl.data.labels import match_labels
    from hydractl.data.open import open_samples
    from hydractl.data.ranks import local_device
    from hydractl.inference import load_checkpoint

    checkpoint = open_single(reference)
    columns = Columns(options.image_column, options.text_column, options.label_column)
    modality: Modality = "text" if checkpoint.spec.task == "text-classification" else "image"
    samples = open_samples(id_data, modality, columns=columns, limit=options.limit)
    ood = None
    if ood_data is not None:
        # A column named for the ID data need not be there in the OOD set.
        ood = open_samples(ood_data, modality, columns=replace(columns, strict=False), limit=options.limit)
    model = load_checkpoint(checkpoint, local_device(choose_device(device)), choose_dtype(dtype))
    set_classes(model, options.classes, options.template, samples)
    if model.labels is None and options.match_labels == "name":
        raise OptionError(f"{reference}: its classes have no names: pass --match-labels index")
    labels = model.labels or tuple(f"LABEL_{i}" for i in range(model.spec.classes or 0))
    return Material(checkpoint, model, match_labels(samples, labels, options.match_labels), ood)
