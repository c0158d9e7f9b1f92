"""Labels by the task of a network: one of its classes, several of its labels, or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hydractl.data.labels import MISSING, TRUTH, match_labels
from hydractl.data.samples import Samples
from hydractl.data.table_columns import column_values
from hydractl.errors import DataError
from hydractl.text import shortened

if TYPE_CHECKING:
    import datasets

    from hydractl.tasks.task import TaskRow


def match_to_task(
    samples: Samples, task: TaskRow, model_labels: Sequence[str], how: Literal["name", "index"] = "name"
) -> Samples:
    """Returns the samples with labels as the task reads them: see `match_labels`, or numbers `[N,C]` float64.

    Raises:
        DataError: missing labels, labels of another kind, or numbers beyond 0 to 1 where a sigmoid gives them.
    """
    if not task.numbers:
        return match_labels(samples, model_labels, how, task.several, tagged=task.tagged)
    found, wanted = with_numbers(samples), len(model_labels)
    if found.labels is None:
        raise DataError(f"{samples.name}: {found.label_problem or 'holds no labels'}")
    if (given := found.labels.shape[1]) != wanted:
        remedy = f"name {wanted} by `label_column`, with commas between"
        raise DataError(f"{samples.name}: a sample has {given} numbers, the model gives {wanted}: {remedy}")
    beyond = task.several & ((found.labels < 0) | (found.labels > 1))
    if len(odd := np.argwhere(np.isnan(found.labels) | beyond)):
        value, span = found.labels[tuple(odd[0])], " from 0 to 1, as the model's sigmoid gives" * task.several
        raise DataError(f"{samples.name}: sample {odd[0][0]} is {value:g}: give a number{span}, or remove it")
    return found


def with_numbers(samples: Samples) -> Samples:
    """Returns the samples with labels `[N,K]` float64, NaN where one is missing; or with a `label_problem`."""
    if samples.labels is not None and samples.labels.dtype.kind == "f":
        return samples
    read: Any = samples.label_problem or "its labels are names of classes, not numbers"
    if samples.table is not None and samples.label_column is not None:
        read = _of_table(samples.table, samples.label_column)
    elif samples.labels is not None and samples.label_names in (None, TRUTH):  # -1 of Python may be a missing one
        read = as_numbers([None if one == MISSING else one for one in samples.labels.tolist()])
    words = isinstance(read, str)
    return replace(samples, labels=None if words else read, label_problem=read if words else None, label_names=None)


def _of_table(table: datasets.Dataset, column: str) -> Any:
    columns = [column] if column in table.column_names else column.split(",")
    if named := [name for name in columns if hasattr(table.features[name], "names")]:
        return f"column {named[0]} holds classes, not numbers"
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
            rows.append([np.nan if one is None else float(one) for one in row])
        except (TypeError, ValueError):
            return f"sample {at} is {shortened(repr(value), 60)}, not a number"
        if np.isinf(rows[-1]).any() or len(row) != len(rows[0]):
            return f"sample {at} is {shortened(repr(value), 60)}: expected {len(rows[0])} finite numbers"
    return np.array(rows, dtype=np.float64)
