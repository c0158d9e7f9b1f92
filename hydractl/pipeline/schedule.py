"""The plan of a build for a given time, from the time that one batch takes on this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import Any, TypeVar

from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import OptionError
from hydractl.inputs.limits import Limits
from hydractl.inputs.search_data import modality_of, open_material
from hydractl.options import changed, flat
from hydractl.pipeline.build_options import BuildOptions
from hydractl.watch import LOG, Advance, Log, Watcher

B = TypeVar("B", bound=BuildOptions)
NO_CIRCUITS = "none"
#: Samples of each set in a step, and draws from all heads per budget; from the most to the least.
SAMPLES = ((None, 12), (5000, 12), (2000, 12), (1000, 12), (1000, 6), (500, 6), (200, 4))
#: Searches, and samples of each set to search on.
SEARCHES = (("exact", 500), ("shortlist", 500), ("shortlist", 200))
DRAWS = 4  # from the first heads of each circuit, per budget
OBJECTIVES = 3
SHORTLIST = 16
REPLAYED = 0.45  # of a forward pass: a search runs only the layers behind a candidate
OVERHEAD = 30.0  # seconds: to start, to resample results, to draw the report
UNITS = {"s": 1, "m": 60, "h": 3600}
TIMED = 32  # samples of the batch that is timed
TRAINING = 0.5  # share of the time for training whose length is not given
EPOCHS = 10  # that training takes at most where its length is not given
#: Optimiser steps that are timed after a first one, and the most of the time that this may take.
STEPS, TRIAL = 3, 0.05


def seconds_of(text: str) -> float | None:
    """Returns a time such as 30m in seconds; None for `none`.

    Raises:
        OptionError: not a time.
    """
    if text == "none":
        return None
    found = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([smh])", text)
    if found is None:
        raise OptionError(f"`time` {text}: expected a time such as 90s, 30m or 2h, or none for no limit")
    return float(found[1]) * UNITS[found[2]]


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


@dataclass(frozen=True)
class Sizes:
    """The sizes that a build's time depends on."""

    heads: int  # of the network
    members: float  # that are fused, and other networks that are calibrated and evaluated, by their cost
    budgets: int  # that candidates are drawn for
    inside: int  # ID samples of a step; each step has a part of them
    outside: Sequence[int]  # samples of each OOD set for a step
    sample: float  # seconds that the network takes for one
    training: TrainingTime | None = None

    def seconds(self, plan: Mapping[str, Any]) -> float:
        """Returns the time of a plan; rather more than less."""
        circuits = plan["search"] != NO_CIRCUITS
        drawn = plan["random"] + (OBJECTIVES * (1 + 2 * plan["draws"]) if circuits else 0)
        # The candidates are measured in the selection; the network and the members in the calibration and evaluation.
        passes = (1 + self.budgets * drawn + 2 * (1 + self.members)) * self._samples(plan["limit"])
        if circuits:
            candidates = self._candidates(plan["search"])
            passes += REPLAYED * OBJECTIVES * candidates * self._samples(plan["search_samples"])
        steps = plan.get("steps", 0)
        return OVERHEAD + passes * self.sample + (self.training.seconds(steps) if self.training and steps else 0)

    def _samples(self, limit: int | None) -> int:
        return sum(size if limit is None else min(size, limit) for size in (self.inside, *self.outside))

    def _candidates(self, search: str) -> int:
        rounds = range(self.heads // 2)
        if search == "shortlist":
            return self.heads + len(rounds) * SHORTLIST
        return sum(self.heads - done for done in rounds)


def fitting(sizes: Sizes, given: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
    """Returns the richest plan that fits: samples and draws first, then circuits, which take the most time.

    Args:
        given: values that stand, by option.
        seconds: the time; None takes the richest.
    """

    def plan(samples: tuple[int | None, int], search: tuple[str, int]) -> dict[str, Any]:
        names = ("limit", "random", "search", "search_samples", "draws")
        found = dict(zip(names, (*samples, *search, DRAWS), strict=True))
        return found | {name: value for name, value in given.items() if value is not None}

    training, left = sizes.training, seconds
    if training is not None and seconds is not None:
        left = seconds - (training.seconds(training.steps) if training.steps else TRAINING * seconds)

    def fits(found: Mapping[str, Any], share: float) -> bool:
        return left is None or sizes.seconds(found) <= share * left

    least = (NO_CIRCUITS, SEARCHES[-1][1])
    samples = next((one for one in SAMPLES if fits(plan(one, least), 0.5)), SAMPLES[-1])
    searches = SEARCHES if sizes.outside else ()
    search = next((one for one in searches if fits(plan(samples, one), 1.0)), least)
    # What a search leaves of the time goes to more samples and draws.
    found = plan(next((one for one in SAMPLES if fits(plan(one, search), 1.0)), SAMPLES[-1]), search)
    if training is None:
        return found
    return found | {"steps": training.fitting(None if seconds is None else seconds - sizes.seconds(found))}


def scheduled(build: B, network: Checkpoint, limits: Limits, thin: bool, watch: Watcher) -> B:
    """Returns the build with a search, draws, samples and steps that fit its time, and prints what it does.

    Args:
        thin: whether members lose MLP units, so that the network trains too.

    Raises:
        DataError: data cannot be read.
        OptionError: see `seconds_of`.
    """
    seconds = seconds_of(build.time)
    given = {name: flat(build)[name] for name in ("search", "search_samples", "draws", "random")}
    sizes = _sizes(build, network, limits, thin, seconds=seconds)
    found = fitting(sizes, given | {"limit": build.reading.limit}, seconds)
    search, limit, steps = found["search"], found["limit"], found.get("steps")
    parts = [
        *(["no circuits"] if search == NO_CIRCUITS and not thin else []),
        *([f"circuits by {search} search on {found['search_samples']} samples"] if search != NO_CIRCUITS else []),
        *([f"{found['random']} random draws per budget"] if found["random"] else []),
        "all samples" if limit is None else f"at most {limit} samples of each set",
        *([f"{steps} steps of training"] if steps else []),
    ]
    takes = sizes.seconds(found)
    over = "" if seconds is None or takes <= seconds else ", longer than it may: lower what is given"
    watch.note(f"note: the plan takes about {_shown(takes)}: {', '.join(parts)}; `time` changes it{over}")
    return changed(build, _as_options(build, found, sizes))


def _shown(seconds: float) -> str:
    """Returns a time as people read it."""
    minutes = max(round(seconds / 60), 1)
    return f"{minutes} minute{'s' if minutes > 1 else ''}"


def _as_options(build: BuildOptions, found: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Returns a plan by the names of options; the steps of training become a setting of its recipe."""
    options = {name: value for name, value in found.items() if name != "steps"}
    if sizes.training is None:
        return options
    if build.reading.limit is None and build.train_samples is None and found["limit"] is not None:
        options["train_samples"] = sizes.training.samples  # the limit is of the other steps
    if not sizes.training.steps:
        options["settings"] = [*build.learning.settings, f"steps={found['steps']}"]
    return options


def _sizes(build: BuildOptions, network: Checkpoint, limits: Limits, thin: bool, seconds: float | None) -> Sizes:
    """Returns the sizes of a build, and the time that a sample and a step of training take here."""
    reading = replace(build.reading, limit=None)
    ood_data = [*build.data.ood_data] or None
    material = open_material(network, build.data.id_data, ood_data, reading=reading, compute=build.compute, watch=LOG)
    samples = list(islice(material.id.inputs, TIMED))
    material.model.predict(samples[:2], build.compute.batch_size)  # warms up
    start = time.perf_counter()
    material.model.predict(samples, build.compute.batch_size)
    sample = (time.perf_counter() - start) / len(samples)
    fused = min(limits.budget_macs or build.choice.members, build.choice.members)
    trial = inf if seconds is None else TRIAL * seconds / (4 * sample)  # backwards takes about two passes more
    return Sizes(
        heads=sum(tower.layers * tower.heads for tower in network.spec.towers),
        members=fused + thin,
        budgets=len(build.choice.budgets.split(",")),
        inside=len(material.id) // (3 if build.data.eval_data else 4),
        outside=[len(one) // (2 if build.data.eval_ood_data else 3) for one in material.ood.values()],
        sample=sample,
        training=None
        if build.data.train_data is None
        else _training_time(build, network, trial, fused + thin, thin=thin),
    )


def _training_time(
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
