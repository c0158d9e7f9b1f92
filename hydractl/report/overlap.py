"""Which heads are dropped by what, drawn side by side: as text and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hydractl.checkpoint.heads import Head
from hydractl.report.escape import drawn
from hydractl.report.summary import DROPPED, KEPT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.image import AxesImage

    from hydractl.circuit.overlap import Overlap

Sizes = Mapping[str, tuple[int, int]]
Rankings = Mapping[str, Sequence[Head]]


def map_lines(dropped: Rankings, sizes: Sizes) -> Iterator[str]:
    """A map of each tower with a row per layer and a block per circuit, its dropped heads as dots."""
    for tower, (layers, heads) in sizes.items():
        width = max(heads, *map(len, dropped))
        yield f"{tower:8} " + "  ".join(f"{name:{width}}" for name in dropped).rstrip()
        for layer in range(layers):
            rows = (
                "".join(DROPPED if Head(tower, layer, head) in ranking else KEPT for head in range(heads))
                for ranking in dropped.values()
            )
            yield f"layer {layer:>2} " + "  ".join(f"{row:{width}}" for row in rows).rstrip()


def overlap_figure(dropped: Rankings, sizes: Sizes, pairs: Sequence[Overlap]) -> Figure:
    """A row of panels per tower: when each choice drops which head, and how many do; below, how alike each pair is."""
    from matplotlib.figure import Figure

    columns = len(dropped) + 1
    heights = [*(1.3 + 0.2 * layers for layers, _ in sizes.values()), 1.5 + 0.35 * len(dropped)]
    figure = Figure(figsize=(2.8 * max(3, columns), sum(heights)), layout="constrained")
    *towers, bottom = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, (tower, size) in zip(towers, sizes.items(), strict=True):
        row = part.subplots(1, columns, squeeze=False)[0]
        grids = {name: _order(ranking, tower, size) for name, ranking in dropped.items()}
        longest = max(len(ranking) for ranking in dropped.values())
        for axes, (name, grid) in zip(row, grids.items(), strict=False):
            image = _draw(axes, grid, f"{drawn(name)}: {tower}", "viridis", (1, max(2, longest)))
        part.colorbar(image, ax=row[:-1], label="dropped at step")
        counts = np.sum([~np.isnan(grid) for grid in grids.values()], axis=0).astype(float)
        counts[counts == 0] = np.nan
        image = _draw(row[-1], counts, f"dropped by how many: {tower}", "Reds", (0, len(dropped)))
        part.colorbar(image, ax=row[-1], ticks=range(1, len(dropped) + 1))
    _draw_pairs(bottom, list(dropped), len(next(iter(dropped.values()))), pairs)
    return figure


def _draw_pairs(figure: SubFigure, names: Sequence[str], budget: int, pairs: Sequence[Overlap]) -> None:
    """Three matrices, a row and a column per choice: heads shared, and both divergences."""
    panels: dict[str, tuple[float, Callable[[Overlap], float]]] = {
        "share of heads in common": (1.0, lambda pair: len(pair.shared) / budget),
        "JSD over layers, bits": (0.0, lambda pair: pair.over_layers),
        "JSD over heads, bits": (0.0, lambda pair: pair.over_heads),
    }
    for axes, (title, (own, value)) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        matrix = np.full((len(names), len(names)), own)
        for pair in pairs:
            a, b = map(names.index, pair.names)
            matrix[a, b] = matrix[b, a] = value(pair)
        axes.imshow(matrix, cmap="Blues", vmin=0, vmax=1)
        for (row, column), number in np.ndenumerate(matrix):
            axes.text(column, row, f"{number:.2f}", ha="center", color="white" if number > 0.6 else "black", fontsize=8)
        axes.set_xticks(range(len(names)), list(map(drawn, names)), rotation=30, ha="right", fontsize=8)
        axes.set_yticks(range(len(names)), list(map(drawn, names)), fontsize=8)
        axes.set_title(title, fontsize=9)


def _order(ranking: Sequence[Head], tower: str, size: tuple[int, int]) -> NDArray[np.float64]:
    """`[L,H]`: the step at which a head goes, from 1; NaN for one that stays."""
    grid = np.full(size, np.nan)
    for step, head in enumerate(ranking, 1):
        if head.tower == tower:
            grid[head.layer, head.head] = step
    return grid


def _draw(axes: Axes, grid: NDArray[np.float64], title: str, colors: str, limits: tuple[int, int]) -> AxesImage:
    image = axes.imshow(grid, cmap=colors, vmin=limits[0], vmax=limits[1], aspect="auto")
    axes.set(title=title, xlabel="head", ylabel="layer")
    axes.title.set_fontsize(9)
    layers, heads = grid.shape
    axes.set_xticks(range(0, heads, 1 + heads // 9))
    axes.set_yticks(range(0, layers, 1 + layers // 13))
    # Lines between cells show the heads that stay, which are white.
    axes.set_xticks(np.arange(heads + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(layers + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#d8d8d8", linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    return image
