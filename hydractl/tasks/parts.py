"""Parts of a task's description: names in transformers, measures of searches, kinds of labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hydractl.metrics.checks import FloatArray, IntArray


class AnswerArray(np.ndarray[Any, Any]):
    """An array of answers, and slices of it; what is computed of them is a plain array.

    It has the method by which programs take arrays from tensors, so that they need not know which of both they hold.
    """

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else np.asarray(array)

    def numpy(self) -> NDArray[Any]:
        """Returns the same numbers as a plain array, without a copy."""
        return self.view(np.ndarray)


def as_answer(value: Any) -> Any:
    """Returns an array as one of answers, and anything else as it is."""
    return value.view(AnswerArray) if isinstance(value, np.ndarray) else value


#: In how many equal parts a quality is counted that is more than right or wrong.
FINE = 10**6


@dataclass(frozen=True)
class Names:
    """The names of a kind of model in transformers.

    Attributes:
        model: the class in exports/modeling.py.
        automatic: the automatic class of transformers that finds it.
        pipeline: the name of the pipeline in transformers.
        typical: the pipeline in `hydractl.auto` that gives typicality too; None if there is none.
    """

    model: str
    automatic: str
    pipeline: str
    typical: str | None = None


class Judged(NamedTuple):
    """Measures of an ensemble's answers to n samples, or words, each `[n]`.

    Attributes:
        quality: as the task measures it, 1 for the best answer; None without labels.
        confidence: higher = more in-distribution; None where answers have none.
        loss: None without labels.
    """

    quality: FloatArray | None
    confidence: FloatArray | None
    loss: FloatArray | None

    def of_sentences(self, counts: IntArray) -> Judged:
        """Returns those of sentences with so many of the words each: mean quality and loss, the least confidence."""
        starts = np.cumsum(counts) - counts
        quality, loss = (None if x is None else np.add.reduceat(x, starts) / counts for x in (self.quality, self.loss))
        return Judged(quality, None if self.confidence is None else np.minimum.reduceat(self.confidence, starts), loss)


class Matcher(Protocol):
    """Finds the labels of some samples; a task calls the method for its kind of labels."""

    def classes(self) -> Any:
        """Returns samples with one class each."""

    def label_sets(self) -> Any:
        """Returns samples with any number of labels each."""

    def numbers(self, unit: bool) -> Any:
        """Returns samples with numbers, from 0 to 1 for `unit`."""

    def tags(self) -> Any:
        """Returns samples with a label for each word."""

    def nothing(self) -> Any:
        """Returns samples of which no label is read."""


def share_of(row: Mapping[str, Any], name: str) -> float:
    """Returns a number from 0 to 1 in a row; raises ValueError for another."""
    value = float(row[name])
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value:g}, not from 0 to 1")
    return value


def number_or_none(value: Any) -> float | None:
    """Returns a number as plain JSON, None for NaN."""
    return None if value != value else float(value)
