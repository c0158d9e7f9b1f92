"""A picture of a number per head, layers by heads, in a terminal or a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hydractl.report.escape import drawn

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


def heat_map_figure(maps: Mapping[str, Rows]) -> Figure:
    """One panel per name with a row per layer and a column per head."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1 + 4 * len(maps), 4), layout="constrained")
    draw_heat_maps(figure, maps)
    return figure


def draw_heat_maps(
    figure: Figure | SubFigure, maps: Mapping[str, Rows], crossed: Sequence[tuple[int, int]] = ()
) -> None:
    """Draws the panels side by side into a figure, or into a part of one.

    Args:
        maps: a value per layer and head; one that the network does not have is left blank.
        crossed: layer and head of those to cross out.
    """
    import numpy as np

    axes = figure.subplots(1, len(maps), squeeze=False)
    for axis, (name, rows) in zip(axes[0], maps.items(), strict=True):
        # Layer 0 on top, as in every map of heads.
        image = axis.imshow(np.array(rows, dtype=np.float64), cmap="viridis", aspect="auto")
        for layer, head in crossed:
            axis.plot(head, layer, marker="x", color="white", markeredgecolor="red", ms=7)
        axis.set(title=drawn(name), xlabel="head", ylabel="layer")
        for ticks in (axis.xaxis, axis.yaxis):
            ticks.get_major_locator().set_params(integer=True, min_n_ticks=1)
        figure.colorbar(image, ax=axis, label="score (higher = keep)")
