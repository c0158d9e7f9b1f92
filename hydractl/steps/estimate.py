"""What a build will take: time by a few batches that are read and run, disk by the shapes of what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydractl.steps.pipeline import Task
from hydractl.steps.plan import CIRCUITS, Asked
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.circuit.data import ScoringData
    from hydractl.data.like import Modality
    from hydractl.model.hydra import Hydra
    from hydractl.training.recipe import Recipe

POOLS = 2  # that `plan` draws from
LOGIT = 4  # bytes


@dataclass(frozen=True)
class Estimate:
    """What a step takes, as far as it can be foreseen."""

    seconds: float
    size: int

    def __str__(self) -> str:
        minutes, megabytes = self.seconds / 60, self.size / 2**20
        time = f"{minutes:.0f} min" if minutes >= 1.5 else f"{max(self.seconds, 1):.0f} s"
        return f"about {time}, {megabytes:.0f} MB" if megabytes >= 0.5 else f"about {time}"


def estimates(tasks: Sequence[Task], asked: Asked, watch: Watcher) -> list[Estimate]:
    """What each command of a build takes.

    Raises:
        CheckpointError, DataError: the network or the data cannot be read.
        OptionError: a network of several members.
    """
    foreseen = Foreseen.of(asked, watch)
    return [Estimate(foreseen.seconds(task), foreseen.disk(task)) for task in tasks]


@dataclass(frozen=True)
class Foreseen:
    """What is known before a build begins.

    Attributes:
        forward, reading: seconds that a sample takes to go through the network, and to be read.
        search: seconds of the searches, were they on whole parts.
        inside, outside: samples in each part of the ID data, and of all OOD sets together.
        measured: ID and OOD samples of the evaluation.
        train: samples to fine-tune on.
    """

    asked: Asked
    network: Checkpoint
    forward: float
    reading: float
    search: float
    inside: int
    outside: int
    measured: int
    train: int

    @classmethod
    def of(cls, asked: Asked, watch: Watcher) -> Foreseen:
        """Opens the network and the data, and times a few batches."""
        from hydractl.circuit.pace import reading_seconds, replay_seconds
        from hydractl.data.ranks import Ranks
        from hydractl.data.reading import Reading
        from hydractl.steps.inputs import DEFAULT_TEMPLATE
        from hydractl.steps.material import open_material

        (inside,), outside = _sets(asked, 1)
        how = Reading(asked.limit, None, DEFAULT_TEMPLATE, None, None, None, "name")
        material = open_material(asked.model.text, inside, outside or None, how, asked.device, asked.dtype, watch)
        network, data = material.checkpoint, material.scoring_data(asked.batch_size, Ranks())
        reading = reading_seconds(data, material.device) / (data.id_samples + data.ood_samples)
        forward = replay_seconds(material.model, data, data.id, ())
        search = _search(material.model, data, asked.search) if outside else 0.0
        measured = sum(_count(one, network, asked.limit) for sets in _sets(asked, 4) for one in sets)
        train = _count(asked.train_data, network, None) if asked.train_data else 0
        return cls(asked, network, forward, reading, search, data.id_samples, data.ood_samples, measured, train)

    def seconds(self, task: Task) -> float:
        """How long a command computes and reads."""
        both, members = self.inside + self.outside, self.asked.members
        if task.command == "extract-circuit":
            most: int = task.values["limit"]
            searched = min(self.inside, most) + min(self.outside, most * len(self.asked.ood_data))
            return (self.search / both + self.reading) * searched
        if task.command == "select":
            return both * (self.candidates * self.forward + self.reading)
        if task.command == "finetune":
            # As if teachers were of the network's size, and of one member each.
            passes = 3 + len(self.asked.teachers)
            return members * self.training_samples * (passes * self.forward + self.reading)
        if task.command == "calibrate":
            return self.inside * (self.forward * (members if task.needs else 1) + self.reading)
        return self.measured * ((members + 1) * self.forward + self.reading) if task.command == "evaluate" else 0.0

    def disk(self, task: Task) -> int:
        """Bytes that a command writes, what it needs meanwhile among them."""
        from hydractl.checkpoint.slots import slots

        sizes = {name: _bytes(tensor.shape, tensor.dtype.itemsize) for name, tensor in self.network.tensors.items()}
        whole = sum(sizes.values())
        attention = sum(sizes[name] for name, slot in slots(self.network.spec).items() if slot.is_attention)
        fused = whole + (self.asked.members - 1) * attention
        if task.command == "select":
            classes = self.network.spec.classes or 1
            return fused + self.candidates * (self.inside + self.outside) * classes * LOGIT
        if task.command == "finetune":
            return fused if task.values["joint"] else len(task.makes) * whole
        return {"fuse": fused, "calibrate": fused if task.needs else whole}.get(task.command, 0)

    @property
    def candidates(self) -> int:
        """How many networks a selection compares, at most."""
        circuits = len(CIRCUITS) if self.asked.ood_data else 0
        each = circuits * (1 + POOLS * self.asked.draws) + self.asked.random
        return 1 + len(self.asked.budgets.split(",")) * each * len(self.asked.trunks.split(","))

    @property
    def training_samples(self) -> int:
        """How many samples a member's training passes over, outliers among them."""
        from hydractl.training.optimizer import step_count
        from hydractl.training.outliers import outliers_of_a_step
        from hydractl.training.published import choose_recipe

        recipe: Recipe = choose_recipe(self.asked.recipe, self.asked.settings, {})
        beside = outliers_of_a_step(recipe) if self.asked.outliers else 0
        return step_count(recipe, self.train) * (recipe.batch + beside)


def _sets(asked: Asked, part: int) -> tuple[list[str], list[str]]:
    """The ID and the OOD sources of a part, as commands name them."""
    own, others = asked.inside(part), asked.outside(min(part, 3))
    return [f"{own.text}{own.suffix}"], [f"{other.text}{other.suffix}" for other in others]


def _count(source: str, network: Checkpoint, limit: int | None) -> int:
    from hydractl.data.columns import Columns
    from hydractl.data.open import open_samples

    modality: Modality = "text" if network.spec.task == "text-classification" else "image"
    return len(open_samples(source, modality, columns=Columns(strict=False), limit=limit))


def _search(model: Hydra, data: ScoringData, search: str) -> float:
    """The seconds of the searches, as each of them would say."""
    from hydractl.checkpoint.heads import member_heads
    from hydractl.circuit.cost import seconds_of
    from hydractl.circuit.modes import MODES
    from hydractl.circuit.objective import parse_objectives
    from hydractl.circuit.ranking import Ranking, Search
    from hydractl.circuit.restriction import heads_to_rank

    heads = tuple(member_heads(model.heads, 0))
    mode = next(mode for mode in MODES if mode.name == search)
    wanted = Search(heads, heads_to_rank("50%", len(heads)), mode())
    return seconds_of(model, data, wanted, [Ranking(name) for name in parse_objectives(",".join(CIRCUITS))]) or 0.0


def _bytes(shape: Sequence[int], item: int) -> int:
    from math import prod

    return prod(shape) * item
