"""The labels of a table, and which class of a model each of them is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import datasets
import numpy as np

from hydractl.bounds import SEED, whole
from hydractl.data.samples import Labels, Samples
from hydractl.errors import DataError

MISSING = -1  # as GLUE and SNLI mark a sample that has no label


def read_labels(table: datasets.Dataset, column: str) -> tuple[Labels, tuple[str, ...] | None] | str:
    """Labels `[N]` and the class names they count in, None for bare numbers; or what is wrong with them.

    A missing label is -1. String labels count in their sorted order.
    """
    feature = table.features[column]
    values: list[Any] = table.select_columns([column]).with_format("arrow")[:][column].to_pylist()
    if isinstance(feature, datasets.ClassLabel):
        return _numbers(values), tuple(feature.names)
    kind = str(getattr(feature, "dtype", type(feature).__name__))
    if kind in ("string", "large_string"):
        return label_words(values)
    if kind == "bool" or re.fullmatch(r"u?int\d+", kind):
        return _numbers(values), None
    # A column of whole numbers with gaps is read as floating point.
    values = [None if value != value else value for value in values]
    if kind.startswith("float") and all(value is None or value.is_integer() for value in values):
        return _numbers(values), None
    return f"column {column} holds {kind}, not classes"


def label_words(values: Sequence[str | None]) -> tuple[Labels, tuple[str, ...]]:
    """Labels `[N]` of class names, which count in their sorted order, and those names; an empty one is missing."""
    names = tuple(sorted({value for value in values if value}))
    place = {name: at for at, name in enumerate(names)}
    return np.array([place[value] if value else MISSING for value in values], dtype=np.int64), names


def _numbers(values: Sequence[Any]) -> Labels:
    return np.array([MISSING if value is None else value for value in values], dtype=np.int64)


def match_labels(samples: Samples, model_labels: Sequence[str], how: Literal["name", "index"] = "name") -> Samples:
    """The samples with labels in the model's numbering, `label_names` the model's.

    Args:
        samples: data with labels.
        model_labels: the model's class names in order of its logits; LABEL_0 ... is no name.
        how: by name (case, `_` and `-` do not count where that leaves no doubt) or by index.

    Raises:
        DataError: labels missing, a side without names, a name the model has not, a number out of range.
    """
    if samples.labels is None:
        raise DataError(f"{samples.name}: {samples.label_problem or 'holds no labels'}")
    if missing := int((samples.labels < 0).sum()):
        raise DataError(
            f"{samples.name}: {missing} of {len(samples)} samples have no label (-1 or empty): "
            "is this a test split whose labels are kept back?"
        )
    if samples.label_names is not None and (most := int(samples.labels.max(initial=0))) >= len(samples.label_names):
        raise DataError(f"{samples.name}: a label is {most}, its classes are {_listed(samples.label_names)}")
    if how == "index":
        labels = _by_index(samples, samples.labels, len(model_labels))
    else:
        labels = _by_name(samples, samples.labels, model_labels)
    return replace(samples, labels=labels, label_names=tuple(model_labels))


def _by_name(samples: Samples, labels: Labels, model_labels: Sequence[str]) -> Labels:
    names = samples.label_names
    if names is None and all(label.isdecimal() for label in model_labels):
        # Bare numbers are names too where the model's classes are called 0, 1, 2 ...
        labels, names = label_words([str(label) for label in labels])
    remedy = "pass `match_labels` index if both count alike"
    if names is None:
        raise DataError(f"{samples.name}: labels are bare numbers, the model's are {_listed(model_labels)}: {remedy}")
    if all(re.fullmatch(r"LABEL_\d+", label) for label in model_labels):
        raise DataError(f"{samples.name}: labels are {_listed(names)}, the model's classes have no names: {remedy}")
    if tuple(names) == tuple(model_labels):
        return labels
    return _places(samples.name, names, model_labels)[labels]


def _places(where: str, names: Sequence[str], model_labels: Sequence[str]) -> Labels:
    """`[C_data]`: for each class of the data, the model's class of that name."""
    wanted, known = list(names), list(model_labels)
    if not set(wanted) <= set(known):
        wanted, known = [folded(name) for name in wanted], [folded(label) for label in known]
    problem = [name for name, key in zip(names, wanted, strict=True) if wanted.count(key) != 1 or known.count(key) != 1]
    if problem:
        raise DataError(
            f"{where}: labels are {_listed(names)}, the model's are {_listed(model_labels)}: "
            f"no one match for {_listed(problem)}; pass `match_labels` index if both count alike"
        )
    return np.array([known.index(key) for key in wanted], dtype=np.int64)


def _by_index(samples: Samples, labels: Labels, classes: int) -> Labels:
    names = samples.label_names or ()
    numbers = [number for name in names if (number := whole(name, 0, SEED)) is not None]
    if names and len(numbers) == len(names):
        # Words such as "10" and "9" sort otherwise than they count.
        labels = np.array(numbers, dtype=np.int64)[labels]
    if beyond := int((labels >= classes).sum()):
        raise DataError(
            f"{samples.name}: {beyond} of {len(labels)} labels lie outside the model's classes "
            f"0 to {classes - 1}, the largest is {labels.max()}: is this the model's own data?"
        )
    return labels


def folded(name: str) -> str:
    """A class name as it is compared: without upper case, `_` and `-`."""
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def _listed(names: Sequence[str], most: int = 12) -> str:
    rest = f", ... ({len(names)} in all)" if len(names) > most else ""
    return f"[{', '.join(names[:most])}{rest}]"
