"""`hydractl circuit`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hydractl.cli import console
from hydractl.cli.options import Force, Json, Plot

if TYPE_CHECKING:
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.artifact import Circuit
    from hydractl.circuit.overlap import Overlap

app = typer.Typer(
    name="circuit", help="Look at circuits and compare them.", no_args_is_help=True, pretty_exceptions_enable=False
)


@app.callback()
def circuit() -> None:
    """Look at circuits and compare them."""


@app.command()
def overlap(
    files: Annotated[list[str], typer.Argument(metavar="CIRCUIT...|-", help="Circuits of one model; - is stdin.")],
    budget: Annotated[
        int | None, typer.Option(min=1, help="Compare the first N heads each drops; as many as all rank unless given.")
    ] = None,
    plot: Plot = None,
    json: Json = False,
    force: Force = False,
) -> None:
    """Compare the heads that circuits drop.

    Example: hydractl circuit overlap circuit-acc.json circuit-ood.json circuit-avg.json --budget 48 --plot heads.png

    Prints for each pair the heads that both drop, how many random choices from the same heads would share, and the
    Jensen-Shannon divergence of the dropped heads' distributions over layers, in bits: 0 for the same, 1 for no layer
    in common. Below stands a map of the heads each drops; --plot draws it.
    """
    from hydractl.circuit.artifact import read_circuit
    from hydractl.circuit.overlap import choices, first_dropped, overlaps, shared_by, sizes
    from hydractl.report.picture import check_picture

    if plot is not None:
        check_picture(plot, force)
    circuits = [read_circuit(file) for file in files]
    dropped = dict(zip(_names(circuits), first_dropped(circuits, budget), strict=True))
    common, grid = shared_by(list(dropped.values())), sizes(circuits)
    pairs = overlaps(dropped, {name: choices(one, grid) for name, one in zip(dropped, circuits, strict=True)})
    if plot is not None:
        from hydractl.report.overlap import overlap_figure
        from hydractl.report.picture import write_picture

        write_picture(overlap_figure(dropped, grid), plot, force)
    if json:
        console.print_json(_as_json(circuits, dropped, pairs, common))
    else:
        print("\n".join(_lines(dropped, pairs, common, grid)))


def _names(circuits: Sequence[Circuit]) -> list[str]:
    """What tables call the circuits: their objectives, or where these are not apart the names of their files."""
    for names in (
        [circuit.objective or "" for circuit in circuits],
        [Path(circuit.name).stem for circuit in circuits],
        [circuit.name for circuit in circuits],
    ):
        if all(names) and len(set(names)) == len(names):
            return names
    return [f"{circuit.name} {number}" for number, circuit in enumerate(circuits, 1)]


def _lines(
    dropped: Mapping[str, Sequence[Head]],
    pairs: Sequence[Overlap],
    common: Sequence[Head],
    grid: Mapping[str, tuple[int, int]],
) -> Iterator[str]:
    from hydractl.report.overlap import map_lines

    budget = len(next(iter(dropped.values())))
    names = ["  ".join(pair.names) for pair in pairs]
    width = max(map(len, names))
    yield f"{'':{width}}  {f'shared of {budget}':>14}  by chance  layers' JSD (bits)"
    for name, pair in zip(names, pairs, strict=True):
        shared = f"{len(pair.shared)} ({len(pair.shared) / budget:.0%})"
        yield f"{name:{width}}  {shared:>14}  {pair.by_chance:9.1f}  {pair.divergence:18.4f}"
    if len(dropped) > 2:
        yield f"dropped by all {len(dropped)}: {len(common)}"
    yield ""
    yield from map_lines(dropped, grid)


def _as_json(
    circuits: Sequence[Circuit],
    dropped: Mapping[str, Sequence[Head]],
    pairs: Sequence[Overlap],
    common: Sequence[Head],
) -> dict[str, Any]:
    return {
        "budget": len(next(iter(dropped.values()))),
        "log_base": 2,
        "circuits": [
            {"name": name, "file": circuit.name, "objective": circuit.objective, "dropped": _heads(dropped[name])}
            for name, circuit in zip(dropped, circuits, strict=True)
        ],
        "pairs": [
            {
                "circuits": list(pair.names),
                "shared": _heads(pair.shared),
                "by_chance": pair.by_chance,
                "jensen_shannon": pair.divergence,
            }
            for pair in pairs
        ],
        "shared_by_all": _heads(common),
    }


def _heads(heads: Sequence[Head]) -> list[dict[str, Any]]:
    return [head._asdict() for head in heads]
