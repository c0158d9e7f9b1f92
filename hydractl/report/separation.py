"""A picture of how heads separate ID from OOD samples: the distances of all, and the outputs of a few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hydractl.report.drawing import COLORS
from hydractl.report.heatmap import Rows, draw_heat_maps

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

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


def separation_figure(maps: Mapping[str, Rows], projections: Sequence[Projection]) -> Figure:
    """Heat maps of the distances on top, the heads' outputs below."""
    from matplotlib.figure import Figure

    columns = max(len(maps), len(projections))
    figure = Figure(figsize=(3.6 * columns, 7), layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False)[:, 0]
    draw_heat_maps(top, maps)
    draw_projections(bottom, projections)
    return figure


def draw_projections(figure: SubFigure, projections: Sequence[Projection]) -> None:
    """A panel for each projection, side by side."""
    panels = figure.subplots(1, len(projections), squeeze=False)[0]
    for axes, one in zip(panels, projections, strict=True):
        for name, points, color in (("ID", one.inside, COLORS[0]), ("OOD", one.outside, COLORS[1])):
            axes.scatter(*points.T, s=9, color=color, alpha=0.5, linewidths=0, label=name)
        for points, color in ((one.inside, COLORS[0]), (one.outside, COLORS[1])):
            axes.scatter(*points.mean(0), s=90, marker="X", color=color, edgecolors="black", linewidths=0.8)
        x, y = (f"PC {number}, {share:.0%} of the variance" for number, share in enumerate(one.shares, 1))
        axes.set(title=one.title, xlabel=x, ylabel=y)
        axes.title.set_fontsize(9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, title="crosses are centroids", frameon=False)
