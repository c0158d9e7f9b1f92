"""How well kept and dropped heads separate ID from OOD samples, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hydractl.report.heatmap import Rows
from hydractl.report.separation import Projection, stacked
from hydractl.style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hydractl.analysis.heads import Group, Separated


def separated_lines(found: Separated) -> Iterator[str]:
    """A line for the kept and the dropped heads, of the last layer and of all."""
    yield f"{'':21}heads  Euclidean  Mahalanobis"
    for place, groups in (("last layer", found.last), ("all layers", found.all)):
        for name, group in groups.items():
            yield f"{place} {name:8}  {group.heads:5}  {_cell(group.euclidean):>9}  {_cell(group.mahalanobis):>11}"


def separated_facts(found: Separated) -> dict[str, object]:
    """What there is to know at a glance."""
    return {f"last layer, {name}": _fact(group) for name, group in found.last.items()}


@styled
def heads_figure(
    maps: Mapping[str, Rows],
    dropped: Mapping[str, Sequence[tuple[int, int]]],
    first: Sequence[Projection],
    last: Sequence[Projection],
) -> Figure:
    """Heat maps of the distances, dropped heads crossed out; below, the heads dropped first and those dropped last.

    Args:
        maps: a value per layer and head, None for a head that the network does not have.
        dropped: layer and head of each, by the map.
    """
    groups = {"dropped first": first, "dropped last": last}
    label = "distance of ID and OOD means"
    return stacked(maps, {name: group for name, group in groups.items() if group}, label, dropped)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _fact(group: Group) -> str:
    return f"{group.heads} heads, Euclidean {_cell(group.euclidean)}, Mahalanobis {_cell(group.mahalanobis)}"
