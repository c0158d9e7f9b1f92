"""The plan of a build for a given time, from the time that its parts take on this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeVar

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import member_heads
from hydractl.errors import OptionError
from hydractl.inputs.limits import Limits
from hydractl.inputs.search_data import modality_of, open_material, open_ood_sets
from hydractl.options import flat, with_options
from hydractl.pipeline.build_options import BuildOptions
from hydractl.pipeline.trial import Speed, TrainingTime, measure_speed, training_time
from hydractl.selection.candidates import Sources, candidate_set, counts
from hydractl.watch import LOG, Watcher

B = TypeVar("B", bound=BuildOptions)
NO_CIRCUITS = "none"
#: Samples of each set in a step, and draws from all heads per budget; from the most to the least.
SAMPLES = ((None, 12), (5000, 12), (2000, 12), (1000, 12), (1000, 6), (500, 6), (200, 4))
#: Searches, and samples of each set to search on.
SEARCHES = (("exact", 500), ("shortlist", 500), ("shortlist", 200))
DRAWS = 4  # from the first heads of each circuit, per budget
OBJECTIVES = 3
SHORTLIST = 16
#: Seconds on an idle processor: to start, to fit scores to few samples, and to draw the report; for each sample and
#: number of all layers' features, to fit scores; for each sample and system, to resample results.
OVERHEAD, FIT, RESAMPLED = 12.0, 4e-7, 5e-4
UNITS = {"s": 1, "m": 60, "h": 3600}
TRAINING = 0.5  # share of the time for training whose length is not given
TRIAL = 0.05  # of the time that timing steps of training may take


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


@dataclass(frozen=True)
class Sizes:
    """The sizes that a build's time depends on."""

    heads: int  # of the network
    features: int  # numbers of all layers that OOD scores read
    members: float  # that are fused, and other networks that are calibrated and evaluated, by their cost
    systems: int  # that are calibrated and evaluated
    budgets: int  # that candidates are drawn for, counted for each trunk
    inside: int  # ID samples of a step; each step has a part of them
    outside: Sequence[int]  # samples of each OOD set for a step
    measured: Sequence[int]  # samples of each set of the evaluation
    speed: Speed
    training: TrainingTime | None = None

    def seconds(self, plan: Mapping[str, Any]) -> float:
        """Returns the time of a plan."""
        speed, circuits, steps = self.speed, plan["search"] != NO_CIRCUITS, plan.get("steps", 0)
        drawn = plan["random"] + (OBJECTIVES * (1 + 2 * plan["draws"]) if circuits else 0)
        chosen, measured = (_samples(sets, plan["limit"]) for sets in ((self.inside, *self.outside), self.measured))
        searched = _samples((self.inside, *self.outside), plan["search_samples"]) if circuits else 0
        networks = OBJECTIVES * self._candidates(plan["search"]) - (OBJECTIVES - 1) * self.heads  # they share a round
        idle = (
            OVERHEAD
            + FIT * self.features * (1 + self.members) * chosen
            + RESAMPLED * self.systems * measured
            + speed.read * (searched + chosen + self.systems * (chosen + measured))
            + speed.candidate * (1 + self.budgets * drawn) * chosen
            + speed.member * (1 + self.members) * (chosen + measured)
            + speed.searched * networks * searched
        )
        return speed.busy * idle + (self.training.seconds(steps) if self.training and steps else 0)

    def _candidates(self, search: str) -> int:
        rounds = range(self.heads // 2)
        if search == "shortlist":
            return self.heads + len(rounds) * SHORTLIST
        return sum(self.heads - done for done in rounds)


def _samples(sets: Sequence[int], limit: int | None) -> int:
    return sum(size if limit is None else min(size, limit) for size in sets)


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
    return with_options(build, _as_options(build, found, sizes))


def _shown(seconds: float) -> str:
    """Returns a time as people read it.

    >>> _shown(45.3), _shown(150), _shown(3600)
    ('45 seconds', '2.5 minutes', '60 minutes')
    """
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.{1 if seconds < 600 else 0}f} minutes"


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
    reading, ood_data = replace(build.reading, limit=None), [*build.data.ood_data] or None
    material = open_material(network, build.data.id_data, ood_data, reading=reading, compute=build.compute, watch=LOG)
    heads = member_heads(network.heads, 0)
    one_each = Sources(
        heads, {}, budgets=counts("budgets", build.choice.budgets, len(heads)), random=1, seed=build.seed
    )
    dropped = [candidate.dropped for candidate in candidate_set(one_each).candidates]
    searches = bool(material.ood) and build.search != NO_CIRCUITS
    speed = measure_speed(material, dropped, build.compute.batch_size, searches=searches)
    fused = min(limits.budget_macs or build.choice.members, build.choice.members)
    teachers = len(build.learning.teacher) + (len(build.learning.teacher) > 1)  # and their mean
    inside = len(material.id) // (3 if build.data.eval_data else 4)
    outside = [len(one) // (2 if build.data.eval_ood_data else 3) for one in material.ood.values()]
    # Backwards takes about two passes more.
    trial = inf if seconds is None else TRIAL * seconds / (4 * max(speed.candidate, 1e-6))
    return Sizes(
        heads=len(heads),
        features=network.spec.towers[0].layers * network.spec.towers[0].width,
        members=fused + thin + teachers,
        systems=2 + thin + min(teachers, 2),
        budgets=len(one_each.budgets) * len((build.choice.trunks or limits.trunks(network)).split(",")),
        inside=inside,
        outside=outside,
        measured=_measured(build, network, inside, outside),
        speed=speed,
        training=None
        if build.data.train_data is None
        else training_time(build, network, trial, fused + thin, thin=thin),
    )


def _measured(build: BuildOptions, network: Checkpoint, inside: int, outside: Sequence[int]) -> list[int]:
    """Returns the samples of each set of the evaluation: of the data to measure on, or of parts like the others."""
    from hydractl.data.open import open_samples

    reading = replace(build.reading, limit=None)
    modality = modality_of(network, reading)
    if build.data.eval_data:
        inside = len(open_samples(build.data.eval_data, modality, reading))
    if build.data.eval_ood_data:
        sets = open_ood_sets(build.data.eval_ood_data, build.data.eval_data or build.data.id_data, modality, reading)
        outside = [len(one) for one in sets.values()]
    return [inside, *outside]
