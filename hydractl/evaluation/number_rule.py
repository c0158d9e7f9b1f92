"""Answers with numbers, from members' logits to the table of an evaluation, and what calibration fits to them."""

from dataclasses import dataclass
from typing import Any

import torch

from hydractl.checkpoint.contents import Intervals
from hydractl.data.samples import Labels
from hydractl.metrics.checks import Logits
from hydractl.metrics.number_metrics import NumberTable, fit_intervals, fit_logit
from hydractl.metrics.scaling import FittedTemperature
from hydractl.tasks.task import TaskRow


@dataclass(frozen=True)
class NumberRule:
    """The task of a system that answers with numbers, and its intervals where calibration fitted some."""

    task: TaskRow
    intervals: Intervals | None = None

    def table(self, member_logits: Logits, labels: Labels, temperature: float) -> NumberTable:
        """Returns the answers `[N,C]` beside their labels, as `predict` gives them."""
        found = self.task.predict(torch.from_numpy(member_logits).double(), temperature, None, intervals=self.intervals)
        columns = {name: getattr(found, name) for name in ("values", "spread", "deviation", "low", "high")}
        known: Any = {name: one.numpy() for name, one in columns.items() if one is not None}
        return NumberTable(labels=labels, **known)

    def fit(self, member_logits: Logits, labels: Labels, share: float) -> FittedTemperature:
        """Returns a temperature for labels of 0 and 1 under a sigmoid, otherwise intervals for a share of samples."""
        if labels.dtype.kind != "f":
            return fit_logit(member_logits, labels)
        found = self.table(member_logits, labels, 1.0)
        return fit_intervals(found.values, found.spread, labels, share)
