"""The pictures of a report, drawn from its JSON alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hydractl.errors import OptionError
from hydractl.report.columns import Entry, telling_means
from hydractl.report.escape import drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2", "#9c6b4e", "#ff8ab7", "#97bbf5", "#9498a0")
WIDE = 4  # panels in a row
STYLE: Any = {
    "svg.hashsalt": "hydractl",
    "svg.fonttype": "none",  # text stays text: it can be selected, and the file is small
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e8e8e8",
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "legend.frameon": False,
}


def check_plots() -> None:
    """Nothing, if pictures can be drawn: called before long work starts.

    Raises:
        OptionError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise OptionError("reports draw with matplotlib, which is missing: pip install 'hydractl[plots]'") from error


def figures(report: Mapping[str, Any]) -> dict[str, Figure]:
    """The pictures by file name, each with a title in words under `TITLES`; only those there are numbers for."""
    import matplotlib as mpl

    models: Mapping[str, Entry] = report["models"]
    with_curves = {name: entry["curves"] for name, entry in models.items() if entry.get("curves")}
    found: dict[str, Figure] = {}
    with mpl.rc_context(STYLE):
        if with_curves:
            if reliable := {name: curves for name, curves in with_curves.items() if "reliability" in curves}:
                found["reliability"] = _reliability(reliable)
            found["risk-coverage"] = _risk_coverage(with_curves)
        if any(curves["roc"] for curves in with_curves.values()):
            found["roc"] = _roc(with_curves)
            found["scores"] = _scores(with_curves)
        if (pictured := _cost(models)) is not None:
            found["cost"] = pictured
        if any(entry.get("shift") for entry in models.values()):
            found["shift"] = _shift(models)
    return found


TITLES = {
    "cost": "What detection costs: mean AUROC against multiply-adds; the area of a dot is its parameters",
    "roc": "ROC curves, OOD positive",
    "scores": "OOD scores of ID and OOD samples (higher = more OOD)",
    "reliability": "Reliability: accuracy of each bin of confidence; grey bars are the share of samples",
    "risk-coverage": "Risk against coverage: error rate of the most confident samples",
    "shift": "Accuracy and calibration under shift",
}


def svg(figure: Figure) -> str:
    """A picture as SVG, the same bytes for the same numbers."""
    import matplotlib as mpl

    out = BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    return out.getvalue().decode()


def png(figure: Figure) -> bytes:
    """A picture as PNG at 150 dots per inch."""
    out = BytesIO()
    figure.savefig(out, format="png", dpi=150, bbox_inches="tight", metadata={"Software": None})
    return out.getvalue()


