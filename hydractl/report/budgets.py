"""What a network loses with each head that goes, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hydractl.report.drawing import COLORS
from hydractl.report.escape import drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def budget_figure(points: Sequence[Point]) -> Figure:
    """A panel for each figure, against the number of heads that went, with a line for each method."""
    from matplotlib.figure import Figure

    columns = _columns(points)
    figure = Figure(figsize=(3.4 * len(columns) + 1.6, 3.4), layout="constrained")
    panels = figure.subplots(1, len(columns), squeeze=False)[0]
    dense, methods = points[0], list(dict.fromkeys(point["method"] for point in points[1:]))
    for axes, (key, name, share) in zip(panels, columns, strict=True):
        scale = 100 if share else 1
        axes.axhline(scale * dense[key], color="black", linewidth=1, linestyle=":", label=drawn(dense["method"]))
        for number, method in enumerate(methods):
            own = sorted((point["dropped"], scale * point[key]) for point in points[1:] if point["method"] == method)
            style = ("-", "--")[number // len(COLORS) % 2]
            axes.plot(*zip(*own, strict=True), marker="o", markersize=4, linestyle=style,
                      color=COLORS[number % len(COLORS)], label=drawn(method))  # fmt: skip
        axes.set(title=f"{name} (%)" if share else f"{name} (nats)", xlabel="heads dropped")
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    return figure


def _columns(points: Sequence[Point]) -> list[tuple[str, str, bool]]:
    return [column for column in COLUMNS if column[0] in points[0]]
