"""Comparing the heads that circuits drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl import bounds
from hydractl.steps.inputs import CircuitLike, Force, Plot, as_circuit
from hydractl.steps.options import Option, step
from hydractl.steps.result import Result

if TYPE_CHECKING:
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.artifact import Circuit
    from hydractl.circuit.overlap import Overlap


@dataclass(frozen=True, eq=False, repr=False)
class Overlaps(Result):
    """What circuits have in common.

    Attributes:
        circuits: by the names that tables give them.
        dropped: the heads that were compared, by the same names.
        pairs: each circuit with each other.
        common: the heads that all of them drop.
        grid: layers and heads of each tower.
    """

    circuits: Mapping[str, Circuit]
    dropped: Mapping[str, Sequence[Head]]
    pairs: Sequence[Overlap]
    common: Sequence[Head]
    grid: Mapping[str, tuple[int, int]]

    @property
    def budget(self) -> int:
        """How many heads of each circuit were compared."""
        return len(next(iter(self.dropped.values())))

    def to_json(self) -> dict[str, Any]:
        return {
            "budget": self.budget,
            "log_base": 2,
            "circuits": [
                {"name": name, "file": one.name, "objective": one.objective, "dropped": _heads(self.dropped[name])}
                for name, one in self.circuits.items()
            ],
            "pairs": [
                {
                    "circuits": list(pair.names),
                    "shared": _heads(pair.shared),
                    "by_chance": pair.by_chance,
                    "jensen_shannon": pair.divergence,
                }
                for pair in self.pairs
            ],
            "shared_by_all": _heads(self.common),
        }

    def lines(self) -> Iterator[str]:
        from hydractl.report.overlap import map_lines

        width = max(len("  ".join(pair.names)) for pair in self.pairs)
        yield f"{'':{width}}  {f'shared of {self.budget}':>14}  by chance  layers' JSD (bits)"
        for pair in self.pairs:
            shared = f"{len(pair.shared)} ({len(pair.shared) / self.budget:.0%})"
            yield f"{'  '.join(pair.names):{width}}  {shared:>14}  {pair.by_chance:9.1f}  {pair.divergence:18.4f}"
        if len(self.dropped) > 2:
            yield f"dropped by all {len(self.dropped)}: {len(self.common)}"
        yield ""
        yield from map_lines(self.dropped, self.grid)

    def facts(self) -> Mapping[str, object]:
        return {
            " and ".join(pair.names): f"{len(pair.shared)} of {self.budget} heads, {pair.by_chance:.1f} by chance, "
            f"JSD {pair.divergence:.4f} bits"
            for pair in self.pairs
        }

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@step
def circuit_overlap(
    circuits: Annotated[
        Sequence[CircuitLike],
        Option("Circuits of one model; - is stdin.", heading="Model", metavar="CIRCUIT...", positional=True),
    ],
    *,
    budget: Annotated[
        int | None,
        Option(
            "Compare the first N heads each drops; as many as all rank unless given.", minimum=1, maximum=bounds.HEADS
        ),
    ] = None,
    plot: Plot = None,
    force: Force = False,
) -> Overlaps:
    """Compare the heads that circuits drop.

    Example: hydractl circuit overlap circuit-acc.json circuit-ood.json circuit-avg.json --budget 48 --plot heads.png

    Prints for each pair the heads that both drop, how many random choices from the same heads would share, and the
    Jensen-Shannon divergence of the dropped heads' distributions over layers, in bits: 0 for the same, 1 for no layer
    in common. Below stands a map of the heads each drops; `plot` draws it.

    >>> same = hydractl.circuit_overlap(["circuit.json", "circuit.json"], budget=3)
    >>> len(same.common), same.pairs[0].divergence
    (3, 0.0)

    Raises:
        ArtifactError: a circuit cannot be read, drops no head, or is of another model than the first.
        OptionError: fewer than two circuits, or one ranks fewer heads than the budget.
        OutputError: the picture exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.circuit.overlap import choices, first_dropped, names_of, overlaps, shared_by, sizes
    from hydractl.report.picture import check_picture, write_picture

    if plot is not None:
        check_picture(Path(plot), force)
    read = [as_circuit(one) for one in circuits]
    named = dict(zip(names_of(read), read, strict=True))
    dropped = dict(zip(named, first_dropped(read, budget), strict=True))
    grid = sizes(read)
    pairs = overlaps(dropped, {name: choices(one, grid) for name, one in named.items()})
    if plot is not None:
        from hydractl.report.overlap import overlap_figure

        write_picture(overlap_figure(dropped, grid), Path(plot), force)
    return Overlaps(named, dropped, pairs, shared_by(list(dropped.values())), grid)


def _heads(heads: Sequence[Head]) -> list[dict[str, Any]]:
    return [head._asdict() for head in heads]
