"""Opens the network and the data that scores and searches run on, and records what a result was made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.circuit.material import Material
from hydractl.data.reading import DEFAULT_TEMPLATE, OOD_SOURCE, SOURCE, DataLike, DataSetsLike, Modality, Reading
from hydractl.errors import OptionError
from hydractl.inputs.arguments import ModelLike, as_member
from hydractl.options import Option
from hydractl.run_options import Compute
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.data.samples import Samples


LABELLED = Option("Labelled in-distribution data.", heading="Data", metavar=SOURCE, remembered=False)
LabelledData = Annotated[DataLike, LABELLED]
OOD_SETS = Option(
    "Out-of-distribution data; repeat it for several sets, which count alike.",
    "Data",
    OOD_SOURCE,
    repeated=True,
    remembered=False,
)


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
    by_loss: bool = False,
) -> Material:
    """Opens the model and its data, and matches their labels.

    Args:
        by_loss: whether nothing but the task's loss reads labels, so that a model that embeds needs no targets.
        watch: receives notes on oddities of the data.

    Raises:
        OptionError: a model with several members, a zero-shot model without classes, or two OOD sets of one name.
        CheckpointError: the model cannot be read.
        DataError: the data cannot be read, or their labels are not the model's.
    """
    tasks = {"": (id_data, ood_data)}
    return open_materials(model, tasks, reading=reading, compute=compute, watch=watch, by_loss=by_loss)[""]


def open_materials(
    model: ModelLike,
    tasks: Mapping[str, tuple[DataLike, DataSetsLike | None]],
    *,
    reading: Reading,
    compute: Compute,
    watch: Watcher,
    by_loss: bool = False,
) -> dict[str, Material]:
    """Loads the model once, and opens the ID and OOD data of each task by name; see `open_material`."""
    from hydractl.data.labels import set_classes, unnamed, with_some_class
    from hydractl.data.number_labels import match_to_task
    from hydractl.data.open import open_samples
    from hydractl.data.ranks import local_device
    from hydractl.data.samples import missing_classes
    from hydractl.inference import load_to_compute

    checkpoint = as_member(model)
    modality = modality_of(checkpoint, reading)
    opened = {
        name: (open_samples(id_data, modality, reading, name="ID data"), open_ood_sets(ood, id_data, modality, reading))
        for name, (id_data, ood) in tasks.items()
    }
    for id_samples, ood_sets in opened.values():
        tell_oddities([id_samples, *ood_sets.values()], watch)
    network = load_to_compute(checkpoint, local_device(compute.torch_device), compute.torch_dtype)
    materials = {}
    for name, (samples, ood) in opened.items():
        set_classes(network, reading.classes, reading.template, samples)
        names = network.labels or unnamed(network.spec.classes)
        matched = match_to_task(samples, network.task, names, reading.match_labels)
        if matched.labels is None:
            matched = with_some_class(matched)
        for note in matched.notes[len(samples.notes) :]:
            watch.note(f"note: {note}")
        if not network.task.taught_only and (missing := missing_classes(matched)) is not None:
            watch.warn(missing)
        prompts = network.class_prompts or {}
        material = Material(checkpoint, network, matched, ood, reading=reading, labels=network.labels, prompts=prompts)
        targets = network.task.taught_only and not by_loss
        materials[name] = material.with_targets(compute.batch_size) if targets else material
    return materials


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

    sets: dict[str, Samples] = {}
    for source in [] if ood_data is None else parse_data_sets(ood_data, "OOD data"):
        if source.name in sets:
            raise OptionError(f"`ood_data` {source}: there is already a set called {source.name}: give it another name")
        refuse_same(source, parse_data(id_data))
        # An OOD set need not have the columns named for the ID data.
        sets[source.name] = open_samples(source, modality, reading, strict=False, skip_bad=skip_bad)
    return sets
