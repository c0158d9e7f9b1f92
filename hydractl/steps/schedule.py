"""The plan of a build for a given time, from the time that one batch takes on this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.open import open_samples
from hydractl.data.reading import DataLike, Modality, Reading
from hydractl.data.sources import DataSpec, DataValues, parse_data, parse_data_sets
from hydractl.errors import OptionError
from hydractl.steps.models import running
from hydractl.watch import Watcher

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
    """The sizes that a build's time depends on.

    Attributes:
        heads: of the network.
        members: that are selected.
        budgets: that candidates are drawn for.
        inside: ID samples of the search, the selection, the calibration and the evaluation.
        outside: samples of each OOD set for the search and the selection; for the evaluation.
        sample: seconds that the network takes for one.
    """

    heads: int
    members: int
    budgets: int
    inside: tuple[int, int, int, int]
    outside: tuple[Sequence[int], Sequence[int]]
    sample: float

    def seconds(self, plan: Mapping[str, Any]) -> float:
        """Returns the time of a plan, training left out; rather more than less."""
        limit, search = plan["limit"], plan["search"]
        circuits = search != NO_CIRCUITS
        chosen, measured = self.outside
        drawn = plan["random"] + (OBJECTIVES * (1 + 2 * plan["draws"]) if circuits else 0)
        passes = (1 + self.budgets * drawn) * (_most(self.inside[1], limit) + _all(chosen, limit))
        passes += (1 + self.members) * (_most(self.inside[2], limit) + _all(chosen, limit))
        passes += (1 + self.members) * (_most(self.inside[3], limit) + _all(measured, limit))
        if circuits:
            samples = _most(self.inside[0], plan["search_samples"]) + _all(chosen, plan["search_samples"])
            passes += REPLAYED * OBJECTIVES * self._candidates(search) * samples
        return OVERHEAD + passes * self.sample

    def _candidates(self, search: str) -> int:
        rounds = range(self.heads // 2)
        if search == "shortlist":
            return self.heads + len(rounds) * SHORTLIST
        return sum(self.heads - done for done in rounds)


def _most(size: int, limit: int | None) -> int:
    return size if limit is None else min(size, limit)


def _all(sizes: Sequence[int], limit: int | None) -> int:
    return sum(_most(size, limit) for size in sizes)


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
    searches = SEARCHES if sizes.outside[0] else ()
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
    watch.note(f"note: {_account(found, sizes, seconds, bool(build.train_data))}")
    limit = found.pop("limit")
    return replace(build, **found, reading=replace(build.reading, limit=limit))


def _account(plan: Mapping[str, Any], sizes: Sizes, seconds: float | None, trains: bool) -> str:
    minutes = max(round(sizes.seconds(plan) / 60), 1)
    allowed = "" if seconds is None else f" of {seconds / 60:g}"
    search, samples = plan["search"], plan["limit"]
    parts = [
        "no circuits" if search == NO_CIRCUITS else f"circuits by {search} search on {plan['search_samples']} samples",
        f"{plan['random']} random draws per budget",
        "all samples" if samples is None else f"at most {samples} samples of each set",
    ]
    training = ", training left out" if trains else ""
    return f"the plan takes about {minutes}{allowed} minutes{training}: {', '.join(parts)}; `time` changes it"


def _sizes(build: Build, network: Checkpoint) -> Sizes:
    modality: Modality = "text" if network.spec.task == "text-classification" else "image"
    reading = replace(build.reading, limit=None)
    inside = _size(build.id_data, modality, reading, strict=True)
    parts = 3 if build.eval_data else 4
    last = _size(build.eval_data, modality, reading, strict=True) if build.eval_data else inside // parts
    outside, apart = (
        [_size(each, modality, reading) for each in (parse_data_sets(list(named)) if named else [])]
        for named in (build.ood_data, build.eval_ood_data)
    )
    shares = [size // (2 if apart else 3) for size in outside]
    samples = open_samples(build.id_data, modality, reading)
    model = running(network, build.compute)
    if model.spec.task == "zero-shot":
        from hydractl.data.labels import set_classes

        set_classes(model, reading.classes, reading.template, samples)
    return Sizes(
        heads=sum(tower.layers * tower.heads for tower in network.spec.towers),
        members=build.members,
        budgets=len(build.budgets.split(",")),
        inside=(inside // parts, inside // parts, inside // parts, last),
        outside=(shares, apart or shares),
        sample=_timed(model, list(islice(samples.inputs, TIMED)), build.compute.batch_size),
    )


def _size(data: DataLike | DataSpec | DataValues, modality: Modality, reading: Reading, strict: bool = False) -> int:
    """Returns how many samples a source holds; those of a part in expectation, without reading all."""
    spec = parse_data(data)
    part = spec.part if isinstance(spec, DataSpec) else None
    if isinstance(spec, DataSpec) and part is not None:
        spec = replace(spec, part=None)
    size = len(open_samples(spec, modality, reading, strict=strict))
    return size if part is None else size * (part.last - part.first + 1) // part.count


def _timed(model: Any, samples: Sequence[Any], batch_size: int) -> float:
    """Returns the seconds per sample of a prediction, after one that warms up."""
    model.predict(samples[:2], batch_size)
    start = time.perf_counter()
    model.predict(samples, batch_size)
    return (time.perf_counter() - start) / len(samples)
