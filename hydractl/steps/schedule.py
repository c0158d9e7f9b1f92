"""The plan of a build for a given time, from the time that one batch takes on this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import OptionError
from hydractl.steps.material import open_material
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    from hydractl.steps.build import Build

NO_CIRCUITS = "none"
#: Samples of each set in a step, and draws from all heads per budget; from the most to the least.
SAMPLES = ((None, 12), (5000, 12), (2000, 12), (1000, 12), (1000, 6), (500, 6), (200, 4))
#: Searches, and samples of each set to search on.
SEARCHES = (("exact", 500), ("shortlist", 500), ("shortlist", 200))
DRAWS = 4  # from the first heads of each circuit, per budget
OBJECTIVES = 3
SHORTLIST = 16
REPLAYED = 0.45  # of a forward pass: a search runs only the layers behind a candidate
OVERHEAD = 40.0  # seconds: to start, to resample results, to draw the report
UNITS = {"s": 1, "m": 60, "h": 3600}
TIMED = 32  # samples of the batch that is timed


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
    members: int  # that are selected
    budgets: int  # that candidates are drawn for
    inside: int  # ID samples of a step; each step has a part of them
    outside: Sequence[int]  # samples of each OOD set for a step
    sample: float  # seconds that the network takes for one

    def seconds(self, plan: Mapping[str, Any]) -> float:
        """Returns the time of a plan, training left out; rather more than less."""
        circuits = plan["search"] != NO_CIRCUITS
        drawn = plan["random"] + (OBJECTIVES * (1 + 2 * plan["draws"]) if circuits else 0)
        # The candidates are measured in the selection; the network and the members in the calibration and evaluation.
        passes = (1 + self.budgets * drawn + 2 * (1 + self.members)) * self._samples(plan["limit"])
        if circuits:
            candidates = self._candidates(plan["search"])
            passes += REPLAYED * OBJECTIVES * candidates * self._samples(plan["search_samples"])
        return OVERHEAD + passes * self.sample

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

    def fits(found: Mapping[str, Any], share: float) -> bool:
        return seconds is None or sizes.seconds(found) <= share * seconds

    least = (NO_CIRCUITS, SEARCHES[-1][1])
    samples = next((one for one in SAMPLES if fits(plan(one, least), 0.5)), SAMPLES[-1])
    searches = SEARCHES if sizes.outside else ()
    return plan(samples, next((one for one in searches if fits(plan(samples, one), 1.0)), least))


def scheduled(build: Build, network: Checkpoint, watch: Watcher) -> Build:
    """Returns the build with a search, draws and samples that fit its time, and prints what it does.

    Raises:
        DataError: data cannot be read.
        OptionError: see `seconds_of`.
    """
    seconds = seconds_of(build.time)
    given = {name: getattr(build, name) for name in ("search", "search_samples", "draws", "random")}
    sizes = _sizes(build, network)
    found = fitting(sizes, given | {"limit": build.reading.limit}, seconds)
    search, limit = found["search"], found["limit"]
    parts = [
        "no circuits" if search == NO_CIRCUITS else f"circuits by {search} search on {found['search_samples']} samples",
        *([f"{found['random']} random draws per budget"] if found["random"] else []),
        "all samples" if limit is None else f"at most {limit} samples of each set",
    ]
    minutes = max(round(sizes.seconds(found) / 60), 1)
    training = " without training" if build.train_data else ""
    about = f"{minutes} minute{'s' if minutes > 1 else ''}{training}"
    watch.note(f"note: the plan takes about {about}: {', '.join(parts)}; `time` changes it")
    return with_plan(build, found)


def with_plan(build: Build, planned: Mapping[str, Any]) -> Build:
    """Returns a build with a search, draws and samples."""
    values = dict(planned)
    reading = replace(build.reading, limit=values.pop("limit", build.reading.limit))
    return replace(build, **values, reading=reading)


def _sizes(build: Build, network: Checkpoint) -> Sizes:
    """Returns the sizes of a build, and the time that a sample takes here."""
    reading = replace(build.reading, limit=None)
    ood_data = [*build.ood_data] or None
    material = open_material(network, build.id_data, ood_data, reading=reading, compute=build.compute, watch=LOG)
    samples = list(islice(material.id.inputs, TIMED))
    material.model.predict(samples[:2], build.compute.batch_size)  # warms up
    start = time.perf_counter()
    material.model.predict(samples, build.compute.batch_size)
    return Sizes(
        heads=sum(tower.layers * tower.heads for tower in network.spec.towers),
        members=build.members,
        budgets=len(build.budgets.split(",")),
        inside=len(material.id) // (3 if build.eval_data else 4),
        outside=[len(one) // (2 if build.eval_ood_data else 3) for one in material.ood.values()],
        sample=(time.perf_counter() - start) / len(samples),
    )
