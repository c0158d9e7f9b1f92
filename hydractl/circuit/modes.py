"""The modes of a search: how a round is made up, and how its candidates are measured.

A new mode is a file of its own and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydractl.circuit.headmap import layer_round
from hydractl.circuit.ranking import Round, Search, greedy_round

if TYPE_CHECKING:
    from hydractl.circuit.ablation import Progress
    from hydractl.circuit.data import SearchData
    from hydractl.circuit.objective import Measures
    from hydractl.circuit.ranking import Ranking
    from hydractl.model.hydra import Hydra

    #: For each ranking that grows, the candidates it may choose from, measured, and the ranking itself with an account
    #: of the shortcut taken, if any.
    Measured = list[tuple[Ranking, Measures]]
    Measurement = Callable[[Search, Hydra, SearchData, Sequence[Ranking], Progress], Measured]


@dataclass(frozen=True)
class Mode:
    """A way to search.

    Attributes:
        round: the round after so many heads have left.
        measure: measures the candidates of a round on a network that lacks what has left, for rankings that have all
            dropped it. What it gives one ranking must not depend on the others.
        options: those that it goes by, of the ones that not all modes do.
        shortfall: what its shortcut leaves to chance, in words; `{slack}` stands for how much.
        check: raises OptionError for a network that it cannot search, before any work.
    """

    name: str
    help: str
    round: Callable[[Search, int], Round]
    measure: Measurement
    options: frozenset[str] = frozenset({"heads_per_step"})
    shortfall: str = ""
    check: Callable[[Hydra], None] = lambda network: None

    def account(self, ranking: Ranking) -> str | None:
        """What was left to chance for an objective, in a line of text; None where nothing was."""
        if ranking.shortcut is None:
            return None
        first, *later = ranking.shortcut.checked
        checked = f"exact scores: {first} in the first step, {sum(later)} in all others"
        return f"{ranking.objective}: {checked}{self.shortfall.format(slack=f'{ranking.slack:.4f}')}"


def _exact(
    search: Search, network: Hydra, data: SearchData, growing: Sequence[Ranking], progress: Progress
) -> Measured:
    from hydractl.circuit.ablation import ablate

    measures = ablate(network, data, search.left(growing[0].dropped), progress)
    return [(ranking, measures) for ranking in growing]


def _screened(
    search: Search, network: Hydra, data: SearchData, growing: Sequence[Ranking], progress: Progress
) -> Measured:
    from hydractl.circuit.screen import measure_screened

    return measure_screened(search, network, data, growing, progress)


def _screenable(network: Hydra) -> None:
    from hydractl.circuit.screen import refuse_half_precision

    refuse_half_precision(network)


def _screened_round(search: Search, done: int) -> Round:
    # The first is measured both ways. How many will come near the best later, nobody can say.
    return greedy_round(search, done)._replace(passes=1.0 if done else 2.0)


def _shortlisted(
    search: Search, network: Hydra, data: SearchData, growing: Sequence[Ranking], progress: Progress
) -> Measured:
    from hydractl.circuit.shortlist import measure_shortlisted

    return measure_shortlisted(search, network, data, growing, progress)


def _shortlisted_round(search: Search, done: int) -> Round:
    whole = greedy_round(search, done)
    return whole._replace(passes=min(1.0, search.shortlist / whole.left)) if done else whole


MODES = (
    Mode("exact", "the paper's search, which measures every candidate in every round", greedy_round, _exact),
    Mode(
        "screened",
        "candidates run in half precision, and those near the best again in float32",
        _screened_round,
        _screened,
        shortfall=", of heads within {slack} of the best, a margin that the first step suggests",
        check=_screenable,
    ),
    Mode(
        "shortlist",
        "only the candidates with the smallest gradients are measured",
        _shortlisted_round,
        _shortlisted,
        frozenset({"heads_per_step", "shortlist"}),
        "; the best of the first shortlist was {slack} below the best of all",
    ),
    Mode("headmap", "layer by layer, each giving up its share of the budget at once", layer_round, _exact, frozenset()),
)
EXACT, SCREENED, SHORTLISTED, HEADMAP = MODES


def taking(option: str) -> tuple[str, ...]:
    """The modes that go by an option."""
    return tuple(mode.name for mode in MODES if option in mode.options)
