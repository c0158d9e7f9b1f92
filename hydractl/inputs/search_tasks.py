"""The data of a search: one task, or several tasks that share a network.

Source: [HE] E.3.2, where one vision tower is searched for the mean over zero-shot tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hydractl.circuit.material import Material
from hydractl.circuit.objective import SearchData
from hydractl.data.reading import DataLike, DataSetsLike, Reading
from hydractl.data.sources import split_sources
from hydractl.errors import OptionError
from hydractl.inputs.arguments import ModelLike, as_several
from hydractl.inputs.search_data import open_materials
from hydractl.options import Option
from hydractl.run_options import Compute
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.data.ranks import Ranks
    from hydractl.data.samples import Samples

TasksLike = Any  #: a sequence of NAME=ID,OOD, or a mapping from names to sources

#: The data of a task: its ID data, and its OOD sets if any.
Sources = tuple[DataLike, DataSetsLike | None]

TASKS = Option(
    "In place of `id_data` and `ood_data` a task with its own; repeat it for several, over which the mean is taken.",
    "Data",
    "NAME=ID[,OOD...]",
    repeated=True,
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
            raise OptionError(f"`task` {name}: is there already: give it another name")
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
        raise OptionError("`classes` are those of one task: leave them out; each `task` has those of its own data")
    return Tasks(open_materials(model, tasks, reading=reading, compute=compute, watch=watch))
