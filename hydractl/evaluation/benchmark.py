"""How long systems take and how much memory: side by side in one run, so that noise hits all of them alike."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

import torch

WARM_UP = 2  # calls of each system before the first that counts
FEWEST = 5  # rounds, however long one takes

Run = Callable[[], object]


@dataclass(frozen=True)
class Weight:
    """What a system stores and performs, known without running it.

    Args:
        parameters: numbers stored.
        size: their bytes.
        multiply_adds: of one sample as the network is published, every token through every layer.
        performed: of one sample as the system computes it.
    """

    parameters: int
    size: int
    multiply_adds: int
    performed: int


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one batch (median, interquartile range, fastest round), and the bytes it needs at its peak."""

    milliseconds: float
    fastest: float
    spread: float
    rounds: int
    peak_memory: int


@dataclass(frozen=True)
class Row:
    """One system at one batch size in one precision; ratios are to the first system of the run.

    `over_counted` is the ratio of times over the ratio of multiply-adds performed: 1 where time follows arithmetic.
    """

    name: str
    dtype: str
    batch_size: int
    timing: Timing
    weight: Weight
    ratio: float
    counted_ratio: float

    @property
    def throughput(self) -> float:
        """Samples per second."""
        return 1000 * self.batch_size / self.timing.milliseconds

    @property
    def over_counted(self) -> float:
        return self.ratio / self.counted_ratio

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "throughput": self.throughput, "over_counted": self.over_counted}


@dataclass(frozen=True)
class Timer:
    """Times systems that take turns.

    Attributes:
        seconds: to spend on all of them together, after warm-up.
        cuda: time by the device's events instead of the clock.
        processor_time: count this thread's time on the processor instead, which other programs do not lengthen; for
            one thread.
        on_seconds: called after each turn with how many of them are spent since the last.
    """

    seconds: float
    cuda: bool
    processor_time: bool = False
    on_seconds: Callable[[float], None] = lambda spent: None

    def time(self, runs: Mapping[str, Run], weights: Mapping[str, Weight]) -> dict[str, Timing]:
        """Returns the timing of each system.

        Args:
            runs: one call is one batch.
        """
        for run in runs.values():
            for _ in range(WARM_UP):
                run()
        peaks = {name: weights[name].size + _activation_peak(run, self.cuda) for name, run in runs.items()}
        taken: dict[str, list[float]] = {name: [] for name in runs}
        before = time.perf_counter()
        end = before + self.seconds
        rounds = 0
        while rounds < FEWEST or time.perf_counter() < end:
            # The order turns with every round: nobody always follows the same system's caches.
            names = list(runs)
            for name in names[rounds % len(names) :] + names[: rounds % len(names)]:
                taken[name].append(self._milliseconds(runs[name]))
            rounds += 1
            now = time.perf_counter()
            self.on_seconds(min(now, end) - min(before, end))
            before = now
        return {name: _timing(values, peaks[name]) for name, values in taken.items()}

    def _milliseconds(self, run: Run) -> float:
        if self.cuda:
            return _milliseconds_on_device(run)
        clock = time.thread_time if self.processor_time else time.perf_counter
        start = clock()
        run()
        return 1000 * (clock() - start)


def compare(timings: Mapping[str, Timing], weights: Mapping[str, Weight], dtype: str, batch_size: int) -> Sequence[Row]:
    """A row per system, with ratios to the first."""
    first = next(iter(timings))
    return [
        Row(
            name=name,
            dtype=dtype,
            batch_size=batch_size,
            timing=timing,
            weight=weights[name],
            ratio=timing.milliseconds / timings[first].milliseconds,
            counted_ratio=weights[name].performed / weights[first].performed,
        )
        for name, timing in timings.items()
    ]


def environment(device: torch.device) -> dict[str, Any]:
    """What the figures depend on beside the models."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {"device": str(device), "name": name, "torch": torch.__version__, "threads": torch.get_num_threads()}


def _timing(values: Sequence[float], peak: int) -> Timing:
    low, _, high = quantiles(values, n=4)
    return Timing(median(values), min(values), spread=high - low, rounds=len(values), peak_memory=peak)


def _milliseconds_on_device(run: Run) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def _activation_peak(run: Run, cuda: bool) -> int:
    """The most bytes that one call holds at once beside the weights."""
    if cuda:
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler greets on stderr otherwise
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