def _panels(count: int, width: float = 3.0, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    columns = min(count, WIDE)
    rows = -(-count // columns)
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    axes = [figure.add_subplot(rows, columns, place + 1) for place in range(count)]
    return figure, axes


def _color(place: int) -> str:
    return COLORS[place % len(COLORS)]


def _reliability(curves: Mapping[str, Any]) -> Figure:
    figure, panels = _panels(len(curves))
    for place, (axes, (name, entry)) in enumerate(zip(panels, curves.items(), strict=True)):
        found = entry["reliability"]
        edges, total = found["edges"], sum(found["counts"])
        widths = [right - left for left, right in pairwise(edges)]
        axes.bar(edges[:-1], [n / total for n in found["counts"]], widths, align="edge", color="#dddddd")
        points = [(c, a) for c, a in zip(found["confidence"], found["accuracy"], strict=True) if c is not None]
        axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--")
        axes.plot(*zip(*points, strict=True), color=_color(place), marker="o", markersize=4)
        axes.set(title=drawn(name), xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
    return figure


def _risk_coverage(curves: Mapping[str, Any]) -> Figure:
    figure, (axes,) = _panels(1, 6.0, 3.4)
    for place, (name, entry) in enumerate(curves.items()):
        found = entry["risk_coverage"]
        axes.plot(found["coverage"], found["risk"], color=_color(place), label=drawn(name))
    axes.set(xlabel="coverage (share of samples answered)", ylabel="risk (error rate)", xlim=(0, 1))
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    return figure


def _roc(curves: Mapping[str, Any]) -> Figure:
    sets = _set_names(curves, "roc")
    figure, panels = _panels(len(sets))
    for axes, name in zip(panels, sets, strict=True):
        axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--")
        for place, (system, entry) in enumerate(curves.items()):
            if name in entry["roc"]:
                found = entry["roc"][name]
                rates = found["false_positive_rate"], found["true_positive_rate"]
                axes.plot(*rates, color=_color(place), label=drawn(system))
        axes.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="share of ID flagged", ylabel="share of OOD flagged")
        axes.set_title(drawn(name))
    _legend_below(figure, panels[0])
    return figure


def _scores(curves: Mapping[str, Any]) -> Figure:
    figure, panels = _panels(len(curves))
    sets = _set_names(curves, "roc")
    for axes, (system, entry) in zip(panels, curves.items(), strict=True):
        found = entry["scores"]
        axes.stairs(found["id"], found["edges"], fill=True, color="#cccccc", label="ID")
        for place, name in enumerate(sets):
            if name in found["ood"]:
                axes.stairs(found["ood"][name], found["edges"], color=_color(place), label=drawn(name), linewidth=1.3)
        axes.set(title=drawn(system), xlabel="score", ylabel="share of samples")
    _legend_below(figure, panels[0])
    return figure


def _legend_below(figure: Figure, axes: Axes) -> None:
    """One legend for all panels, where it hides nothing."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8)


def _set_names(curves: Mapping[str, Any], kind: str) -> list[str]:
    return list(dict.fromkeys(name for entry in curves.values() for name in entry[kind]))


def _cost(models: Mapping[str, Entry]) -> Figure | None:
    points = []
    for name, entry in models.items():
        # Of several means the one over all sets, which comes last; of one set its own number.
        means = telling_means(entry["ood"])
        single = next(iter(entry["ood"].values()), None)
        found = entry["ood_means"][means[-1]] if means else single
        if found and entry.get("cost"):
            points.append((name, entry["cost"], 100 * found["auroc"]))
    if len(points) < 2:
        return None
    figure, (axes,) = _panels(1, 6.0, 3.4)
    largest = max(cost["parameters"] for _, cost, _ in points)
    unit, letter = (1e9, "G") if max(cost["multiply_adds"] for _, cost, _ in points) >= 1e9 else (1e6, "M")
    for place, (_, cost, auroc) in enumerate(points):
        area = 25 + 215 * cost["parameters"] / largest
        axes.scatter(cost["multiply_adds"] / unit, auroc, s=area, color=_color(place), alpha=0.75, linewidths=0)
    axes.set(xlabel=f"multiply-adds for one sample ({letter})", ylabel="AUROC, mean over sets (%)")
    axes.margins(x=0.2, y=0.25)
    _name_points(axes, [(name, cost["multiply_adds"] / unit, auroc) for name, cost, auroc in points])
    return figure


def _name_points(axes: Axes, points: Sequence[tuple[str, float, float]]) -> None:
    """Writes names beside points; those of points of about one cost stand apart, joined to their points by a line."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    columns: list[list[tuple[str, float, float]]] = []
    for point in sorted(points, key=lambda point: point[1]):
        if columns and point[1] - columns[-1][-1][1] < 0.2 * (right - left):
            columns[-1].append(point)
        else:
            columns.append([point])
    for column in columns:
        column.sort(key=lambda point: point[2])
        start = max(x for _, x, _ in column) + 0.04 * (right - left)
        heights = _apart([y for _, _, y in column], 0.065 * (high - low))
        for (name, x, y), height in zip(column, heights, strict=True):
            line = {"arrowstyle": "-", "color": "#aaaaaa", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0}
            axes.annotate(drawn(name), (x, y), (start, height), va="center", fontsize=8, arrowprops=line)


def _apart(ascending: Sequence[float], gap: float) -> list[float]:
    """The values moved as little as keeps each at least `gap` from the next."""
    placed: list[float] = []
    for value in ascending:
        placed.append(max(value, placed[-1] + gap) if placed else value)
    shift = (sum(placed) - sum(ascending)) / len(placed)
    return [value - shift for value in placed]


def _shift(models: Mapping[str, Entry]) -> Figure:
    kinds = list(dict.fromkeys(kind for entry in models.values() for kind in entry.get("shift") or {}))
    figure, panels = _panels(2 * len(kinds) if len(kinds) > 1 else 2)
    for row, (metric, label) in enumerate((("accuracy", "accuracy (%)"), ("ece", "ECE (%)"))):
        for column, kind in enumerate(kinds):
            axes = panels[row * len(kinds) + column]
            _shift_lines(axes, models, kind, metric)
            axes.set(title=drawn(kind), xlabel="severity", ylabel=label)
    _legend_below(figure, panels[0])
    return figure


def _shift_lines(axes: Axes, models: Mapping[str, Entry], kind: str, metric: str) -> None:
    for place, (name, entry) in enumerate(models.items()):
        by_severity = (entry.get("shift") or {}).get(kind)
        if by_severity and metric in entry["id"]:
            severities: Sequence[int] = sorted(int(severity) for severity in by_severity)
            # Severity 0 is the data as it is.
            values = [entry["id"][metric], *(by_severity[str(severity)][metric] for severity in severities)]
            percent = [100 * value for value in values]
            axes.plot([0, *severities], percent, color=_color(place), marker="o", ms=3, label=drawn(name))
            axes.set_xticks([0, *severities])
