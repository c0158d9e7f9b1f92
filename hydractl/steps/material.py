"""A network of one member, ready to run, and the samples that scores and searches run it on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.circuit.objective import ScoringData, prompt_batches
from hydractl.data.reading import DEFAULT_TEMPLATE, OOD_SOURCE, SOURCE, DataLike, DataSetsLike, Modality, Reading
from hydractl.errors import OptionError
from hydractl.options import Option
from hydractl.steps.compute import Compute
from hydractl.steps.inputs import ModelLike, as_member
from hydractl.watch import Watcher

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hydractl.data.batching import CachedBatches
    from hydractl.data.ranks import Ranks
    from hydractl.data.samples import Samples
    from hydractl.model.hydra import Hydra


LABELLED = Option("Labelled in-distribution data.", heading="Data", metavar=SOURCE, remembered=False)
LabelledData = Annotated[DataLike, LABELLED]
OOD_SETS = Option(
    "Out-of-distribution data; repeat it for several sets, which count alike.",
    "Data",
    OOD_SOURCE,
    repeated=True,
    remembered=False,
)


@dataclass(frozen=True, eq=False)
class Material:
    """A network of one member and the samples to run it on: labelled ID ones, and OOD sets by name, perhaps none.

    `labels` and `prompts` are those of the ID data: a zero-shot network may get other classes later.
    """

    checkpoint: Checkpoint
    model: Hydra
    id: Samples
    ood: Mapping[str, Samples]
    reading: Reading
    labels: tuple[str, ...] | None
    prompts: Mapping[str, Tensor]

    def scoring_data(
        self, batch_size: int, ranks: Ranks, share: int = 1, advance: Callable[[float], None] = lambda samples: None
    ) -> ScoringData:
        """Returns the samples as head scores and searches take them.

        Args:
            share: the number of data sets that share the memory for cached batches.
            advance: receives the number of samples of each batch that is read.
        """
        from hydractl.data.batching import JoinedBatches

        sizes = tuple(map(len, self.ood.values()))
        inside = JoinedBatches([self.batches(self.id, batch_size, share)], [len(self.id)], advance)
        sets = [self.batches(samples, batch_size, share) for samples in self.ood.values()]
        outside = JoinedBatches(sets, sizes, advance)
        prompts = prompt_batches(self.prompts, batch_size)
        return ScoringData(inside, len(self.id), outside, sum(sizes), prompts=prompts, ranks=ranks, ood_sets=sizes)

    @property
    def samples(self) -> int:
        """The number of samples, ID and OOD."""
        return len(self.id) + sum(map(len, self.ood.values()))

    def batches(self, samples: Samples, batch_size: int, share: int = 1) -> CachedBatches:
        """Returns the samples as the network's inputs, the same batches on every rank."""
        from hydractl.data.batching import CACHED_BYTES, CachedBatches, make_batches
        from hydractl.data.preprocess import preprocessor_from_json

        files, spec, name = self.checkpoint.preprocessing, self.checkpoint.spec, self.checkpoint.name
        preprocessor = preprocessor_from_json(files, spec, name, self.checkpoint.config)
        return CachedBatches(make_batches(samples, preprocessor, batch_size), CACHED_BYTES // share)

    @property
    def template(self) -> str | None:
        """The prompt of a zero-shot model's classes; None for other models."""
        return self.reading.template if self.model.spec.prompted else None

    @property
    def device(self) -> torch.device:
        """The device that the network computes on."""
        return next(self.model.parameters()).device

    def used(self, inside: str, outside: str) -> dict[str, Samples]:
        """Returns all samples by use; several OOD sets have their own names behind it.

        The name of a single set does not matter: no result depends on it.
        """
        alone = len(self.ood) == 1
        return {inside: self.id} | {
            outside if alone else f"{outside} {name}": samples for name, samples in self.ood.items()
        }

    def data_identity(self) -> dict[str, Any]:
        """Returns the data that results depend on besides the model and the options, as plain JSON."""
        classes = {"classes": list(self.labels or ())} if self.model.spec.prompted else {}
        return {name: samples.identity() for name, samples in self.used("ID data", "OOD data").items()} | classes


def origin_of(
    checkpoint: Checkpoint, options: Mapping[str, Any], used: Mapping[str, Samples] = MappingProxyType({})
) -> dict[str, Any]:
    """Returns the record in an artifact of how it was made.

    Args:
        options: those that determine the result; None is left out.
        used: the samples by their use; an evaluation refuses them later.
    """
    search_data = {name: samples.sketch() for name, samples in used.items()}
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


def open_material(
    model: ModelLike,
    id_data: DataLike,
    ood_data: DataSetsLike | None,
    *,
    reading: Reading,
    compute: Compute,
    watch: Watcher,
) -> Material:
    """Opens the model and its data, and matches their labels.

    Args:
        watch: receives notes on oddities of the data.

    Raises:
        OptionError: a model with several members, a zero-shot model without classes, or two OOD sets of one name.
        CheckpointError: the model cannot be read.
        DataError: the data cannot be read, or their labels are not the model's.
    """
    return open_materials(model, {"": (id_data, ood_data)}, reading=reading, compute=compute, watch=watch)[""]


def open_materials(
    model: ModelLike,
    tasks: Mapping[str, tuple[DataLike, DataSetsLike | None]],
    *,
    reading: Reading,
    compute: Compute,
    watch: Watcher,
) -> dict[str, Material]:
    """Loads the model once, and opens the ID and OOD data of each task by name; see `open_material`."""
    from hydractl.data.labels import match_labels, set_classes, unnamed
    from hydractl.data.open import open_samples
    from hydractl.data.ranks import local_device
    from hydractl.inference import load_to_compute

    checkpoint = as_member(model)
    modality = modality_of(checkpoint, reading)
    opened = {
        name: (open_samples(id_data, modality, reading, name="ID data"), open_ood_sets(ood, id_data, modality, reading))
        for name, (id_data, ood) in tasks.items()
    }
    for inside, outside in opened.values():
        tell_oddities([inside, *outside.values()], watch)
    network = load_to_compute(checkpoint, local_device(compute.torch_device), compute.torch_dtype)
    found = {}
    for name, (samples, ood) in opened.items():
        set_classes(network, reading.classes, reading.template, samples)
        matched = match_labels(samples, network.labels or unnamed(network.spec.classes), reading.match_labels)
        for note in matched.notes[len(samples.notes) :]:
            watch.note(f"note: {note}")
        prompts = network.class_prompts or {}
        found[name] = Material(
            checkpoint, network, matched, ood, reading=reading, labels=network.labels, prompts=prompts
        )
    return found


def modality_of(checkpoint: Checkpoint, reading: Reading) -> Modality:
    """Returns the kind of data that a network classifies; raises OptionError for a template of no use to it."""
    if not checkpoint.spec.prompted and reading.template != DEFAULT_TEMPLATE:
        raise OptionError(f"`template` {reading.template}: the classes of {checkpoint.name} are fixed: leave it out")
    return checkpoint.spec.modality


def tell_oddities(opened: Iterable[Samples], watch: Watcher) -> None:
    """Notes what is odd about some data sets."""
    for samples in opened:
        for note in samples.notes:
            watch.note(f"note: {note}")


def open_ood_sets(
    ood_data: DataSetsLike | None, id_data: DataLike, modality: Modality, reading: Reading, *, skip_bad: bool = False
) -> dict[str, Samples]:
    """Returns the OOD sets by name; raises OptionError if one is the ID data."""
    from hydractl.data.open import open_samples
    from hydractl.data.sources import parse_data, parse_data_sets, refuse_same

    found: dict[str, Samples] = {}
    for source in [] if ood_data is None else parse_data_sets(ood_data, "OOD data"):
        if source.name in found:
            raise OptionError(f"`ood_data` {source}: there is already a set called {source.name}: give it another name")
        refuse_same(source, parse_data(id_data))
        # An OOD set need not have the columns named for the ID data.
        found[source.name] = open_samples(source, modality, reading, strict=False, skip_bad=skip_bad)
    return found
