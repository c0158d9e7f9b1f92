"""The table of retrieval: how often systems find the partners of pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hydractl.inputs.result import Result

if TYPE_CHECKING:
    from hydractl.evaluation.retrieval import Recall

FORMAT, VERSION = "hydractl-retrieval", 1


@dataclass(frozen=True, eq=False, repr=False)
class Retrieved(Result):
    """The recalls of systems on pairs.

    Attributes:
        data: the name of the pairs.
        recalls: of each system, in both directions.
    """

    data: str
    recalls: Sequence[Recall]

    def to_json(self) -> dict[str, Any]:
        from hydractl.evaluation.retrieval import AT

        rows = [
            {
                "system": one.system,
                "direction": one.direction,
                "pairs": len(one.ranks),
                "recall": {str(most): one.at(most) for most in AT},
                "difference": {
                    str(most): {"value": found.value, "interval": [*found.interval]}
                    for most, found in one.differences.items()
                },
            }
            for one in self.recalls
        ]
        return {"format": FORMAT, "version": VERSION, "data": self.data, "recalls": rows}

    def lines(self) -> Iterator[str]:
        from hydractl.evaluation.retrieval import AT
        from hydractl.text import aligned

        cells = [["system", "direction", *(f"recall at {most} %" for most in AT)]]
        for one in self.recalls:
            cells.append([one.system, one.direction, *(self._cell(one, most) for most in AT)])
        yield from aligned(cells, left=2)

    def _cell(self, one: Recall, most: int) -> str:
        text = f"{100 * one.at(most):.1f}"
        if (found := one.differences.get(most)) is None:
            return text
        low, high = (100 * bound for bound in found.interval)
        return f"{text} ({low:+.1f} to {high:+.1f})"

    def guidance(self) -> Iterator[str]:
        if any(one.differences for one in self.recalls):
            yield f"in brackets: the difference to {self.recalls[0].system}, 95 % by resampling of pairs"
