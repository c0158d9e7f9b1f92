"""Pictures of panels that stand side by side in a file or flow on a page, and their bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from hydractl.report.escape import drawn, html
from hydractl.style import GRID, INK, SMALL, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 3  # panels in a row


class Key(NamedTuple):
    """What a colour, or a kind of line in it, stands for."""

    name: str
    color: str
    linestyle: Any = "-"


@dataclass(frozen=True)
class Panel:
    """One pair of axes: its title, empty where there is only one, and what draws it."""

    title: str
    draw: Callable[[Axes], None]


@dataclass(frozen=True)
class Picture:
    """Panels that belong together, and the names of the colours in them."""

    panels: Sequence[Panel]
    legend: Sequence[Key] = ()


@styled
def whole(picture: Picture) -> Figure:
    """All panels in one figure, the names of colours below them, where they hide nothing."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    rows, columns = arranged(len(picture.panels))
    size = (SMALL[0] * columns, SMALL[1] * rows) if rows * columns > 1 else (6.0, 3.4)
    figure = Figure(figsize=size, layout="constrained")
    for place, panel in enumerate(picture.panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        _draw(panel, axes)
        axes.set_title(drawn(panel.title))
    if picture.legend:
        lines = [
            Line2D([], [], color=key.color, linestyle=key.linestyle, linewidth=2.5, label=drawn(key.name))
            for key in picture.legend
        ]
        figure.legend(handles=lines, loc="outside lower center", ncols=min(6, 2 * columns))
    return figure


def arranged(count: int) -> tuple[int, int]:
    """Rows and columns for so many panels: as even as can be, and few enough across to be read in a column of text."""
    rows = -(-count // ACROSS)
    return rows, -(-count // rows)


def _draw(panel: Panel, axes: Axes) -> None:
    """A panel, with no more numbers below it than its width has room for."""
    from matplotlib.ticker import AutoLocator

    panel.draw(axes)
    locator = axes.xaxis.get_major_locator()
    if isinstance(locator, AutoLocator):
        locator.set_params(nbins=5)


@styled
def inline(picture: Picture) -> str:
    """The picture for a page: panels that flow, names as text, ink and grid in the colours of the page."""
    from matplotlib.figure import Figure

    parts = []
    for panel in picture.panels:
        figure = Figure(figsize=SMALL, layout="constrained")
        axes = figure.add_subplot()
        axes.set_facecolor("none")
        _draw(panel, axes)
        text = _svg(figure, facecolor="none")
        drawing = text[text.index("<svg") :].replace(INK, "currentColor").replace(GRID, "var(--line)")
        parts.append(f'<div class="panel"><div class="name">{html(panel.title)}</div>{drawing}</div>')
    names = "".join(f'<span style="--color:{key.color}">{html(key.name)}</span>' for key in picture.legend)
    return f'<div class="panels">{"".join(parts)}</div><div class="legend">{names}</div>'


def svg(figure: Figure) -> str:
    """A picture as SVG, the same bytes for the same numbers."""
    return _svg(figure, bbox_inches="tight")


@styled
def _svg(figure: Figure, **how: Any) -> str:
    out = BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, **how)
    return out.getvalue().decode()


def png(figure: Figure) -> bytes:
    """A picture as PNG at 150 dots per inch."""
    out = BytesIO()
    figure.savefig(out, format="png", dpi=150, bbox_inches="tight", metadata={"Software": None})
    return out.getvalue()
