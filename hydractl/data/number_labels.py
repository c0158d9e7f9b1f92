"""Labels by the task of a network: one of its classes, several of its labels, or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hydractl.data.labels import MISSING, TRUTH, match_labels, with_some_class, with_some_tags
from hydractl.data.samples import Samples
from hydractl.data.table_columns import column_values
from hydractl.errors import DataError
from hydractl.text import shortened

if TYPE_CHECKING:
    import datasets

    from hydractl.tasks.task import Task


def match_to_task(
    samples: Samples, task: Task, model_labels: Sequence[str], how: Literal["name", "index"] = "name"
) -> Samples:
    """Returns the samples with labels as the task reads them: see `match_labels`, or numbers `[N,C]` float64.

    Raises:
        DataError: missing labels, labels of another kind, or numbers beyond 0 to 1 where a sigmoid gives them.
    """
    return task.match(_Matched(samples, model_labels, how))


@dataclass(frozen=True)
class _Matched:
    """Matches the labels of samples to those of a model, by the kind that its task reads."""

    samples: Samples
    model_labels: Sequence[str]
    how: Literal["name", "index"]

    def classes(self) -> Samples:
        return match_labels(self.samples, self.model_labels, self.how)

    def label_sets(self) -> Samples:
        return match_labels(self.samples, self.model_labels, self.how, several=True)

    def tags(self) -> Samples:
        return match_labels(self.samples, self.model_labels, self.how, tagged=True)

    def nothing(self) -> Samples:
        return replace(self.samples, labels=None, label_names=None)

    def numbers(self, unit: bool) -> Samples:
        name, count = self.samples.name, len(self.model_labels)
        matched = with_numbers(self.samples)
        if matched.labels is None:
            raise DataError(f"{name}: {matched.label_problem or 'holds no labels'}")
        if (width := matched.labels.shape[1]) != count:
            remedy = f"name {count} columns with `label_column`, separated by commas"
            raise DataError(f"{name}: a sample has {width} numbers, but the model gives {count}: {remedy}")
        beyond = unit & ((matched.labels < 0) | (matched.labels > 1))
        if len(odd := np.argwhere(np.isnan(matched.labels) | beyond)):
            value, span = matched.labels[tuple(odd[0])], " from 0 to 1, as the model's sigmoid gives" * unit
            raise DataError(f"{name}: sample {odd[0][0]} is {value:g}: give a number{span}, or remove it")
        return matched


def with_unread_labels(samples: Samples, task: Task, model_labels: Sequence[str]) -> Samples:
    """Returns the samples with labels of zeros, where teachers tell what they are."""
    return task.match(_Unread(samples, tuple(model_labels)))


@dataclass(frozen=True)
class _Unread:
    """Gives samples labels of the kind that a task reads, which say nothing."""

    samples: Samples
    model_labels: tuple[str, ...]

    def classes(self) -> Samples:
        return with_some_class(self.samples, (), self.model_labels)

    def label_sets(self) -> Samples:
        return with_some_class(self.samples, (len(self.model_labels),), self.model_labels)

    def numbers(self, unit: bool) -> Samples:
        return self.label_sets()

    def tags(self) -> Samples:
        return with_some_tags(self.samples, self.model_labels)

    def nothing(self) -> Samples:
        return self.classes()


def with_numbers(samples: Samples) -> Samples:
    """Returns the samples with labels `[N,K]` float64, NaN where one is missing; or with a `label_problem`."""
    if samples.labels is not None and samples.labels.dtype.kind == "f":
        return samples
    read: Any = samples.label_problem or "its labels are names of classes, not numbers"
    if samples.table is not None and samples.label_column is not None:
        read = _of_table(samples.table, samples.label_column)
    elif samples.labels is not None and samples.label_names in (None, TRUTH):  # -1 of Python may be a missing one
        read = as_numbers([None if label == MISSING else label for label in samples.labels.tolist()])
    words = isinstance(read, str)
    return replace(samples, labels=None if words else read, label_problem=read if words else None, label_names=None)


def _of_table(table: datasets.Dataset, column: str) -> Any:
    columns = [column] if column in table.column_names else column.split(",")
    if categorical := [name for name in columns if hasattr(table.features[name], "names")]:
        return f"column {categorical[0]} holds classes, not numbers"
    values = [column_values(table, name)[1] for name in columns]
    return as_numbers(values[0] if len(values) == 1 else list(zip(*values, strict=True)))


def as_numbers(values: Sequence[Any]) -> Any:
    """Returns numbers `[N,K]` float64, NaN for a missing one; or a text that explains why they are none.

    Args:
        values: a number, or a list of K numbers, for each sample.
    """
    rows = []
    for at, value in enumerate(values):
        row = value if isinstance(value, list | tuple) else (value,)
        try:  # a column with one word in it is read as words, and the word is to be named
            rows.append([np.nan if number is None else float(number) for number in row])
        except (TypeError, ValueError):
            return f"sample {at} is {shortened(repr(value), 60)}, not a number"
        if np.isinf(rows[-1]).any() or len(row) != len(rows[0]):
            return f"sample {at} is {shortened(repr(value), 60)}: expected {len(rows[0])} finite numbers"
    return np.array(rows, dtype=np.float64)
