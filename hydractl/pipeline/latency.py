"""A limit on time, measured once and kept by its build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import OutputError
from hydractl.pipeline.build_options import BuildOptions
from hydractl.schema import Origin, read_json
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.evaluation.latency_limit import LatencyLimit


def latency_limit(build: BuildOptions, network: Checkpoint, watch: Watcher) -> LatencyLimit | None:
    """Returns a build's latency limit in multiply-adds; times Hydras of random members if no earlier run did.

    Raises:
        OptionError: no network is that fast.
        OutputError: the record of an earlier run is damaged.
    """
    from hydractl.evaluation.latency_limit import FILE, LatencyLimit, most_multiply_adds, sketches, time_ratios

    budget, file = build.budget_latency, build.folder / FILE
    if budget is None:
        return None
    if file.is_file():
        origin = Origin(str(file), OutputError, "remove it, or name another folder")
        begun: LatencyLimit = read_json(file, origin).read(LatencyLimit)
        if begun.budget == budget:
            return begun
    watch.note("note: timing Hydras of random members beside the network")
    heads = sum(tower.layers * tower.heads for tower in network.spec.towers)
    points = time_ratios(
        network, sketches(network, max(build.choice.members, 2), heads // 6), build.compute.torch_device
    )
    return LatencyLimit(budget=budget, multiply_adds=most_multiply_adds(points, budget), measured=tuple(points))
