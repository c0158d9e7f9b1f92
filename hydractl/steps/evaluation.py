"""One evaluation: what was asked for as a value, which each task of a suite may change, and the report of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hydractl.errors import OptionError
from hydractl.steps.report import Outputs as Outputs
from hydractl.steps.report import Reported
from hydractl.steps.systems import Systems, named_systems
from hydractl.watch import Watcher

if TYPE_CHECKING:
    import torch

    from hydractl.data.like import DataLike, DataSetsLike, Indexed, Modality
    from hydractl.evaluation.certainty import Measured
    from hydractl.evaluation.comparison import Comparison, Measurement
    from hydractl.evaluation.sets import EvaluationData
    from hydractl.evaluation.systems import Running
    from hydractl.steps.inputs import DtypeLike


@dataclass(frozen=True, eq=False)
class Data:
    """What is evaluated on, under the names of the options, as a task of a suite says it of itself."""

    id_data: DataLike | None
    ood_data: DataSetsLike
    shift_data: Sequence[str] | Mapping[str, str | Path | Indexed]
    calib_data: DataLike | None
    corrupt: str | None
    classes: str | Path | Sequence[str] | None
    template: str
    image_column: str | None
    text_column: str | None
    label_column: str | None
    match_labels: Literal["name", "index"]


@dataclass(frozen=True, eq=False)
class Compute:
    """How networks are run, under the names of the options."""

    device: str | torch.device
    dtype: DtypeLike | None
    compiled: bool
    batch_size: int
    workers: int


@dataclass(frozen=True, eq=False)
class Evaluation:
    """An evaluation as it was asked for.

    Attributes:
        limit: samples of each set.
        skip_bad: whether samples that cannot be read are left out.
        streaming: whether sets are read as they come.
        seeds: whether systems of one name are seeds of one system.
        members_curve: whether the first members of each file are systems besides.
    """

    systems: Systems
    data: Data
    limit: int | None
    skip_bad: bool
    streaming: bool
    measurement: Measurement
    seeds: bool
    members_curve: bool
    compute: Compute
    outputs: Outputs


def run_evaluation(asked: Evaluation, watch: Watcher) -> Reported:
    """The numbers of every system; a process that does not lead only answers, and returns none.

    Raises:
        as `hydractl.evaluate` does.
    """
    from hydractl.data.ranks import batch_workers, join_ranks, local_device
    from hydractl.evaluation.comparison import serve
    from hydractl.evaluation.systems import Running
    from hydractl.steps.compute import choose_device, choose_dtype

    data, compute, outputs = asked.data, asked.compute, asked.outputs
    outputs.check()
    open_comparison = _opener(asked, watch)

    def finish(comparison: Comparison, measured: Sequence[Measured]) -> Reported:
        return outputs.write(_content(comparison, measured, asked), watch)

    place = local_device(choose_device(compute.device))
    with join_ranks(place) as ranks, batch_workers(place, ahead=1) as in_parallel:
        if asked.streaming and ranks.size > 1:
            raise OptionError("`streaming` reads its data in one process: leave torchrun out")
        running = Running(place, choose_dtype(compute.dtype), compute.compiled, compute.batch_size, compute.workers,
                          asked.measurement.seed, data.classes, data.template, ranks, in_parallel,
                          lambda text: watch.note(f"note: {text}"))  # fmt: skip
        if not ranks.leads:
            with ranks.following():
                serve(open_comparison(), running)
            return Reported({"models": {}})
        with ranks.leading():
            return _measured(open_comparison(), running, asked.measurement, watch, finish)


def _opener(asked: Evaluation, watch: Watcher) -> Callable[[], Comparison]:
    """What opens the systems and the data; of the options that say which, those that are wrong are refused at once."""
    from hydractl.data.columns import Columns
    from hydractl.data.corruptions import parse_corruptions
    from hydractl.evaluation.checkpoints import by_size
    from hydractl.evaluation.comparison import open_comparison
    from hydractl.evaluation.opening import AskedSets, open_sets

    data = asked.data
    corruptions = [] if data.corrupt is None else parse_corruptions(data.corrupt)
    columns = Columns(data.image_column, data.text_column, data.label_column)

    def open_data(modality: Modality) -> EvaluationData:
        assert data.id_data is not None
        sets = AskedSets(data.id_data, data.ood_data, data.calib_data, data.shift_data, corruptions,
                         asked.measurement.seed, columns, asked.limit, data.match_labels, asked.skip_bad,
                         asked.streaming)  # fmt: skip
        return open_sets(sets, modality, lambda text: watch.note(f"note: {text}"))

    def opened() -> Comparison:
        named = named_systems(asked.systems)
        sized = [part for one in named for part in by_size(*one)] if asked.members_curve else named
        return open_comparison(sized, None if data.id_data is None else open_data, asked.seeds)

    return opened


def _measured(
    comparison: Comparison,
    running: Running,
    measurement: Measurement,
    watch: Watcher,
    finish: Callable[[Comparison, Sequence[Measured]], Reported],
) -> Reported:
    """What `finish` makes of the systems' numbers; where that is interrupted, the error holds what was finished."""
    from hydractl.evaluation.comparison import Listeners, measure_systems

    measured: list[Measured] = []
    try:
        for system in measure_systems(comparison, running, measurement, Listeners(watch.warn, watch.progress)):
            measured.append(system)
    except BaseException as error:
        if measured:
            error.partial = finish(comparison, measured)  # type: ignore[attr-defined]
        raise
    return finish(comparison, measured)


def _content(comparison: Comparison, measured: Sequence[Measured], asked: Evaluation) -> dict[str, Any]:
    """The report of what is finished."""
    from hydractl.evaluation.certainty import assemble
    from hydractl.evaluation.comparison import describe_data
    from hydractl.report.artifact import report_json
    from hydractl.steps.compute import dtype_name

    compute, corrupt, measurement = asked.compute, asked.data.corrupt, asked.measurement
    resampled = max((one.draws for one in measured), default=0)
    drawn = resampled or corrupt or comparison.draws
    options = {
        "batch_size": compute.batch_size,
        "limit": asked.limit,
        "dtype": dtype_name(compute.dtype),
        "corrupt": corrupt,
        **measurement.settings.to_json(),
        "compiled": compute.compiled or None,
        "bootstrap": resampled or None,
        "seed": measurement.seed if drawn else None,
    }
    complete = len(measured) == len(comparison.systems)
    return report_json(assemble(measured), describe_data(comparison), options, complete)
