"""Opens the systems that `hydractl evaluate` is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from hydractl.cli import console
from hydractl.cli.material import DataOptions
from hydractl.data.classes import set_classes
from hydractl.errors import DataError, OptionError

if TYPE_CHECKING:
    import torch

    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.data.like import Modality
    from hydractl.data.ranks import InParallel, Ranks
    from hydractl.evaluation.networks import Networks
    from hydractl.evaluation.predictions import SavedPredictions
    from hydractl.evaluation.sets import EvaluationData
    from hydractl.evaluation.systems import SystemSpec


@dataclass(frozen=True)
class Running:
    """How networks are run."""

    device: torch.device
    dtype: torch.dtype | None
    compiled: bool
    batch_size: int
    workers: int
    seed: int
    reading: DataOptions
    ranks: Ranks
    in_parallel: InParallel
    quiet: bool


@dataclass(frozen=True, eq=False)
class OpenSystem:
    """A system whose checkpoints, or saved predictions, are open; no weights are read yet."""

    spec: SystemSpec
    checkpoints: tuple[Checkpoint, ...] = ()
    saved: SavedPredictions | None = None

    def describe(self) -> dict[str, Any]:
        """What the system is made of, for a report."""
        from hydractl.checkpoint.contents import identity

        networks = [
            {
                "reference": checkpoint.name,
                "sha256": identity(checkpoint),
                "heads": {
                    tower.name: {
                        "of": tower.heads,
                        "kept": [[list(kept) for kept in members] for members in checkpoint.heads[tower.name]],
                    }
                    for tower in checkpoint.spec.towers
                },
            }
            for checkpoint in self.checkpoints
        ]
        if self.saved is not None:
            networks = list(self.saved.about.get("networks", []))
            return {"model": {"reference": f"predictions:{self.saved.folder}"}, "networks": networks}
        dropout = {"dropout": asdict(self.spec.dropout)} if self.spec.dropout else {}
        identities = [str(network["sha256"]) for network in networks]
        model = {
            "reference": "+".join(self.spec.references),
            "sha256": identities[0] if len(networks) == 1 else sha256("".join(identities).encode()).hexdigest(),
        }
        return {"model": model, "networks": networks, **dropout}

    def load(self, data: EvaluationData, running: Running) -> Networks:
        """The system with its weights in memory."""
        from hydractl import inference
        from hydractl.data.preprocessing import preprocessor_from_json
        from hydractl.evaluation.dropout import with_dropout
        from hydractl.evaluation.networks import Networks
        from hydractl.fast import optimize

        first, dropout = self.checkpoints[0], self.spec.dropout
        models = []
        for checkpoint in self.checkpoints:
            model = inference.load_checkpoint(checkpoint, running.device, running.dtype)
            set_classes(model, running.reading.classes, running.reading.template, data.id)
            models.append(with_dropout(model, dropout, checkpoint.name) if dropout else model.optimize_for_inference())
        if running.compiled and dropout is None:
            # What is compiled would draw dropout's masks in a way of its own.
            for model in models:
                optimize.compile_model(model)
        return Networks(
            models,
            preprocessor_from_json(first.preprocessing, first.spec, first.name, first.config),
            data,
            running.batch_size,
            dropout,
            running.seed,
            running.workers,
            running.ranks,
            running.in_parallel,
            lambda text: console.note(f"note: {self.spec.name}: {text}", running.quiet),
        )


def open_systems(texts: Sequence[str], seeds: bool) -> list[OpenSystem]:
    """The systems of a command line, in order.

    Args:
        seeds: whether several may share a name.

    Raises:
        OptionError: a spelling that is none, or one name twice without `seeds`.
        CheckpointError: a checkpoint cannot be read.
        DataError: a folder of predictions cannot be read.
    """
    from hydractl.evaluation.networks import check_together
    from hydractl.evaluation.predictions import read_predictions
    from hydractl.evaluation.systems import parse_system
    from hydractl.families.open import read_checkpoint

    specs = [parse_system(text) for text in texts]
    for name, count in Counter(spec.name for spec in specs).items():
        if count > 1 and not seeds:
            raise OptionError(
                f"{count} systems are called {name}: give them names, as in first={texts[0]}, or pass --seeds where "
                "they are seeds of one system"
            )
    systems = []
    for spec in specs:
        if spec.predictions is not None:
            systems.append(OpenSystem(spec, saved=read_predictions(spec.predictions)))
            continue
        checkpoints = tuple(read_checkpoint(reference) for reference in spec.references)
        check_together(spec.name, checkpoints)
        systems.append(OpenSystem(spec, checkpoints))
    return systems


def modality_of(systems: Sequence[OpenSystem]) -> Modality | None:
    """What all of the systems take; None where all are saved predictions.

    Raises:
        OptionError: some take images and some take texts.
    """
    modalities: dict[str, Modality] = {
        system.spec.name: "text" if checkpoint.spec.task == "text-classification" else "image"
        for system in systems
        for checkpoint in system.checkpoints
    }
    if len(set(modalities.values())) > 1:
        listed = ", ".join(f"{name} takes {modality}s" for name, modality in modalities.items())
        raise OptionError(f"one evaluation is of images or of texts: {listed}")
    return next(iter(modalities.values()), None)


def check_same_samples(system: OpenSystem, data: EvaluationData) -> None:
    """Raises DataError when saved predictions are not of the data the other systems are evaluated on."""
    from hydractl.data.labels import match_labels
    from hydractl.data.streams import SampleStream

    if system.saved is None:
        return
    for key, samples in data.sets.items():
        if isinstance(samples, SampleStream):
            raise OptionError(
                f"{system.saved.folder}: saved predictions are compared with all data: leave --streaming out"
            )
        if (found := system.saved.samples(key)) != len(samples):
            raise DataError(
                f"{system.saved.folder}: has predictions for {found} samples of {key.path}, the data has "
                f"{len(samples)}: save them again on this data"
            )
        if not key.has_labels or system.saved.labels is None:
            continue
        labels = match_labels(samples, system.saved.labels, data.match).labels
        saved = system.saved.stored_labels(key)
        if labels is None or saved is None or (saved != labels).any():
            raise DataError(
                f"{system.saved.folder}: the labels saved for {key.path} are not those of the data, in order: "
                "save the predictions again on this data"
            )
