"""The look of every picture: colours, letters, lines and ticks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.image import AxesImage
    from numpy.typing import ArrayLike

P = ParamSpec("P")
R = TypeVar("R")

COLORS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2", "#9c6b4e", "#ff8ab7", "#97bbf5", "#9498a0")
#: What a page on a dark background shows in its own colours, and what shows on any.
INK, GRID, GREY = "#1b1e23", "#e8e8e8", "#9aa0a8"
SMALL = (3.6, 2.8)  # inches: on a telephone a panel is as wide as the page, and its letters are as tall as those
STYLE: Any = {
    "svg.hashsalt": "hydractl",
    "svg.fonttype": "none",  # text stays text: it can be selected, and the file is small
    "font.family": "sans-serif",
    "font.size": 9,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "axes.titlesize": 10,
    "figure.titlesize": 11,
    "legend.frameon": False,
    "legend.fontsize": 8,
}


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Wraps a function that makes or writes a figure, so that it uses this style."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        import matplotlib as mpl

        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


def line(place: int) -> dict[str, Any]:
    """Returns the look of a numbered line: colours repeat after ten, and are then dashed."""
    return {"color": COLORS[place % len(COLORS)], "linestyle": ("-", "--")[place // len(COLORS) % 2]}


def whole_numbers(*scales: Axis) -> None:
    """Sets ticks at whole numbers only, for counts."""
    from matplotlib.ticker import MaxNLocator

    for scale in scales:
        scale.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def draw_matrix(axes: Axes, cells: ArrayLike, **look: Any) -> AxesImage:
    """Draws a matrix with its first row on top and lines between cells; NaN stays empty.

    Args:
        look: keywords of `imshow`.
    """
    import numpy as np

    cells = np.asarray(cells, dtype=np.float64)
    image = axes.imshow(cells, **look)
    rows, columns = cells.shape
    whole_numbers(axes.xaxis, axes.yaxis)
    axes.spines[:].set_visible(True)
    axes.grid(False)
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    axes.grid(which="minor", color=GRID, linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    return image
