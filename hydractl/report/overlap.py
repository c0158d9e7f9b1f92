"""Which heads are dropped by what, drawn side by side: as text and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hydractl.checkpoint.heads import Head
from hydractl.report.drawing import arranged
from hydractl.report.escape import drawn
from hydractl.report.heatmap import map_height
from hydractl.report.summary import DROPPED, KEPT
from hydractl.style import draw_matrix, styled, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

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


@styled
def overlap_figure(dropped: Rankings, sizes: Sizes, pairs: Sequence[Overlap]) -> Figure:
    """Panels for each tower: when each choice drops which head, and how many do; below, how alike each pair is."""
    from matplotlib.figure import Figure

    rows, columns = arranged(len(dropped) + 1)
    heights = [*(rows * map_height(layers) for layers, _ in sizes.values()), 1.9 + 0.35 * len(dropped)]
    figure = Figure(figsize=(3.3 * max(3, columns), sum(heights)), layout="constrained")
    *towers, bottom = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    longest = max(2, *map(len, dropped.values()))
    for part, (tower, size) in zip(towers, sizes.items(), strict=True):
        grids = {name: _order(ranking, tower, size) for name, ranking in dropped.items()}
        counts = np.sum([~np.isnan(grid) for grid in grids.values()], axis=0).astype(float)
        counts[counts == 0] = np.nan
        for place, (name, grid) in enumerate(grids.items()):
            axes = part.add_subplot(rows, columns, place + 1)
            _draw(axes, grid, f"{drawn(name)}: {tower}", "dropped at step", cmap="viridis", vmin=1, vmax=longest)
        axes = part.add_subplot(rows, columns, len(grids) + 1)
        _draw(axes, counts, f"dropped by how many: {tower}", "how many", cmap="Reds", vmin=0, vmax=len(dropped))
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
        draw_matrix(axes, matrix, said=True, cmap="Blues", vmin=0, vmax=1)
        axes.set_title(title)
        axes.set_xticks(range(len(names)), list(map(drawn, names)), rotation=30, ha="right", fontsize=8)
        axes.set_yticks(range(len(names)), list(map(drawn, names)), fontsize=8)


def _order(ranking: Sequence[Head], tower: str, size: tuple[int, int]) -> NDArray[np.float64]:
    """`[L,H]`: the step at which a head goes, from 1; NaN for one that stays."""
    grid = np.full(size, np.nan)
    for step, head in enumerate(ranking, 1):
        if head.tower == tower:
            grid[head.layer, head.head] = step
    return grid


def _draw(axes: Axes, grid: NDArray[np.float64], title: str, label: str, **look: Any) -> None:
    image = draw_matrix(axes, grid, aspect="auto", **look)
    axes.set(title=title, xlabel="head", ylabel="layer")
    bar = axes.figure.colorbar(image, ax=axes, label=label)
    whole_numbers(bar.ax.yaxis)
