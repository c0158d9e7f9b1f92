"""How certain the numbers are: bootstrap intervals, paired differences, and deviations over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np

from hydractl.errors import OptionError
from hydractl.evaluation.results import GROUPS, id_key
from hydractl.evaluation.run import Predictions
from hydractl.evaluation.settings import Settings
from hydractl.metrics.bootstrap import (
    accuracy_replicates,
    classification_replicates,
    percentile_interval,
    sets_replicates,
)
from hydractl.metrics.styles import OURS

#: Arrays `[draws]` of resampled values where a system's entry has the numbers.
Replicates = Mapping[str, Any]
#: How often samples are resampled unless asked otherwise, and of how many: more would take minutes.
RESAMPLES, MOST_RESAMPLED = 1000, 100_000
MEASURED = ("id", "selective", "ood", "ood_means", "shift", "shift_means", "conformal", "temperature", "cost")


@dataclass(frozen=True)
class Measured:
    """One file of a system: its entry in the report, and resampled values of its numbers."""

    name: str
    entry: Mapping[str, Any]
    replicates: Replicates | None = None

    @property
    def draws(self) -> int:
        """How often its samples were resampled."""
        return 0 if self.replicates is None else len(self.replicates["id"]["accuracy"])


def resamples(asked: int | None, predictions: Predictions, settings: Settings, on_note: Callable[[str], None]) -> int:
    """How often to resample: as asked, or RESAMPLES times where that is possible and takes seconds.

    Args:
        on_note: told where the samples are too many.
    """
    if asked is not None:
        return asked
    if settings.style != OURS.name:
        return 0
    samples = sum(len(scores) for key, scores in predictions.scores.items() if key.role in ("id", "ood"))
    if samples > MOST_RESAMPLED:
        on_note(f"no intervals for {samples} samples: `bootstrap` {RESAMPLES} computes them, which takes a while")
        return 0
    return RESAMPLES


def resample(predictions: Predictions, settings: Settings, replicates: int, seed: int) -> Replicates:
    """Resampled values of a system's numbers; equal data and seed give equal draws, so systems are paired.

    Args:
        replicates: how many draws.
        seed: of the draws.

    Raises:
        OptionError: another tool's style, whose numbers are not resampled.
    """
    if settings.style != OURS.name:
        raise OptionError(f"`bootstrap` resamples the numbers of `style` {OURS.name}, not of {settings.style}")
    inside = id_key(predictions)
    if inside in predictions.tables:
        found: dict[str, Any] = {"id": classification_replicates(predictions.tables[inside], replicates, seed)}
    else:
        found = {"id": accuracy_replicates(predictions.right(inside), replicates, seed)}
    keys = [key for key in predictions.scores if key.role == "ood"]
    if not keys:
        return found
    scores = {key.name: predictions.scores[key] for key in keys}
    sets = sets_replicates(predictions.scores[inside], scores, replicates, seed)
    means = {}
    for group in GROUPS:
        members = [sets[key.name] for key in keys if group in (key.group, "all")]
        if members:
            means[group] = {name: np.mean([member[name] for member in members], axis=0) for name in members[0]}
    return {**found, "ood": sets, "ood_means": means}


def assemble(measured: Sequence[Measured]) -> dict[str, dict[str, Any]]:
    """The entries of a report by system: files of one name joined, intervals and differences to the first added."""
    by_name: dict[str, list[Measured]] = {}
    for part in measured:
        by_name.setdefault(part.name, []).append(part)
    entries: dict[str, dict[str, Any]] = {}
    first: tuple[Mapping[str, Any], Replicates] | None = None
    for name, parts in by_name.items():
        entry = dict(parts[0].entry) if len(parts) == 1 else aggregate([part.entry for part in parts])
        drawn = [part.replicates for part in parts if part.replicates is not None]
        if drawn:
            # Of a mean over seeds, the draws are means over seeds too.
            values = _join(lambda *arrays: np.mean(arrays, axis=0), *drawn)
            entry["intervals"] = _join(_interval, values, entry)
            if first is not None:
                entry["difference"] = _differences(first, entry, values)
            else:
                first = (entry, values)
        entries[name] = entry
    return entries


def aggregate(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One entry for several files of a system: means, standard deviations under `std`, the files under `seeds`.

    Args:
        entries: two or more.
    """
    shared = [key for key in MEASURED if all(entry.get(key) is not None for entry in entries)]
    numbers = [{key: entry[key] for key in shared} for entry in entries]
    joined = {key: value for key, value in entries[0].items() if key not in MEASURED}
    return {
        **joined,
        **_join(_mean, *numbers),
        "std": _join(_deviation, *numbers),
        "seeds": [{key: value for key, value in entry.items() if key != "curves"} for entry in entries],
    }


def _differences(
    first: tuple[Mapping[str, Any], Replicates], entry: Mapping[str, Any], values: Replicates
) -> dict[str, Any]:
    def difference(theirs: Any, ours: Any, their_value: float, value: float) -> dict[str, Any]:
        return {"value": value - their_value, "interval": _percentiles(_centred(ours - theirs, value - their_value))}

    return _join(difference, first[1], values, first[0], entry)


def _interval(values: Any, number: float) -> list[float]:
    # Every metric is 0 or more, and none can be above all of its draws and the number.
    return _percentiles(np.clip(_centred(values, number), 0, max(values.max(), number)))


def _centred(values: Any, number: float) -> Any:
    """The draws moved so that their mean is the number.

    Resampled data looks worse calibrated than the data it is drawn from: where they are, ECE's may all lie above it.
    """
    return values - values.mean() + number


def _percentiles(values: Any) -> list[float]:
    interval = percentile_interval(values)
    return [interval.low, interval.high]


def _mean(*values: Any) -> Any:
    if not all(isinstance(value, int | float) for value in values) or len(set(values)) == 1:
        return values[0]
    return fmean(values)


def _deviation(*values: Any) -> float | None:
    return stdev(values) if all(isinstance(value, int | float) for value in values) else None


def _join(combine: Callable[..., Any], *trees: Any) -> Any:
    """A tree of the keys that all trees have, each leaf combined from theirs."""
    if isinstance(trees[0], Mapping):
        shared = [key for key in trees[0] if all(isinstance(tree, Mapping) and key in tree for tree in trees)]
        return {key: _join(combine, *(tree[key] for tree in trees)) for key in shared}
    return combine(*trees)
