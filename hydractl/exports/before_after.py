"""A network and its graph of eight bits, side by side on data that chose nothing of either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import OptionError, OutputError
from hydractl.evaluation.comparison import Comparison, describe_data, evaluate_systems
from hydractl.evaluation.results import Difference, Results
from hydractl.evaluation.sets import find_leaks, refuse_leaks
from hydractl.evaluation.settings import Procedure, Settings
from hydractl.evaluation.system_numbers import assemble
from hydractl.evaluation.timing import Row, Timer, open_timed
from hydractl.model.hydra import Hydra
from hydractl.reports.page import results
from hydractl.systems.networks import NetworkSystem, labels_of
from hydractl.systems.onnx import OnnxSystem
from hydractl.systems.onnx_file import OnnxFile
from hydractl.systems.system import EvaluationData, Running, System
from hydractl.tasks.all_tasks import find_task
from hydractl.watch import Watcher

BEFORE, AFTER = "float", "int8"
TOKENS = 128  # of the texts that are timed


@dataclass(frozen=True, eq=False)
class Change:
    """The differences that eight bits make.

    Attributes:
        report: the numbers of both on the same samples, with paired intervals.
        rows: their processor time and bytes, one thread, one sample a pass.
        unfitted: what the data could not fit again, a sentence; None if it was all.
    """

    report: Results
    rows: Sequence[Row]
    unfitted: str | None = None

    @property
    def accuracy_drop(self) -> float:
        """The accuracy lost, in percentage points."""
        before, after = (self.report.models[name].id.accuracy or 0.0 for name in (BEFORE, AFTER))
        return 100 * (before - after)

    @property
    def beyond_chance(self) -> Mapping[str, Difference]:
        """The changes whose paired 95 % interval leaves out zero, by metric, on ID data and as means over OOD sets."""
        difference = self.report.models[AFTER].difference
        if difference is None:
            return {}
        means = (difference.ood_means or {}).get("all", {})
        each = {**difference.id, **{f"mean {name}": means[name] for name in ("auroc", "fpr95") if name in means}}
        return {name: change for name, change in each.items() if change.beyond_chance}

    @property
    def warnings(self) -> list[str]:
        """Names what was not fitted again, and each change beyond chance."""
        lines = [] if self.unfitted is None else [self.unfitted]
        for name, change in self.beyond_chance.items():
            span = "{:+.4f} to {:+.4f}".format(*change.interval)
            lines.append(f"int8 changes {name} by {change.value:+.4f} beyond chance (paired 95 % {span})")
        return lines


def require_fresh(checkpoint: Checkpoint, data: EvaluationData) -> None:
    """Raises DataError if the network was made with samples that it is to be measured on."""
    leaks = find_leaks(checkpoint.name, [checkpoint.provenance], data)
    refuse_leaks(checkpoint.name, leaks, "name `eval_data` that was not used to make the model")


def require_accuracy(checkpoint: Checkpoint, data: EvaluationData, running: Running) -> None:
    """Raises OptionError if the network's answers are not right or wrong on the data to measure on."""
    task, key = find_task(checkpoint.spec.task), next(key for key in data.sets if key.role == "id")
    # One logit answers whether, if labels are 0 and 1.
    labels = labels_of(
        key, data, checkpoint.labels, checkpoint.spec, running=replace(running, on_note=lambda text: None)
    )
    if not task.has_accuracy(labels):
        raise OptionError(
            f"`max_accuracy_drop` needs answers that are right or wrong, but this model is for {task.name}: leave it "
            "out, and read what changes"
        )


def measure_change(
    before: Checkpoint | Hydra, after: Path, data: EvaluationData, running: Running, watch: Watcher
) -> Change:
    """Returns what a file of eight bits changes.

    Args:
        before: the network; with its classes, if it is a zero-shot model.
    """
    system = NetworkSystem((before,))
    systems: list[tuple[str, System]] = [(BEFORE, system), (AFTER, OnnxSystem(after))]
    comparison = Comparison(systems, data, Settings(), Procedure())
    numbers = assemble(evaluate_systems(comparison, running, watch))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        each: dict[str, Sequence[Checkpoint] | OnnxFile]
        each = {BEFORE: system.checkpoints, AFTER: OnnxSystem(after).file}
        timed = open_timed(each, torch.device("cpu"), torch.float32)
        rows = Timer(0, processor_time=True).time(timed, 1, TOKENS)
    finally:
        torch.set_num_threads(threads)
    return Change(results(numbers, describe_data(comparison), {}), rows)


def refuse_drop(change: Change, most: float | None, path: Path) -> None:
    """Raises OutputError if the accuracy falls by more percentage points than allowed, beyond chance."""
    if most is None or change.accuracy_drop <= most or "accuracy" not in change.beyond_chance:
        return
    low, high = (-100 * bound for bound in reversed(change.beyond_chance["accuracy"].interval))
    drop = f"accuracy falls by {change.accuracy_drop:.2f} points (95 % {low:.2f} to {high:.2f})"
    raise OutputError(f"{path}: not written, {drop}, `max_accuracy_drop` is {most:g}: export in float")
