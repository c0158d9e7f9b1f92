"""Pictures: their look, and panels side by side, as the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from hydractl.checkpoint.output import refuse_existing, write_bytes
from hydractl.errors import OptionError, require
from hydractl.text import abridged, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
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


LONGEST_DRAWN = 48  # characters of a name in a picture, which grows with its names
ACROSS = 3  # panels in a row
#: The kinds of files, each without the date and the program's version, which would change its bytes.
METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def drawn(name: str) -> str:
    """Returns a name for a picture of matplotlib, shortened in its middle.

    matplotlib reads text between dollars as mathematics, and leaves names that begin with an underscore out of legends.
    """
    text = abridged(printable(name), LONGEST_DRAWN).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


class Key(NamedTuple):
    """The meaning of a colour, or of a kind of line in it."""

    name: str
    color: str
    linestyle: Any = "-"


def line_keys(names: Sequence[str]) -> list[Key]:
    """Returns the keys of numbered lines, which `line` gives their look."""
    return [Key(name, **line(place)) for place, name in enumerate(names)]


def panels(titles: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Returns a figure with axes side by side, one under each title; a single one may have an empty title."""
    from matplotlib.figure import Figure

    rows, columns = arranged(len(titles))
    size = (SMALL[0] * columns, SMALL[1] * rows) if rows * columns > 1 else (4.6, 3.0)
    figure = Figure(figsize=size, layout="constrained")
    every = [figure.add_subplot(rows, columns, place + 1) for place in range(len(titles))]
    for axes, title in zip(every, titles, strict=True):
        axes.locator_params(axis="x", nbins=5)  # the width has room for no more numbers
        axes.set_title(drawn(title))
    return figure, every


def explained(figure: Figure, legend: Sequence[Key]) -> Figure:
    """Returns the figure with the names of colours below its panels, where they hide nothing."""
    from matplotlib.lines import Line2D

    _, columns = arranged(len(figure.axes))
    lines = [
        Line2D([], [], color=key.color, linestyle=key.linestyle, linewidth=2.5, label=drawn(key.name)) for key in legend
    ]
    figure.legend(handles=lines, loc="outside lower center", ncols=min(6, 2 * columns))
    return figure


def arranged(count: int) -> tuple[int, int]:
    """Returns rows and columns for so many panels: even, and few enough across for a column of text."""
    rows = -(-count // ACROSS)
    return rows, -(-count // rows)


def inline(figure: Figure, name: str) -> str:
    """Returns a picture for a page: a drawing of each panel and one of the legend, which wrap where it is narrow.

    Names are text; ink and grid have the colours of the page.

    Args:
        name: of the picture on the page.
    """
    figure.draw_without_rendering()
    text = _saved(figure, ".svg", facecolor="none").decode().replace(INK, "currentColor").replace(GRID, "var(--line)")
    drawing = text[text.index("<g id=") : text.rindex("</svg>")].replace('"figure_1"', f'"picture-{name}"', 1)
    scale, drawings = 72 / figure.dpi, []  # points of SVG in a pixel
    for place, artist in enumerate((*figure.axes, *figure.legends)):
        extent = artist.get_tightbbox()
        assert extent is not None  # every panel and legend shows something
        box = extent.padded(4)
        left, top = scale * box.x0, 72 * figure.get_figheight() - scale * box.y1
        width, height = scale * box.width, scale * box.height
        look = f'class="{"panel" if place < len(figure.axes) else "legend"}" style="--width: {width:.0f}pt"'
        drawn = f'<use href="#picture-{name}"/>' if place else drawing  # shown again through another window
        drawings.append(f'<svg viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}" {look}>{drawn}</svg>')
    count = len(figure.axes)
    return f'<div class="panels">{"".join(drawings[:count])}</div>{"".join(drawings[count:])}'


def svg(figure: Figure) -> str:
    """Returns a picture as SVG."""
    return _saved(figure, ".svg", bbox_inches="tight").decode()


def png(figure: Figure) -> bytes:
    """Returns a picture as PNG at 150 dots per inch."""
    return _saved(figure, ".png", dpi=150, bbox_inches="tight")


def check_picture(path: Path, force: bool) -> None:
    """Raises an error if a picture cannot be written there, before long work starts.

    Raises:
        OptionError: not .png, .svg or .pdf, or matplotlib is not installed.
        OutputError: the file exists and `force` is not set.
    """
    if path.suffix not in METADATA:
        raise OptionError(f"`plot` {path}: expected a name that ends in {' or '.join(METADATA)}")
    require("matplotlib")
    refuse_existing(path, force)


def write_picture(figure: Figure, path: Path, force: bool) -> None:
    """Writes a picture in the format that its name ends in."""
    write_bytes(path, _saved(figure, path.suffix, dpi=150), force)


@styled
def _saved(figure: Figure, suffix: str, **look: Any) -> bytes:
    out = BytesIO()
    figure.savefig(out, format=suffix[1:], metadata=METADATA[suffix], **look)
    return out.getvalue()
