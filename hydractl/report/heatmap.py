"""A picture of a number per head, layers by heads, in a terminal or a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from hydractl.report.drawing import arranged
from hydractl.report.escape import drawn
from hydractl.style import draw_matrix, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

SHADES = " ░▒▓█"
GONE = " x "  # in the place of a head that the network does not have

Rows = Sequence[Sequence[float | None]]


def heat_map(name: str, rows: Rows) -> list[str]:
    """Lines with a row per layer and a cell per head, the darker the higher; the last line says what shades mean."""
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


def extent(rows: Rows) -> tuple[float, float]:
    """The smallest and the largest value of the heads that are there."""
    values = [value for row in rows for value in row if value is not None]
    return min(values), max(values)


@styled
def heat_map_figure(maps: Mapping[str, Rows]) -> Figure:
    """One panel per name with a row per layer and a column per head."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=map_size(maps), layout="constrained")
    draw_heat_maps(figure, maps)
    return figure


def map_size(maps: Mapping[str, Rows]) -> tuple[float, float]:
    """Inches in which heat maps can be read: width, height."""
    rows, columns = arranged(len(maps))
    return 1 + 3 * columns, rows * map_height(max(map(len, maps.values())))


def map_height(layers: int) -> float:
    """Inches for a row per layer and what is written about them, of which the name of the colours is the longest."""
    return 1.2 + 0.2 * max(5, layers)


def draw_heat_maps(
    figure: Figure | SubFigure,
    maps: Mapping[str, Rows],
    crossed: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType({}),
    label: str = "score (higher = keep)",
) -> None:
    """Draws the panels into a figure, or into a part of one.

    Args:
        maps: a value per layer and head; one that the network does not have is left blank.
        crossed: layer and head of those to cross out, by the map.
        label: what the values are.
    """
    rows, columns = arranged(len(maps))
    for place, (name, cells) in enumerate(maps.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        # Layer 0 on top, as in every map of heads.
        image = draw_matrix(axes, np.array(cells, dtype=np.float64), cmap="viridis", aspect="auto")
        for layer, head in crossed.get(name, ()):
            axes.plot(head, layer, marker="x", color="white", markeredgewidth=3, ms=7)
            axes.plot(head, layer, marker="x", color="red", ms=6)
        axes.set(title=drawn(name), xlabel="head", ylabel="layer")
        figure.colorbar(image, ax=axes, label=label)
