"""The inputs that a person should look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hydractl.tasks.task import OneAnswer

ODD = 0.05  # a layer with a smaller typicality is named


class Seen(NamedTuple):
    """An input by its name, with the answer to it."""

    name: str
    answer: OneAnswer

    @property
    def why(self) -> str:
        """Why a person should look at it."""
        answer = self.answer
        reason = f"odder than {100 - 100 * answer.typicality:.1f} % of calibration samples"
        layers = (
            []
            if answer.profile is None
            else [str(at) for at, typicality in enumerate(answer.profile) if typicality < ODD]
        )
        return f"{reason}, by layers {' '.join(layers)}" if layers else reason


def picked(seen: Sequence[Seen], count: int) -> list[Seen]:
    """Returns the inputs to label next: the least typical, of equal ones the least sure, classes in turn.

    >>> def one(name: str, typical: float, sure: float, label: str) -> Seen:
    ...     return Seen(name, Answer(typical, sure, label))
    >>> found = picked([one("a", 0.1, 0.9, "x"), one("b", 0.1, 0.5, "x"), one("c", 0.3, 0.9, "y")], 2)
    >>> [each.name for each in found]
    ['b', 'c']
    """
    ordered = sorted(
        {each.name: each for each in seen}.values(),
        key=lambda each: (each.answer.typicality, each.answer.confidence or 0.0),
    )
    turns: dict[Any, int] = {}
    ranked = []
    for place, each in enumerate(ordered):
        turn = turns[each.answer.label] = turns.get(each.answer.label, -1) + 1
        ranked.append((turn, place, each))
    return [each for _, _, each in sorted(ranked)[:count]]
