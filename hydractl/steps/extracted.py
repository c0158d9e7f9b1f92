"""What a search returns: a circuit for each objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.errors import OptionError
from hydractl.steps.result import Result

if TYPE_CHECKING:
    from hydractl.circuit.artifact import Circuit
    from hydractl.circuit.objective import Objective
    from hydractl.circuit.ranking import Ranking


@dataclass(frozen=True, eq=False, repr=False)
class Extracted(Result):
    """The circuits of a search, one for each objective.

    Attributes:
        rankings: the heads in the order in which they were dropped, by objective.
        origin: what the search was of, with which options and samples, as plain JSON.
        outputs: the file of each circuit, where they were written.
    """

    rankings: Mapping[Objective, Ranking]
    origin: Mapping[str, Any]
    outputs: Mapping[Objective, Path]

    @property
    def circuits(self) -> dict[Objective, Circuit]:
        """The circuits as `hydractl.prune` follows them, by objective."""
        from hydractl.circuit.artifact import circuit_of

        return {name: circuit_of(ranking, self.origin) for name, ranking in self.rankings.items()}

    @property
    def circuit(self) -> Circuit:
        """The one circuit that was searched for.

        Raises:
            OptionError: there are several.
        """
        if len(self.rankings) > 1:
            raise OptionError(f"these are circuits of {', '.join(self.rankings)}: name one of the result's `circuits`")
        return next(iter(self.circuits.values()))

    def to_json(self) -> dict[str, Any]:
        """The artifact of each circuit, by objective."""
        from hydractl.circuit.artifact import circuit_json

        return {name: circuit_json(ranking, self.origin) for name, ranking in self.rankings.items()}

    def write(self, force: bool) -> None:
        """Writes each circuit to its file, if it has one."""
        from hydractl.artifacts import write_json

        artifacts = self.to_json()
        for objective, path in self.outputs.items():
            write_json(path, artifacts[objective], force)

    def lines(self) -> Iterator[str]:
        if self.outputs:
            yield from map(str, self.outputs.values())
        else:
            yield from (
                ranking.line(number) for ranking in self.rankings.values() for number in range(len(ranking.steps))
            )

    def facts(self) -> Mapping[str, object]:
        return {f"{name} circuit": ranking.summary for name, ranking in self.rankings.items()}
