"""Comparing the heads that circuits, head scores and pruned models drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl import bounds
from hydractl.errors import OptionError
from hydractl.steps.chosen import ChoiceLike, as_choices
from hydractl.steps.inputs import Force, Plot
from hydractl.steps.options import Option, step
from hydractl.steps.result import Result

if TYPE_CHECKING:
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.overlap import Choice, Overlap


@dataclass(frozen=True, eq=False, repr=False)
class Overlaps(Result):
    """What choices of heads have in common.

    Attributes:
        choices: circuits, head scores and members, by the names that tables give them.
        dropped: the heads that were compared, by the same names.
        pairs: each choice with each other.
        common: the heads that all of them drop.
        grid: layers and heads of each tower.
    """

    choices: Mapping[str, Choice]
    dropped: Mapping[str, Sequence[Head]]
    pairs: Sequence[Overlap]
    common: Sequence[Head]
    grid: Mapping[str, tuple[int, int]]

    @property
    def budget(self) -> int:
        """How many heads of each choice were compared."""
        return len(next(iter(self.dropped.values())))

    def to_json(self) -> dict[str, Any]:
        return {
            "budget": self.budget,
            "log_base": 2,
            "choices": [
                {
                    "name": name,
                    "file": one.name,
                    "kind": one.kind,
                    "label": one.label,
                    "dropped": _heads(self.dropped[name]),
                }
                for name, one in self.choices.items()
            ],
            "pairs": [
                {
                    "choices": list(pair.names),
                    "shared": _heads(pair.shared),
                    "by_chance": pair.by_chance,
                    "jensen_shannon_over_layers": pair.over_layers,
                    "jensen_shannon_over_heads": pair.over_heads,
                }
                for pair in self.pairs
            ],
            "shared_by_all": _heads(self.common),
        }

    def lines(self) -> Iterator[str]:
        from hydractl.report.heads import map_lines

        width = max(len("  ".join(pair.names)) for pair in self.pairs)
        yield f"{'':{width}}  {f'shared of {self.budget}':>14}  by chance  JSD over layers  over heads (bits)"
        for pair in self.pairs:
            shared = f"{len(pair.shared)} ({len(pair.shared) / self.budget:.0%})"
            apart = f"{pair.over_layers:15.4f}  {pair.over_heads:17.4f}"
            yield f"{'  '.join(pair.names):{width}}  {shared:>14}  {pair.by_chance:9.1f}  {apart}"
        if len(self.dropped) > 2:
            yield f"dropped by all {len(self.dropped)}: {len(self.common)}"
        yield ""
        yield from map_lines(self.dropped, self.grid)

    def facts(self) -> Mapping[str, object]:
        return {
            " and ".join(pair.names): f"{len(pair.shared)} of {self.budget} heads, {pair.by_chance:.1f} by chance, "
            f"JSD over layers {pair.over_layers:.4f} bits, over heads {pair.over_heads:.4f} bits"
            for pair in self.pairs
        }

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@step
def circuit_overlap(
    circuits: Annotated[
        Sequence[ChoiceLike],
        Option(
            "Circuits, head scores and pruned models, all of one model; - is a circuit on stdin.",
            heading="Model",
            metavar="CIRCUIT|SCORES|MODEL...",
            positional=True,
        ),
    ],
    *,
    budget: Annotated[
        int | None,
        Option(
            "Compare the first N heads each drops; unless given, as many as a model lacks or all circuits rank.",
            minimum=1,
            maximum=bounds.HEADS,
        ),
    ] = None,
    scope: Annotated[
        Literal["global", "layer"] | None,
        Option("Of head scores drop the lowest of all, or evenly over layers; global unless given."),
    ] = None,
    plot: Plot = None,
    force: Force = False,
) -> Overlaps:
    """Compare the heads that circuits, scores and pruned models drop.

    Example: hydractl circuit overlap circuit-avg.json taylor.json pruned.safetensors --budget 48 --plot heads.png

    Prints for each pair the heads that both drop, how many random choices from the same heads would share, and two
    Jensen-Shannon divergences of the dropped heads' distributions, in bits: over layers, 0 for the same and 1 for no
    layer in common, and over single heads. Of scores the lowest are dropped; a Hydra is compared member by member.
    Below stands a map of the heads each drops; `plot` draws it, and the pairs.

    >>> same = hydractl.circuit_overlap(["circuit.json", "circuit.json"], budget=3)
    >>> len(same.common), same.pairs[0].over_layers
    (3, 0.0)

    Raises:
        ArtifactError: a file cannot be read, drops no head, or is of another model than the first.
        CheckpointError: a model cannot be read.
        OptionError: fewer than two choices, one of fewer heads than the budget, or a model that lacks more.
        OutputError: the picture exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.circuit.overlap import all_heads, first_dropped, names_of, overlaps, shared_by, sizes
    from hydractl.report.drawing import check_picture, write_picture

    if plot is not None:
        check_picture(Path(plot), force)
    read = [choice for one in circuits for choice in as_choices(one, scope)]
    if scope is not None and not any(choice.kind == "scores" for choice in read):
        raise OptionError(f"`scope` {scope} is for head scores, and none are given: leave it out")
    named = dict(zip(names_of(read), read, strict=True))
    dropped = dict(zip(named, first_dropped(read, budget), strict=True))
    grid = sizes(read)
    pairs = overlaps(dropped, {name: one.restriction.among(all_heads(grid)) for name, one in named.items()})
    if plot is not None:
        from hydractl.report.heads import overlap_figure

        write_picture(overlap_figure(dropped, grid, pairs), Path(plot), force)
    return Overlaps(named, dropped, pairs, shared_by(list(dropped.values())), grid)


def _heads(heads: Sequence[Head]) -> list[dict[str, Any]]:
    return [head._asdict() for head in heads]
