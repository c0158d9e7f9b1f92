"""What pruning does on noisy data, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hydractl.report.drawing import Key, Panel, Picture
from hydractl.style import INK, line, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hydractl.analysis.noise import NoiseAnalysis, NoiseEffect


def noise_lines(analysis: NoiseAnalysis) -> Iterator[str]:
    """A line for clean data, one for each kind and severity, and the means over these."""
    effects = analysis.effects
    width = max(len(_name(effect)) for effect in effects)
    yield f"{'':{width}}{'loss':>8}{'gap':>9}{'slope':>11}{'curvature':>10}{'positive':>15}"
    yield f"{'clean':{width}} {analysis.clean.dense:7.4f} {analysis.clean.gap:+8.4f} {analysis.slope:+10.3g}"
    for effect in effects:
        losses, curvature, positive = effect.losses, effect.curvature, effect.positive
        yield (
            f"{_name(effect):{width}} {losses.dense:7.4f} {losses.gap:+8.4f} {effect.slope:+10.3g}"
            f" {curvature.value:+9.2g} ± {curvature.error:<6.1g} {positive.value:5.1%} ± {positive.error:.1%}"
        )
    gap, slope, mean = (float(np.mean(values)) for values in _measured(effects))
    yield f"{'mean':{width}} {'':7} {gap:+8.4f} {slope:+10.3g} {mean:+9.2g}"
    yield "in nats; gap: to the loss of what pruning made; slope: <grad L, dtheta>;"
    yield "curvature: mean of diag(H_n - H_t); positive: how much of that is;"
    yield f"± one standard error of {analysis.draws} draws; {analysis.dropped} heads of {analysis.weights} weights"


def noise_facts(analysis: NoiseAnalysis) -> dict[str, object]:
    """What there is to know at a glance."""
    gap, slope, curvature = (float(np.mean(values)) for values in _measured(analysis.effects))
    return {
        "loss gap, clean": f"{analysis.clean.gap:+.4f}",
        "loss gap, noisy": f"{gap:+.4f}",
        "<grad L_n, dtheta>": f"{slope:+.4g}",
        "mean diag(H_n - H_t)": f"{curvature:+.3g}",
    }


def _name(effect: NoiseEffect) -> str:
    return f"{effect.kind} {effect.severity}"


def _measured(effects: Sequence[NoiseEffect]) -> tuple[list[float], list[float], list[float]]:
    return (
        [effect.losses.gap for effect in effects],
        [effect.slope for effect in effects],
        [effect.curvature.value for effect in effects],
    )


def noise_picture(analysis: NoiseAnalysis) -> Picture:
    """Four panels over severity with a line for each kind: gap, inner product, curvature and its positive share."""
    kinds = list(dict.fromkeys(effect.kind for effect in analysis.effects))

    def draw(axes: Axes, figure: _Figure) -> None:
        axes.axhline(figure.clean, color=INK, linewidth=1, linestyle=":")
        for number, kind in enumerate(kinds):
            own = [effect for effect in analysis.effects if effect.kind == kind]
            values, errors = zip(*map(figure.of, own), strict=True)
            axes.errorbar([one.severity for one in own], values, errors, marker="o", markersize=4, **line(number))
        axes.set(xlabel="severity", ylabel=figure.unit)
        whole_numbers(axes.xaxis)

    panels = [Panel(figure.title, partial(draw, figure=figure)) for figure in _figures(analysis)]
    lines = [Key(kind, **line(number)) for number, kind in enumerate(kinds)]
    return Picture(panels, [Key("clean, or no difference", INK, ":"), *lines])


@dataclass(frozen=True)
class _Figure:
    """What is drawn of each kind and severity, with its standard error, and what it is on clean data."""

    title: str
    unit: str
    clean: float
    of: Callable[[NoiseEffect], tuple[float, float]]


def _figures(analysis: NoiseAnalysis) -> tuple[_Figure, ...]:
    return (
        _Figure("loss gap of pruning", "nats", analysis.clean.gap, lambda effect: (effect.losses.gap, 0)),
        _Figure("<grad L, dtheta>", "nats", analysis.slope, lambda effect: (effect.slope, 0)),
        _Figure("mean diag(H_n - H_t)", "curvature", 0, lambda effect: astuple(effect.curvature)),
        _Figure("positive diag(H_n - H_t)", "share of weights", 0.5, lambda effect: astuple(effect.positive)),
    )
