"""What a build will take: time by its multiply-adds and one timed batch, disk by the shapes of what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydractl.steps.pipeline import Task
from hydractl.steps.plan import CIRCUITS, Asked

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.data.like import Modality
    from hydractl.training.recipe import Recipe

POOLS = 2  # that `plan` draws from
LOGIT = 4  # bytes


@dataclass(frozen=True)
class Estimate:
    """What a step takes, as far as it can be foreseen: multiply-adds at the speed of one batch of the network."""

    seconds: float
    size: int

    def __str__(self) -> str:
        minutes, megabytes = self.seconds / 60, self.size / 2**20
        time = f"{minutes:.0f} min" if minutes >= 1.5 else f"{max(self.seconds, 1):.0f} s"
        return f"about {time}, {megabytes:.0f} MB" if megabytes >= 0.5 else f"about {time}"


def estimates(tasks: Sequence[Task], asked: Asked) -> list[Estimate]:
    """What each command of a build takes.

    Raises:
        CheckpointError, DataError: the network or the data cannot be read.
    """
    foreseen = Foreseen.of(asked)
    return [Estimate(foreseen.work(task) * foreseen.pace, foreseen.disk(task)) for task in tasks]


@dataclass(frozen=True)
class Foreseen:
    """What is known before a build begins.

    Attributes:
        pace: seconds for a multiply-add of the network.
        forward: multiply-adds of a sample.
        inside, outside: samples in each part of the ID data, and of all OOD sets together.
        measured: ID and OOD samples of the evaluation.
        train: samples to fine-tune on.
        search: multiply-adds of the searches for one sample.
    """

    asked: Asked
    network: Checkpoint
    pace: float
    forward: int
    inside: int
    outside: int
    measured: int
    train: int
    search: float

    @classmethod
    def of(cls, asked: Asked) -> Foreseen:
        """Opens the network and the data, and times one batch."""
        from hydractl.evaluation.latency import published
        from hydractl.steps.inputs import as_member

        network = as_member(asked.model.text)
        inside, outside = (sum(_count(one, network, asked.limit) for one in sets) for sets in _sets(asked, 1))
        measured = sum(_count(one, network, asked.limit) for sets in _sets(asked, 4) for one in sets)
        train = _count(asked.train_data, network, None) if asked.train_data else 0
        search = _search(network) if asked.ood_data else 0.0
        pace = _pace(network, asked)
        return cls(asked, network, pace, published(network), inside, outside, measured, train, search)

    def work(self, task: Task) -> float:
        """Multiply-adds of a command."""
        both, members = self.inside + self.outside, self.asked.members
        if task.command == "extract-circuit":
            most: int = task.values["limit"]
            return self.search * (min(self.inside, most) + min(self.outside, most * len(self.asked.ood_data)))
        if task.command == "select":
            return self.candidates * self.forward * both
        if task.command == "finetune":
            return 3 * members * self.forward * self.training_samples
        if task.command == "calibrate":
            return self.forward * self.inside * (members if task.needs else 1)
        return (members + 1) * self.forward * self.measured if task.command == "evaluate" else 0.0

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
            return len(task.makes) * whole
        return {"fuse": fused, "calibrate": fused if task.needs else whole}.get(task.command, 0)

    @property
    def candidates(self) -> int:
        """How many networks a selection compares, at most."""
        circuits = len(CIRCUITS) if self.asked.ood_data else 0
        each = circuits * (1 + POOLS * self.asked.draws) if circuits else max(self.asked.draws, 1)
        trunks = len(self.asked.trunks.split(",")) if circuits else 1
        return 1 + len(self.asked.budgets.split(",")) * each * trunks

    @property
    def training_samples(self) -> int:
        """How many samples a member's training passes over."""
        from hydractl.training.optimizer import step_count
        from hydractl.training.published import choose_recipe

        recipe: Recipe = choose_recipe(self.asked.recipe, self.asked.settings, {})
        return step_count(recipe, self.train) * recipe.batch


def _sets(asked: Asked, part: int) -> tuple[list[str], list[str]]:
    """The ID and the OOD sources of a part, as commands name them."""
    own, others = asked.inside(part), asked.outside(min(part, 3))
    return [f"{own.text}{own.suffix}"], [f"{other.text}{other.suffix}" for other in others]


def _count(source: str, network: Checkpoint, limit: int | None) -> int:
    from hydractl.data.columns import Columns
    from hydractl.data.open import open_samples

    modality: Modality = "text" if network.spec.task == "text-classification" else "image"
    return len(open_samples(source, modality, columns=Columns(strict=False), limit=limit))


def _search(network: Checkpoint) -> float:
    from hydractl.checkpoint.heads import member_heads
    from hydractl.circuit.cost import search_cost
    from hydractl.circuit.modes import EXACT
    from hydractl.circuit.ranking import Search
    from hydractl.circuit.restriction import heads_to_rank

    heads = tuple(member_heads(network.heads, 0))
    wanted = Search(heads, heads_to_rank("50%", len(heads)), EXACT)
    return len(CIRCUITS) * search_cost(network.spec, network.heads, wanted, 0)


def _pace(network: Checkpoint, asked: Asked) -> float:
    """Seconds for a multiply-add, by the second of two batches."""
    import time

    import torch

    from hydractl.evaluation.latency import BATCH, TOKENS
    from hydractl.evaluation.timed import open_timed
    from hydractl.steps.compute import choose_device

    system = open_timed({"network": [network]}, choose_device(asked.device), torch.float32)["network"]
    run = system.on_noise(min(asked.batch_size, BATCH), TOKENS)
    run()
    begun = time.perf_counter()
    run()
    return (time.perf_counter() - begun) / (min(asked.batch_size, BATCH) * system.weight.performed)


def _bytes(shape: Sequence[int], item: int) -> int:
    from math import prod

    return prod(shape) * item
