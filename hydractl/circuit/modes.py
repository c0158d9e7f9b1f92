"""The modes of a search: how the candidates of a round are measured.

A new mode is a row here, a dataclass whose fields are its own options, and a file for what it computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from hydractl import bounds
from hydractl.errors import OptionError
from hydractl.options import Option, option

if TYPE_CHECKING:
    from hydractl.circuit.objective import SearchData
    from hydractl.circuit.ranking import Measured, Progress, Ranking, Search
    from hydractl.model.hydra import Hydra

HeadsPerStep = Annotated[
    int,
    Option(
        "Heads to drop in each step: faster, but no longer the paper's search.",
        minimum=1,
        maximum=bounds.HEADS,
        rare=True,
    ),
]


@dataclass(frozen=True)
class Exact:
    """Measures every candidate in every round."""

    name: ClassVar[str] = "exact"
    help: ClassVar[str] = "the paper's search, which measures every candidate in every round"

    heads_per_step: HeadsPerStep = 1

    def count(self, left: int, *, first: bool) -> int:
        return left

    def measure(
        self, search: Search, network: Hydra, data: SearchData, growing: Sequence[Ranking], progress: Progress
    ) -> Measured:
        from hydractl.circuit.search import ablate

        left = search.left(growing[0].dropped)
        measures = ablate(network, data, left, progress)
        return [(ranking, measures) for ranking in growing]


@dataclass(frozen=True)
class Shortlist:
    """Measures only the candidates with the smallest gradients."""

    name: ClassVar[str] = "shortlist"
    help: ClassVar[str] = "only the candidates with the smallest gradients are measured"

    heads_per_step: HeadsPerStep = 1
    shortlist: int = option(16, "Candidates on the shortlist.", metavar="K", minimum=1, maximum=bounds.HEADS, rare=True)

    def __post_init__(self) -> None:
        if self.shortlist < self.heads_per_step:
            raise OptionError(
                f"`shortlist` {self.shortlist} is shorter than `heads_per_step` {self.heads_per_step}: lengthen it"
            )

    def count(self, left: int, *, first: bool) -> int:
        return left if first else min(left, self.shortlist)

    def measure(
        self, search: Search, network: Hydra, data: SearchData, growing: Sequence[Ranking], progress: Progress
    ) -> Measured:
        from hydractl.circuit.search import measure_shortlisted

        return measure_shortlisted(search, network, data, growing=growing, progress=progress, size=self.shortlist)


MODES = (Exact, Shortlist)


def shortcut_account(ranking: Ranking) -> str | None:
    """Returns a line on what a shortlist left to chance for an objective; None if the search used none."""
    if ranking.shortcut is None:
        return None
    first, *later = ranking.shortcut.checked
    return (
        f"{ranking.objective}: exact scores: {first} in the first step, {sum(later)} in all others; "
        f"the best of the first shortlist was {ranking.gap:.4f} below the best of all"
    )
