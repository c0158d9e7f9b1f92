"""Times the parts of a build on a few samples, by the code that will run them, and a few steps of its training."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, member_heads
from hydractl.circuit.material import Material
from hydractl.inputs.limits import Limits
from hydractl.inputs.search_data import modality_of
from hydractl.pipeline.build_options import BuildOptions
from hydractl.watch import Advance, Log

if TYPE_CHECKING:
    from hydractl.selection.forward import CandidateNetworks

#: Samples of each set that are timed at most, and the seconds after which no more are timed.
TIMED, ENOUGH = 64, 1.0
EPOCHS = 10  # that training takes at most where its length is not given
STEPS = 3  # of the optimiser that are timed after a first one


@dataclass(frozen=True)
class Speed:
    """Seconds that each sample takes here if no other program computes."""

    read: float  # to be read and preprocessed
    candidate: float  # for a candidate of the selection
    member: float  # for a member in calibration and evaluation
    searched: float  # for a network of a search
    busy: float = 1.0  # how many times longer it takes because others do; 1 or more


def measure_speed(material: Material, dropped: Sequence[frozenset[Head]], batch_size: int, *, searches: bool) -> Speed:
    """Times reading, candidates, a member and a part of a round of a search on samples of every set.

    Args:
        dropped: what each candidate lacks of the heads.
        searches: whether a search may run.

    Raises:
        DataError: a sample cannot be read, ID samples have no labels, or a logit is not finite.
    """
    import numpy as np

    from hydractl.circuit.objective import prompt_batches
    from hydractl.selection.forward import CandidateNetworks

    prompts = prompt_batches(material.prompts, batch_size)
    networks = [CandidateNetworks(material.model, some, prompts) for some in (dropped, [frozenset[Head]()])]
    heads = _some_heads(material) if searches else []
    _seconds(_part(material, 1), networks, heads, batch_size)  # warms up
    count, spent, alone, waited = 1, np.zeros(4), 0.0, 0.0
    while count <= TIMED and spent.sum() < ENOUGH:
        part = _part(material, count)
        waits, *taken = _seconds(part, networks, heads, batch_size)
        count, spent, alone, waited = 2 * count, np.array(taken), alone + sum(taken[:2]), waited + waits
    read, candidate, member, searched = (spent / part.samples / [1, len(dropped), 1, 1 + len(heads)]).tolist()
    return Speed(read, candidate, member, searched, busy=max(waited / max(alone, 1e-6), 1.0))


def _some_heads(material: Material) -> list[Head]:
    """Returns the heads of the first, the middle and the last layer of each tower: a round's mean takes as long."""
    towers = material.model.spec.towers
    layers: dict[str, Sequence[int]] = {tower.name: (0, tower.layers // 2, tower.layers - 1) for tower in towers}
    return [head for head in member_heads(material.model.heads, 0) if head.layer in layers[head.tower]]


def _part(material: Material, count: int) -> Material:
    """Returns so many samples of each set, or all that it has."""
    inside, *outside = (one.draw(min(count, len(one)), 0) for one in (material.id, *material.ood.values()))
    return replace(material, id=inside, ood=dict(zip(material.ood, outside, strict=True)))


def _seconds(
    material: Material, networks: Sequence[CandidateNetworks], heads: Sequence[Head], batch_size: int
) -> list[float]:
    """Returns the seconds that pass meanwhile, and that the processor takes for each part.

    The parts are reading the samples and the candidates, during which the seconds pass, one network, and the search.
    """
    import torch

    from hydractl.circuit.search import ablate
    from hydractl.data.ranks import Ranks, batch_workers
    from hydractl.selection.answers import logits_of

    device, (candidates, alone) = material.device, networks
    workers = torch.get_num_threads() if device.type == "cpu" else 1
    whole = material.scoring_data(batch_size, Ranks())
    divided = material.scoring_data(max(1, min(batch_size, material.samples // workers)), Ranks())

    def answer_side_by_side() -> None:
        with batch_workers(device) as in_parallel:
            batches = [*divided.id, *divided.ood]
            deque(in_parallel(lambda batch: logits_of([alone], batch, device), batches), maxlen=0)

    # Processor time does not depend on what else runs: of this thread, which waits for no other, or of all workers.
    own, shared = time.thread_time, lambda: time.process_time() / workers
    start = time.perf_counter()
    read = _time(own, lambda: [*whole.id, *whole.ood])
    answered = _time(own, lambda: [logits_of([candidates], batch, device) for batch in (*whole.id, *whole.ood)])
    passed = time.perf_counter() - start
    _ = [*divided.id, *divided.ood]  # are kept in memory
    return [
        passed,
        read,
        answered,
        _time(shared, answer_side_by_side),
        _time(shared, lambda: ablate(material.model, [divided], heads)) if heads else 0.0,
    ]


def _time(clock: Callable[[], float], call: Callable[[], Any]) -> float:
    start = clock()
    call()
    return clock() - start


class _Clock(Log):
    """Remembers when a training began and when each of its steps ended."""

    def __init__(self) -> None:
        self.start, self.steps = time.perf_counter(), list[float]()

    @contextmanager
    def progress(self, what: str, total: float | None) -> Iterator[Advance]:
        yield lambda done, said=None: self.steps.append(time.perf_counter())


@dataclass(frozen=True)
class TrainingTime:
    """The time that training takes by its number of steps."""

    start: float  # seconds before the first step of a training
    step: float  # seconds of a step of the network
    trainings: int
    networks: float  # that train, by the cost of their steps
    most: int  # steps at most
    samples: int  # to train on
    steps: int | None = None  # that are given

    def seconds(self, steps: int) -> float:
        """Returns the time of all trainings."""
        return self.trainings * self.start + self.networks * steps * self.step

    def fitting(self, seconds: float | None) -> int:
        """Returns the steps that are given, or that fit the time."""
        if self.steps or seconds is None:
            return self.steps or self.most
        spare = seconds - self.trainings * self.start
        return min(max(int(spare / (self.networks * self.step)), 1), self.most)


def training_time(
    build: BuildOptions, network: Checkpoint, trial: float, networks: float, *, thin: bool
) -> TrainingTime:
    """Returns the time of training, from a few steps of the network on the training data.

    Args:
        trial: samples that may be trained on to measure it.
    """
    from hydractl.data.open import open_samples
    from hydractl.steps.finetune import Finetune
    from hydractl.training.optimizer import step_count
    from hydractl.training.request import Execution, Hyperparameters, TrainingSources

    recipe = Hyperparameters(build.learning.recipe, build.learning.settings).changed_recipe()
    exposed = bool(build.data.ood_data and recipe.outlier_weight)
    batch = int(max(min(trial / (1 + STEPS), recipe.batch, TIMED), 1))
    reading = replace(build.reading, classes=None, limit=build.train_samples or build.reading.limit)
    size = len(open_samples(build.data.train_data or "", modality_of(network, reading), reading))
    changes = [f"batch={batch}", f"steps={1 + STEPS}", "epochs=0", f"lr={recipe.lr[0]}"]
    trained = Finetune(
        [network],
        train_data=build.data.train_data or "",
        hyperparameters=Hyperparameters(build.learning.recipe, [*build.learning.settings, *changes]),
        sources=TrainingSources(outlier_data=build.data.ood_data if exposed else (), teacher=build.learning.teacher),
        reading=reading,
        execution=Execution(build.compute.device, build.precision),
    )
    clock = _Clock()
    trained.run(clock)
    first, *_, last = clock.steps
    step = (last - first) / STEPS
    return TrainingTime(
        start=max(first - clock.start - step, 0.0),
        step=max(step, 1e-6) * recipe.batch / batch,
        trainings=(build.choice.members if build.limits == Limits() else 1 + thin) * len(recipe.lr),
        networks=networks * len(recipe.lr),
        most=max(EPOCHS * size // recipe.batch, 1),
        samples=size,
        steps=step_count(recipe, size) if recipe.steps or recipe.epochs else None,
    )
