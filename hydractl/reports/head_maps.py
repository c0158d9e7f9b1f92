"""Maps with a row per layer and a column per head, on a terminal and as pictures, and the outputs of a few heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hydractl.drawing import COLORS, INK, SMALL, arranged, draw_matrix, drawn, styled
from hydractl.text import aligned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from hydractl.circuit.separation import Separated

SHADES = " ░▒▓█"
GONE = " x "  # in the place of a head that the network does not have
SETS = {"ID": COLORS[0], "OOD": COLORS[1]}

#: A value per layer and head; None for a head that the network does not have.
HeadMap = Sequence[Sequence[float | None]]
#: Layer and head of each cross, by the name of its map.
Crosses = Mapping[str, Sequence[tuple[int, int]]]
NO_CROSSES: Crosses = MappingProxyType({})
Points = NDArray[np.float64]


def heat_map(name: str, rows: HeadMap) -> list[str]:
    """Returns lines with a row per layer and a cell per head, darker for higher; the last one explains the shades."""
    low, high = extent(rows)
    step = (high - low) / len(SHADES) or 1.0

    def cell(value: float | None) -> str:
        return GONE if value is None else SHADES[min(int((value - low) / step), len(SHADES) - 1)] * 3

    lines = [f"{name}   head" + "".join(f"{head:4}" for head in range(len(rows[0])))]
    for layer, row in enumerate(rows):
        lines.append(f"{'layer ' if layer == 0 else '':>{len(name) + 3}}{layer:4} " + " ".join(map(cell, row)))
    gone = "; x = gone" if any(value is None for row in rows for value in row) else ""
    lines.append(f"{'':>{len(name) + 3}}     from {low:.4g} (light) to {high:.4g} (dark); higher = keep{gone}")
    return lines


def extent(rows: HeadMap) -> tuple[float, float]:
    """Returns the smallest and the largest value."""
    values = [value for row in rows for value in row if value is not None]
    return min(values), max(values)


@styled
def heat_map_figure(maps: Mapping[str, HeadMap]) -> Figure:
    """Returns a figure with a panel per name, a row per layer and a column per head."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_map_size(maps), layout="constrained")
    _draw_heat_maps(figure, maps, "score (higher = keep)")
    return figure


def _map_size(maps: Mapping[str, HeadMap]) -> tuple[float, float]:
    """Returns width and height in inches at which heat maps can be read."""
    rows, columns = arranged(len(maps))
    return 1 + 3 * columns, rows * map_height(max(map(len, maps.values())))


def map_height(layers: int) -> float:
    # A row per layer and the text around them; the longest is the name of the colours.
    return 1.2 + 0.2 * max(5, layers)


def _draw_heat_maps(
    figure: Figure | SubFigure, maps: Mapping[str, HeadMap], label: str, crossed: Crosses = NO_CROSSES
) -> None:
    rows, columns = arranged(len(maps))
    for place, (name, cells) in enumerate(maps.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        draw_map(axes, np.array(cells, dtype=np.float64), drawn(name), label, cmap="viridis")
        for layer, head in crossed.get(name, ()):
            axes.plot(head, layer, marker="x", color="white", markeredgewidth=3, ms=7)
            axes.plot(head, layer, marker="x", color="red", ms=6)


def draw_map(axes: Axes, cells: NDArray[np.float64], title: str, label: str, **look: Any) -> Any:
    """Draws one map, layer 0 on top, and returns the bar that explains its colours."""
    image = draw_matrix(axes, cells, aspect="auto", **look)
    axes.set(title=title, xlabel="head", ylabel="layer")
    return axes.figure.colorbar(image, ax=axes, label=label)


def separated_lines(separated: Separated) -> Iterator[str]:
    """Yields lines for the kept and the dropped heads of the last layer and of all layers."""
    yield from aligned(
        [
            ["", "heads", "Euclidean", "Mahalanobis"],
            *(
                [f"{place} {name}", str(group.heads), _distance(group.euclidean), _distance(group.mahalanobis)]
                for place, groups in (("last layer", separated.last), ("all layers", separated.all))
                for name, group in groups.items()
            ),
        ]
    )


def _distance(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


@dataclass(frozen=True, eq=False)
class Projection:
    """One head's outputs on their two principal components."""

    title: str
    id_outputs: Points  # `[N,2]`, the ID samples
    ood_outputs: Points  # `[N,2]`, the OOD samples
    shares: Points  # `[2]`, of the variance of both together that each component explains


def project(title: str, id_outputs: Points, ood_outputs: Points) -> Projection:
    """Returns the outputs on the principal components of ID and OOD together, which favour neither.

    Args:
        id_outputs: `[N,K]`.
        ood_outputs: `[N,K]`.
    """
    both = np.concatenate([id_outputs, ood_outputs])
    left, values, _ = np.linalg.svd(both - both.mean(0), full_matrices=False)
    components = min(2, *both.shape)
    # A head of width 1 has one component only: the second is drawn flat.
    points = np.pad((left * values)[:, :components], ((0, 0), (0, 2 - components)))
    shares = np.pad(values[:components] ** 2 / max((values**2).sum(), np.finfo(float).tiny), (0, 2 - components))
    return Projection(title, points[: len(id_outputs)], points[len(id_outputs) :], shares)


@styled
def separation_figure(
    maps: Mapping[str, HeadMap],
    groups: Mapping[str, Sequence[Projection]],
    label: str = "score (higher = keep)",
    crossed: Crosses = NO_CROSSES,
) -> Figure:
    """Returns heat maps with each group of projections below them under its name.

    Args:
        groups: projections by name; an empty group is left out.
        label: the meaning of the maps' values.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    groups = {name: group for name, group in groups.items() if group}
    width, height = _map_size(maps)
    heights = [height, *(SMALL[1] * arranged(len(group))[0] + 0.3 * bool(name) for name, group in groups.items())]
    width = max([width, *(SMALL[0] * arranged(len(group))[1] for group in groups.values())])
    figure = Figure(figsize=(width, sum(heights) + 0.5), layout="constrained")
    top, *parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    _draw_heat_maps(top, maps, label, crossed)
    for part, (name, projections) in zip(parts, groups.items(), strict=True):
        part.suptitle(name)
        _draw_projections(part, projections)
    points = [Line2D([], [], marker="o", linestyle="", color=color, label=name) for name, color in SETS.items()]
    cross = Line2D([], [], marker="X", linestyle="", color="none", markeredgecolor=INK, label="mean of either")
    figure.legend(handles=[*points, cross], loc="outside lower center", ncols=3)
    return figure


def _draw_projections(figure: SubFigure, projections: Sequence[Projection]) -> None:
    rows, columns = arranged(len(projections))
    for place, projection in enumerate(projections):
        axes = figure.add_subplot(rows, columns, place + 1)
        clouds = dict(zip(SETS.values(), (projection.id_outputs, projection.ood_outputs), strict=True))
        for color, points in clouds.items():
            axes.scatter(points[:, 0], points[:, 1], s=9, color=color, alpha=0.5, linewidths=0)
        for color, points in clouds.items():
            x, y = points.mean(0)
            axes.scatter(x, y, s=80, marker="X", color=color, edgecolors=INK, linewidths=0.8)
        first, second = (f"PC {number} ({share:.0%})" for number, share in enumerate(projection.shares, 1))
        axes.set(title=projection.title, xlabel=first, ylabel=second)
        axes.title.set_fontsize(9)
