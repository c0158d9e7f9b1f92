"""A picture of how heads separate ID from OOD samples: the distances of all, and the outputs of a few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hydractl.report.drawing import arranged
from hydractl.report.heatmap import Rows, draw_heat_maps, map_size
from hydractl.style import COLORS, INK, SMALL, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

SETS = {"ID": COLORS[0], "OOD": COLORS[1]}

Points = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Projection:
    """One head's outputs on their two principal components.

    Attributes:
        inside: `[N,2]`, the ID samples.
        outside: `[N,2]`, the OOD samples.
        shares: `[2]`, of the variance of both together that each component explains.
    """

    title: str
    inside: Points
    outside: Points
    shares: Points


def project(title: str, inside: Points, outside: Points) -> Projection:
    """The principal components of ID and OOD outputs together, so that neither is favoured.

    Args:
        inside: `[N,K]`.
        outside: `[N,K]`.
    """
    both = np.concatenate([inside, outside])
    left, values, _ = np.linalg.svd(both - both.mean(0), full_matrices=False)
    components = min(2, *both.shape)
    # A head of width 1 has one component only: the second is drawn flat.
    points = np.pad((left * values)[:, :components], ((0, 0), (0, 2 - components)))
    shares = np.pad(values[:components] ** 2 / max((values**2).sum(), np.finfo(float).tiny), (0, 2 - components))
    return Projection(title, points[: len(inside)], points[len(inside) :], shares)


@styled
def separation_figure(maps: Mapping[str, Rows], projections: Sequence[Projection]) -> Figure:
    """Heat maps of the distances on top, the heads' outputs below."""
    return stacked(maps, {"": projections}, label="score (higher = keep)")


def stacked(
    maps: Mapping[str, Rows],
    groups: Mapping[str, Sequence[Projection]],
    label: str,
    crossed: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType({}),
) -> Figure:
    """Heat maps on top, below them each group of projections under its name, and what their colours mean.

    Args:
        label, crossed: as in `draw_heat_maps`.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    width, height = map_size(maps)
    heights = [height, *(SMALL[1] * arranged(len(group))[0] + 0.3 * bool(name) for name, group in groups.items())]
    width = max(width, *(SMALL[0] * arranged(len(group))[1] for group in groups.values()))
    figure = Figure(figsize=(width, sum(heights) + 0.5), layout="constrained")
    top, *parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    draw_heat_maps(top, maps, crossed, label)
    for part, (name, projections) in zip(parts, groups.items(), strict=True):
        part.suptitle(name)
        _draw_projections(part, projections)
    points = [Line2D([], [], marker="o", linestyle="", color=color, label=name) for name, color in SETS.items()]
    cross = Line2D([], [], marker="X", linestyle="", color="none", markeredgecolor=INK, label="mean of either")
    figure.legend(handles=[*points, cross], loc="outside lower center", ncols=3)
    return figure


def _draw_projections(figure: SubFigure, projections: Sequence[Projection]) -> None:
    rows, columns = arranged(len(projections))
    for place, one in enumerate(projections):
        axes = figure.add_subplot(rows, columns, place + 1)
        clouds = dict(zip(SETS.values(), (one.inside, one.outside), strict=True))
        for color, points in clouds.items():
            axes.scatter(points[:, 0], points[:, 1], s=9, color=color, alpha=0.5, linewidths=0)
        for color, points in clouds.items():
            axes.scatter(
                points[:, 0].mean(), points[:, 1].mean(), s=80, marker="X", color=color, edgecolors=INK, linewidths=0.8
            )
        x, y = (f"PC {number} ({share:.0%})" for number, share in enumerate(one.shares, 1))
        axes.set(title=one.title, xlabel=x, ylabel=y)
        axes.title.set_fontsize(9)
