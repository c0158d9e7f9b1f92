"""What a network loses with each head that goes, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hydractl.report.drawing import Key, Panel, Picture
from hydractl.style import INK, line, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Key of a point, its name, and whether it is a share.
COLUMNS = (
    ("accuracy", "accuracy", True),
    ("nll", "NLL", False),
    ("mean_auroc", "AUROC", True),
    ("mean_fpr95", "FPR95", True),
    ("mean_aupr_out", "AUPR out", True),
)

Point = Mapping[str, Any]


def budget_lines(points: Sequence[Point]) -> Iterator[str]:
    """A line for each method and budget; figures of OOD detection are means over the OOD sets."""
    columns = _columns(points)
    width = max(len(point["method"]) for point in points)
    yield f"{'':{width}} dropped " + " ".join(f"{name:>9}" for _, name, _ in columns)
    for point in points:
        numbers = (f"{100 * point[key]:7.2f} %" if share else f"{point[key]:9.4f}" for key, _, share in columns)
        yield f"{point['method']:{width}} {point['dropped']:7} " + " ".join(numbers)


def budget_picture(points: Sequence[Point]) -> Picture:
    """A panel for each figure, against the number of heads that went, with a line for each method."""
    dense, methods = points[0], list(dict.fromkeys(point["method"] for point in points[1:]))

    def draw(axes: Axes, key: str, scale: float) -> None:
        axes.axhline(scale * dense[key], color=INK, linewidth=1, linestyle=":")
        for number, method in enumerate(methods):
            own = sorted((point["dropped"], scale * point[key]) for point in points[1:] if point["method"] == method)
            axes.plot(*zip(*own, strict=True), marker="o", markersize=4, **line(number))
        axes.set(xlabel="heads dropped")
        whole_numbers(axes.xaxis)

    panels = [
        Panel(f"{name} (%)" if share else f"{name} (nats)", partial(draw, key=key, scale=100 if share else 1))
        for key, name, share in _columns(points)
    ]
    lines = [Key(method, **line(number)) for number, method in enumerate(methods)]
    return Picture(panels, [Key(dense["method"], INK, ":"), *lines])


def _columns(points: Sequence[Point]) -> list[tuple[str, str, bool]]:
    return [column for column in COLUMNS if column[0] in points[0]]
