"""Opens the network and the data of a search: one task, or several tasks that share a network.

Source: [HE] E.3.2, where one vision tower is searched for the mean over zero-shot tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.circuit.objective import Material, SearchData
from hydractl.data.reading import (
    DEFAULT_TEMPLATE,
    OOD_SOURCE,
    SOURCE,
    DataLike,
    DataSetsLike,
    Modality,
    Reading,
    split_sources,
)
from hydractl.errors import OptionError
from hydractl.inputs.models import ModelLike, as_member, as_several
from hydractl.options import Option
from hydractl.run_options import Compute
from hydractl.watch import Watcher, tell

if TYPE_CHECKING:
    from hydractl.data.ranks import Ranks
    from hydractl.data.samples import Samples

LABELLED = Option("Labelled in-distribution data.", heading="Data", metavar=SOURCE, remembered=False)
LabelledData = Annotated[DataLike, LABELLED]
OOD_SETS = Option(
    "Out-of-distribution data; repeat it for several sets, which count equally.",
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
        tell(watch, matched.notes[len(samples.notes) :])
        if not network.task.taught_only and (missing := missing_classes(matched)) is not None:
            watch.warn(missing)
        prompts = network.class_prompts or {}
        material = Material(checkpoint, network, matched, ood, reading=reading, labels=network.labels, prompts=prompts)
        targets = network.task.taught_only and not by_loss
        materials[name] = material.with_targets(compute.batch_size) if targets else material
    return materials


def modality_of(checkpoint: Checkpoint, reading: Reading) -> Modality:
    """Returns the kind of data that a network classifies; raises OptionError for a template of no use to it."""
    from hydractl.tasks.all_tasks import find_task

    template, task = reading.template, find_task(checkpoint.spec.task)
    if template != DEFAULT_TEMPLATE and task.template(template) is None:
        raise OptionError(f"`template` {template}: the classes of {checkpoint.name} are fixed: leave it out")
    return checkpoint.spec.modality


def tell_oddities(opened: Iterable[Samples], watch: Watcher) -> None:
    """Notes what is odd about some data sets."""
    for samples in opened:
        tell(watch, samples.notes)


def open_ood_sets(
    ood_data: DataSetsLike | None, id_data: DataLike, modality: Modality, reading: Reading, *, skip_bad: bool = False
) -> dict[str, Samples]:
    """Returns the OOD sets by name; raises OptionError if one is the ID data."""
    from hydractl.data.open import open_samples
    from hydractl.data.reading import parse_data, parse_data_sets, refuse_same

    sets: dict[str, Samples] = {}
    for source in [] if ood_data is None else parse_data_sets(ood_data, "OOD data"):
        if source.name in sets:
            raise OptionError(f"`ood_data` {source}: there is already a set called {source.name}: give it another name")
        refuse_same(source, parse_data(id_data))
        # An OOD set need not have the columns named for the ID data.
        sets[source.name] = open_samples(source, modality, reading, strict=False, skip_bad=skip_bad)
    return sets


TasksLike = Any  #: a sequence of NAME=ID,OOD, or a mapping from names to sources

#: The data of a task: its ID data, and its OOD sets if any.
Sources = tuple[DataLike, DataSetsLike | None]

TASKS = Option(
    "A task with its own ID and OOD data, in place of `id_data` and `ood_data`; repeat it to average over several.",
    "Data",
    "NAME=ID[,OOD...]",
    repeated=True,
    rare=True,
)


@dataclass(frozen=True, eq=False)
class Tasks:
    """A network and the data of each task by its name, which is empty if no task was named."""

    materials: Mapping[str, Material]

    @property
    def names(self) -> list[str] | None:
        """The names of the tasks; None for the one without a name."""
        return [*self.materials] if all(self.materials) else None

    @property
    def first(self) -> Material:
        """The first task's data, with the network that all tasks share."""
        return next(iter(self.materials.values()))

    def scoring_data(self, batch_size: int, ranks: Ranks) -> SearchData:
        """Returns the samples in the form that a search reads."""
        materials = self.materials.values()
        return [material.scoring_data(batch_size, ranks, share=len(materials)) for material in materials]

    def used(self) -> dict[str, Samples]:
        """Returns all samples by what they were used as."""
        return _by_task({name: material.used("id", "ood") for name, material in self.materials.items()})

    def data_identity(self) -> dict[str, Any]:
        """Returns everything that results depend on besides the model and the options, as plain JSON."""
        return _by_task({name: material.data_identity() for name, material in self.materials.items()})


def _by_task(by_task: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        f"{task} {what}" if task else what: value for task, values in by_task.items() for what, value in values.items()
    }


def parse_tasks(tasks: TasksLike | None, id_data: DataLike | None, ood_data: DataSetsLike | None) -> dict[str, Sources]:
    """Returns the ID and OOD data of each task by name; the name is empty for `id_data` and `ood_data`.

    Raises:
        OptionError: neither kind of option, both, a task without a name or data, or two of one name.
    """
    if tasks is None:
        if id_data is None:
            raise OptionError("`id_data` is missing: name labelled data, or a `task`")
        return {"": (id_data, ood_data)}
    if id_data is not None or ood_data is not None:
        raise OptionError("a `task` names its own data: leave `id_data` and `ood_data` out")
    by_name: dict[str, Sources] = {}
    pairs = tasks.items() if isinstance(tasks, Mapping) else map(_named, as_several(tasks))
    for name, sources in pairs:
        id_source, *ood_sources = as_several(sources)
        if not name or not id_source:
            raise OptionError(f"`task` {name}: expected NAME=ID,OOD as in pets=data/pets:test,data/noise")
        if name in by_name:
            raise OptionError(f"`task` {name}: there is already a task of this name: give it another one")
        by_name[name] = (id_source, ood_sources or None)
    return by_name


def _named(text: str) -> tuple[str, list[str]]:
    name, _, sources = text.partition("=")
    return name, split_sources(sources)


def open_tasks(
    model: ModelLike, tasks: Mapping[str, Sources], reading: Reading, compute: Compute, watch: Watcher
) -> Tasks:
    """Returns the model and the data of each task, labels matched.

    Raises:
        OptionError: a model of several members, a zero-shot one without classes, or classes named for several tasks.
        CheckpointError: the model cannot be read.
        DataError: data cannot be read, or their labels are not the model's.
    """
    if reading.classes is not None and len(tasks) > 1:
        raise OptionError("`classes` fits one task: leave it out, since each `task` has the classes of its own data")
    return Tasks(open_materials(model, tasks, reading=reading, compute=compute, watch=watch))
