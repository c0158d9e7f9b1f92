"""The modes of a search: how a round is made up, and how its candidates are measured.

A new mode is a row here, a dataclass whose fields are its own options, and a file for what it computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from hydractl import bounds
from hydractl.checkpoint.heads import layer_budgets
from hydractl.circuit.ranking import Round, greedy_round
from hydractl.errors import OptionError
from hydractl.options import Option, option

if TYPE_CHECKING:
    from hydractl.circuit.objective import SearchData
    from hydractl.circuit.ranking import Measured, Progress, Ranking, Search
    from hydractl.model.hydra import Hydra

HeadsPerStep = Annotated[
    int,
    Option(
        "Heads to drop at once: faster, but no longer the paper's search.", minimum=1, maximum=bounds.HEADS, rare=True
    ),
]


@dataclass(frozen=True)
class Exact:
    """Measures every candidate in every round."""

    name: ClassVar[str] = "exact"
    help: ClassVar[str] = "the paper's search, which measures every candidate in every round"

    heads_per_step: HeadsPerStep = 1

    def round(self, search: Search, done: int) -> Round:
        return greedy_round(search, done, self.heads_per_step)

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
    shortlist: int = option(16, "Candidates on a shortlist.", metavar="K", minimum=1, maximum=bounds.HEADS, rare=True)

    def __post_init__(self) -> None:
        if self.shortlist < self.heads_per_step:
            raise OptionError(
                f"`shortlist` {self.shortlist} is shorter than `heads_per_step` {self.heads_per_step}: lengthen it"
            )

    def round(self, search: Search, done: int) -> Round:
        full = greedy_round(search, done, self.heads_per_step)
        return full._replace(passes=min(1.0, self.shortlist / full.left)) if done else full

    def measure(
        self, search: Search, network: Hydra, data: SearchData, growing: Sequence[Ranking], progress: Progress
    ) -> Measured:
        from hydractl.circuit.search import measure_shortlisted

        return measure_shortlisted(search, network, data, growing=growing, progress=progress, size=self.shortlist)


@dataclass(frozen=True)
class HeadMap:
    """Searches layer by layer.

    Source: Wang et al. 2025.
    """

    name: ClassVar[str] = "headmap"
    help: ClassVar[str] = "layer by layer, each giving up its share of the budget at once"

    def round(self, search: Search, done: int) -> Round:
        for place, share in layer_budgets(search.candidates, search.budget).items():
            if done < share:
                heads = tuple(head for head in search.candidates if (head.tower, head.layer) == place)
                return Round(heads, len(heads), share)
            done -= share
        raise ValueError(f"all {search.budget} heads have left already")

    def measure(
        self, search: Search, network: Hydra, data: SearchData, growing: Sequence[Ranking], progress: Progress
    ) -> Measured:
        return Exact().measure(search, network, data, growing, progress=progress)


MODES = (Exact, Shortlist, HeadMap)


def shortcut_account(ranking: Ranking) -> str | None:
    """Returns a line on what a shortlist left to chance for an objective; None if the search used none."""
    if ranking.shortcut is None:
        return None
    first, *later = ranking.shortcut.checked
    return (
        f"{ranking.objective}: exact scores: {first} in the first step, {sum(later)} in all others; "
        f"the best of the first shortlist was {ranking.gap:.4f} below the best of all"
    )
