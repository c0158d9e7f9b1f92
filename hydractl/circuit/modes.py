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
    from hydractl.circuit.ranking import Measured, Mode, Progress, Ranking, Search
    from hydractl.model.hydra import Hydra

HeadsPerStep = Annotated[
    int,
    Option("Heads to drop at once: faster, but no longer the paper's search.", minimum=1, maximum=bounds.HEADS),
]


@dataclass(frozen=True)
class Exact:
    """Measures every candidate in every round."""

    name: ClassVar[str] = "exact"
    help: ClassVar[str] = "the paper's search, which measures every candidate in every round"
    shortfall: ClassVar[str] = ""
    float32_only: ClassVar[bool] = False

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
class Screened:
    """Measures candidates in half precision, and those near the best again in float32."""

    name: ClassVar[str] = "screened"
    help: ClassVar[str] = "candidates run in half precision, and those near the best again in float32"
    shortfall: ClassVar[str] = ", of heads within {slack} of the best, a margin that the first step suggests"
    float32_only: ClassVar[bool] = True

    heads_per_step: HeadsPerStep = 1

    def round(self, search: Search, done: int) -> Round:
        # The first round measures both ways. Nobody knows how many candidates come near the best later.
        return greedy_round(search, done, self.heads_per_step)._replace(passes=1.0 if done else 2.0)

    def measure(
        self, search: Search, network: Hydra, data: SearchData, growing: Sequence[Ranking], progress: Progress
    ) -> Measured:
        from hydractl.circuit.shortcuts import measure_screened

        return measure_screened(search, network, data, growing=growing, progress=progress)


@dataclass(frozen=True)
class Shortlist:
    """Measures only the candidates with the smallest gradients."""

    name: ClassVar[str] = "shortlist"
    help: ClassVar[str] = "only the candidates with the smallest gradients are measured"
    shortfall: ClassVar[str] = "; the best of the first shortlist was {slack} below the best of all"
    float32_only: ClassVar[bool] = False

    heads_per_step: HeadsPerStep = 1
    shortlist: int = option(16, "Candidates on a shortlist.", metavar="K", minimum=1, maximum=bounds.HEADS)

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
        from hydractl.circuit.shortcuts import measure_shortlisted

        return measure_shortlisted(search, network, data, growing=growing, progress=progress, size=self.shortlist)


@dataclass(frozen=True)
class HeadMap:
    """Searches layer by layer.

    Source: Wang et al. 2025.
    """

    name: ClassVar[str] = "headmap"
    help: ClassVar[str] = "layer by layer, each giving up its share of the budget at once"
    shortfall: ClassVar[str] = ""
    float32_only: ClassVar[bool] = False

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


MODES = (Exact, Screened, Shortlist, HeadMap)


def shortcut_account(mode: Mode, ranking: Ranking) -> str | None:
    """Returns a line on what a mode left to chance for an objective; None if it took no shortcut."""
    if ranking.shortcut is None:
        return None
    first, *later = ranking.shortcut.checked
    checked = f"exact scores: {first} in the first step, {sum(later)} in all others"
    return f"{ranking.objective}: {checked}{mode.shortfall.format(slack=f'{ranking.slack:.4f}')}"
