"""How pictures are drawn: their style, panels that stand side by side or flow, and their bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from hydractl.report.escape import drawn, html

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2", "#9c6b4e", "#ff8ab7", "#97bbf5", "#9498a0")
WIDE = 4  # panels in a row
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
    "axes.titlesize": 10,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Panel:
    """One pair of axes: its title, empty where there is only one, and what draws it."""

    title: str
    draw: Callable[[Axes], None]


@dataclass(frozen=True)
class Picture:
    """Panels that belong together, and the names of the colours in them."""

    panels: Sequence[Panel]
    legend: Sequence[tuple[str, str]] = ()


def whole(picture: Picture) -> Figure:
    """All panels in one figure, the names of colours below them, where they hide nothing."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    count = len(picture.panels)
    columns = min(count, WIDE)
    rows = -(-count // columns)
    size = (SMALL[0] * columns, SMALL[1] * rows) if count > 1 else (6.0, 3.4)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        for place, panel in enumerate(picture.panels):
            axes = figure.add_subplot(rows, columns, place + 1)
            panel.draw(axes)
            axes.set_title(drawn(panel.title))
        if picture.legend:
            lines = [Line2D([], [], color=color, linewidth=3, label=drawn(name)) for name, color in picture.legend]
            figure.legend(handles=lines, loc="outside lower center", ncols=min(6, 2 * columns), fontsize=8)
    return figure


def inline(picture: Picture) -> str:
    """The picture for a page: panels that flow, names as text, ink and grid in the colours of the page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    parts = []
    for panel in picture.panels:
        with mpl.rc_context(STYLE):
            figure = Figure(figsize=SMALL, layout="constrained")
            axes = figure.add_subplot()
            axes.set_facecolor("none")
            panel.draw(axes)
        text = _svg(figure, facecolor="none")
        drawing = text[text.index("<svg") :].replace(INK, "currentColor").replace(GRID, "var(--line)")
        parts.append(f'<div class="panel"><div class="name">{html(panel.title)}</div>{drawing}</div>')
    names = "".join(f'<span style="--color:{color}">{html(name)}</span>' for name, color in picture.legend)
    return f'<div class="panels">{"".join(parts)}</div><div class="legend">{names}</div>'


def svg(figure: Figure) -> str:
    """A picture as SVG, the same bytes for the same numbers."""
    return _svg(figure, bbox_inches="tight")


def _svg(figure: Figure, **how: Any) -> str:
    import matplotlib as mpl

    out = BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, **how)
    return out.getvalue().decode()


def png(figure: Figure) -> bytes:
    """A picture as PNG at 150 dots per inch."""
    out = BytesIO()
    figure.savefig(out, format="png", dpi=150, bbox_inches="tight", metadata={"Software": None})
    return out.getvalue()
