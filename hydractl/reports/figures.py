"""The pictures of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hydractl.drawing import COLORS, GREY, Key, drawn, explained, line, line_keys, panels, styled
from hydractl.evaluation.results import Curves, Results, SystemResult
from hydractl.reports.columns import Column, telling_means

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 8  # systems with a colour each: more colours cannot be told apart


def told_apart(models: Mapping[str, SystemResult]) -> tuple[Mapping[str, SystemResult], str]:
    """Returns the systems that pictures tell apart, the first and the best, and the number that ranked them.

    Returns:
        at most `MOST` systems in their order, and the name of a column, empty if these are all systems.
    """
    if len(models) <= MOST:
        return models, ""
    column = _mean_auroc(models) or Column("NLL", ("id", "nll"), "plain", "lower")
    sign = -1 if column.better == "higher" else 1
    numbers = ((name, column.value(entry)) for name, entry in models.items())
    ranked = sorted((sign * value, place, name) for place, (name, value) in enumerate(numbers) if value is not None)
    chosen = dict.fromkeys([next(iter(models)), *(name for *_, name in ranked), *models])
    shown = set(list(chosen)[:MOST])
    return {name: entry for name, entry in models.items() if name in shown}, column.name


@styled
def pictures(report: Results) -> dict[str, Figure]:
    """Returns the pictures by file name, without those that the report has no numbers for; see `TITLES`."""
    every = report.models
    models, _ = told_apart(every)
    curves = {name: system.curves for name, system in models.items() if system.curves}
    figures = {
        "cost": _cost(every, list(models)),
        "roc": _roc(curves),
        "scores": _scores(curves),
        "reliability": _reliability(curves),
        "risk-coverage": _risk_coverage(curves),
        "agreement": _agreement(models),
        "shift": _shift(models),
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


TITLES = {
    "cost": "What it costs: detection and NLL against multiply-adds; the dashed line joins the best for their cost",
    "roc": "ROC curves: OOD is positive; towards the upper left is better",
    "scores": "OOD scores of ID and OOD samples: higher means more OOD, and apart is better",
    "reliability": "Reliability: accuracy by confidence; on the diagonal is better, grey bars are the share of samples",
    "risk-coverage": "Risk against coverage: the error rate of the most confident samples; lower is better",
    "agreement": "How often members disagree: on OOD samples they should more often than on ID samples",
    "shift": "Accuracy and calibration under shift; severity 0 is the data as it is",
}

#: Ticks of an axis of shares, as far as they are reached.
SHARES = (0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1)


def _color(place: int) -> str:
    return COLORS[place % len(COLORS)]


def _reliability(curves: Mapping[str, Curves]) -> Figure | None:
    # A confidence of its own has no diagram.
    diagrams = [
        (name, _color(place), entry.reliability)
        for place, (name, entry) in enumerate(curves.items())
        if entry.reliability
    ]
    if not diagrams:
        return None
    figure, every = panels([name for name, _, _ in diagrams])
    for axes, (_, color, reliability) in zip(every, diagrams, strict=True):
        edges, total = reliability.edges, sum(reliability.counts)
        widths = [right - left for left, right in pairwise(edges)]
        axes.bar(edges[:-1], [n / total for n in reliability.counts], widths, align="edge", color=GREY, alpha=0.35)
        points = [(c, a) for c, a in zip(reliability.confidence, reliability.accuracy, strict=True) if c is not None]
        _diagonal(axes)
        axes.plot(*zip(*points, strict=True), color=color, marker="o", markersize=4, clip_on=False)
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
    return figure


def _risk_coverage(curves: Mapping[str, Curves]) -> Figure | None:
    if not curves:
        return None
    figure, (axes,) = panels([""])
    for place, entry in enumerate(curves.values()):
        axes.plot(entry.risk_coverage.coverage, entry.risk_coverage.risk, color=_color(place))
    axes.set(xlabel="coverage (share of samples answered)", ylabel="risk (error rate)", xlim=(0, 1))
    axes.set_ylim(bottom=0)
    return explained(figure, line_keys(list(curves)))


def _roc(curves: Mapping[str, Curves]) -> Figure | None:
    sets = _set_names(curves)
    if not sets:
        return None
    figure, every = panels(sets)
    for axes, name in zip(every, sets, strict=True):
        _diagonal(axes)
        for place, entry in enumerate(curves.values()):
            if roc := entry.roc.get(name):
                axes.plot(roc.false_positive_rate, roc.true_positive_rate, color=_color(place))
        axes.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="share of ID flagged", ylabel="share of OOD flagged")
    return explained(figure, line_keys(list(curves)))


def _scores(curves: Mapping[str, Curves]) -> Figure | None:
    sets = _set_names(curves)
    if not sets:
        return None
    figure, every = panels(list(curves))
    for axes, entry in zip(every, curves.values(), strict=True):
        scores = entry.scores
        axes.stairs(scores.id, scores.edges, fill=True, color=GREY, alpha=0.6)
        for place, name in enumerate(sets):
            if name in scores.ood:
                axes.stairs(scores.ood[name], scores.edges, linewidth=1.5, **line(place))
        # Most samples of a sure network fall into one bin: the root of a share shows the others as well.
        axes.set_yscale("function", functions=(np.sqrt, np.square))
        axes.set(xlabel="OOD score", ylabel="share of samples (root scale)", ylim=(0, None))
        axes.set_yticks([tick for tick in SHARES if tick <= axes.get_ylim()[1]], minor=False)
    return explained(figure, [Key("ID", GREY), *line_keys(sets)])


def _diagonal(axes: Axes) -> None:
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")


def _set_names(curves: Mapping[str, Curves]) -> list[str]:
    return list(dict.fromkeys(name for entry in curves.values() for name in entry.roc))


@dataclass(frozen=True)
class _Point:
    """A system in the picture of the cost: multiply-adds, a number, and its interval if that is known."""

    cost: float
    value: float
    interval: tuple[float, float] | None
    color: str


def _cost(models: Mapping[str, SystemResult], shown: Sequence[str]) -> Figure | None:
    """Returns a picture of all systems; those missing from the other pictures are grey."""
    costs = [entry.cost.multiply_adds for entry in models.values() if entry.cost]
    if len(costs) < 2:
        return None
    columns = filter(None, (_mean_auroc(models), Column("NLL", ("id", "nll"), "plain", "lower")))
    plots = [(column, points) for column in columns if len(points := _points(models, shown, column)) > 1]
    if not plots:
        return None
    figure, every = panels([column.name for column, _ in plots])
    for axes, (column, points) in zip(every, plots, strict=True):
        _draw_cost(axes, points, column.better == "higher")
    return explained(figure, line_keys(shown))


def _mean_auroc(models: Mapping[str, SystemResult]) -> Column | None:
    """Returns the column of the mean over OOD sets, or of the only set; None without sets."""
    sets = {name: result for entry in models.values() for name, result in entry.ood.items()}
    if means := telling_means(sets):
        return Column("AUROC, mean over sets (%)", ("ood_means", means[-1], "auroc"), "percent", "higher")
    return Column("AUROC (%)", ("ood", next(iter(sets)), "auroc"), "percent", "higher") if sets else None


def _points(models: Mapping[str, SystemResult], shown: Sequence[str], column: Column) -> list[_Point]:
    points, scale = [], 100 if column.kind == "percent" else 1
    for name, entry in models.items():
        value, ends = column.value(entry), column.ends(entry)
        if value is not None and entry.cost:
            interval = None if ends is None else (scale * ends[0], scale * ends[1])
            color = _color(shown.index(name)) if name in shown else GREY
            points.append(_Point(entry.cost.multiply_adds, scale * value, interval, color))
    return sorted(points, key=lambda point: point.color != GREY)  # grey ones hide no other


def _draw_cost(axes: Axes, points: Sequence[_Point], higher: bool) -> None:
    from matplotlib.ticker import EngFormatter

    best = _best_for_their_cost(points, higher)
    axes.plot([point.cost for point in best], [point.value for point in best], color=GREY, linestyle="--", linewidth=1)
    for point in points:
        if point.interval:
            axes.plot([point.cost] * 2, point.interval, color=point.color, linewidth=1.5)
        axes.plot(point.cost, point.value, color=point.color, marker="o", markersize=7)
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.set(xlabel="multiply-adds for one sample", ylabel=f"{'higher' if higher else 'lower'} is better")
    axes.margins(x=0.15, y=0.2)


def _best_for_their_cost(points: Sequence[_Point], higher: bool) -> list[_Point]:
    """Returns the points that no cheaper point equals or beats, cheapest first."""
    sign = 1 if higher else -1
    best: list[_Point] = []
    for spot in sorted(points, key=lambda spot: (spot.cost, -sign * spot.value)):
        if not best or sign * spot.value > sign * best[-1].value:
            best.append(spot)
    return best


def _agreement(models: Mapping[str, SystemResult]) -> Figure | None:
    several = {name: entry for name, entry in models.items() if entry.members > 1}
    sets = list(dict.fromkeys(name for entry in several.values() for name in entry.ood))
    if not several:
        return None
    colors = {name: _color(place) for place, name in enumerate(models) if name in several}
    figure, (axes,) = panels([""])
    width = 0.8 / len(several)
    for number, (name, entry) in enumerate(several.items()):
        parts = [entry.id, *(entry.ood.get(name) for name in sets)]
        heights = [100 * (part.disagreement or 0) if part else 0 for part in parts]
        axes.bar([left + number * width for left in range(len(parts))], heights, width, color=colors[name])
    middle = [left + 0.4 - width / 2 for left in range(len(sets) + 1)]
    axes.set_xticks(middle, ["ID", *map(drawn, sets)], rotation=0 if len(sets) < 4 else 30, ha="center")
    axes.set(ylabel="pairs that disagree (%)", ylim=(0, None))
    return explained(figure, [Key(name, color) for name, color in colors.items()])


def _shift(models: Mapping[str, SystemResult]) -> Figure | None:
    kinds = list(dict.fromkeys(kind for entry in models.values() for kind in entry.shift or {}))
    if not kinds:
        return None
    parts = [(kind, *part) for part in (("accuracy", "accuracy (%)"), ("ece", "ECE (%)")) for kind in kinds]
    figure, every = panels([f"{kind}: {label}" for kind, _, label in parts])
    for axes, (kind, metric, label) in zip(every, parts, strict=True):
        _shift_lines(axes, models, kind, metric)
        axes.set(xlabel="severity", ylabel=label)
    return explained(figure, line_keys(list(models)))


def _shift_lines(axes: Axes, models: Mapping[str, SystemResult], kind: str, metric: str) -> None:
    for place, system in enumerate(models.values()):
        sets = {0: system.id} | {int(severity): part for severity, part in (system.shift or {}).get(kind, {}).items()}
        values = {severity: getattr(sets[severity], metric) for severity in sorted(sets)}
        percents = {severity: 100 * value for severity, value in values.items() if value is not None}
        if len(sets) > 1 and values[0] is not None:
            axes.plot([*percents], [*percents.values()], color=_color(place), marker="o", ms=3)
            axes.set_xticks([*percents])
