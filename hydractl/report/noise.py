"""What pruning does on noisy data, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hydractl.report.drawing import COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hydractl.analysis.noise import NoiseAnalysis, NoiseEffect


def noise_lines(analysis: NoiseAnalysis) -> Iterator[str]:
    """A line for clean data, one for each kind and severity, and the means over these."""
    effects = analysis.effects
    width = max(len(_name(effect)) for effect in effects)
    yield f"{'':{width}}     loss   pruned      gap  <grad, dtheta>       mean diag(H_n - H_t)    positive"
    clean = analysis.clean
    yield f"{'clean':{width}} {clean.dense:8.4f} {clean.pruned:8.4f} {clean.gap:+8.4f} {analysis.slope:+15.4g}"
    for effect in effects:
        losses, curvature, positive = effect.losses, effect.curvature, effect.positive
        yield (
            f"{_name(effect):{width}} {losses.dense:8.4f} {losses.pruned:8.4f} {losses.gap:+8.4f} {effect.slope:+15.4g}"
            f" {curvature.value:+14.3g} +- {curvature.error:8.2g} {positive.value:6.1%} +- {positive.error:.1%}"
        )
    gap, slope, mean = (float(np.mean(values)) for values in _measured(effects))
    yield f"{'mean':{width}} {'':8} {'':8} {gap:+8.4f} {slope:+15.4g} {mean:+14.3g}"
    yield (
        f"{analysis.dropped} heads of {analysis.weights} weights; +- is one standard error of {analysis.draws} draws; "
        "losses in nats"
    )


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


def noise_figure(analysis: NoiseAnalysis) -> Figure:
    """Four panels over severity with a line for each kind: gap, inner product, curvature and its positive share."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4), layout="constrained")
    panels = figure.subplots(1, 4)
    kinds = list(dict.fromkeys(effect.kind for effect in analysis.effects))
    for number, kind in enumerate(kinds):
        own = [effect for effect in analysis.effects if effect.kind == kind]
        # Colours repeat after ten kinds; what line they are drawn with does not.
        style = {"color": COLORS[number % len(COLORS)], "linestyle": ("-", "--")[number // len(COLORS) % 2]}
        _draw(panels, own, {**style, "label": kind, "marker": "o", "markersize": 4})
    panels[0].axhline(analysis.clean.gap, color="black", linewidth=1, linestyle=":", label="clean")
    panels[1].axhline(analysis.slope, color="black", linewidth=1, linestyle=":")
    panels[2].axhline(0, color="black", linewidth=1)
    panels[3].axhline(0.5, color="black", linewidth=1)
    names = ("loss gap of pruning (nats)", "<grad L, dtheta>", "mean diag(H_n - H_t)", "share of it that is positive")
    for axes, name in zip(panels, names, strict=True):
        axes.set(title=name, xlabel="severity")
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    return figure


def _draw(panels: Sequence[Axes], effects: Sequence[NoiseEffect], style: dict[str, object]) -> None:
    severities = [effect.severity for effect in effects]
    gaps, slopes, _ = _measured(effects)
    panels[0].plot(severities, gaps, **style)  # type: ignore[arg-type]
    panels[1].plot(severities, slopes, **style)  # type: ignore[arg-type]
    for axes, estimates in (
        (panels[2], [effect.curvature for effect in effects]),
        (panels[3], [effect.positive for effect in effects]),
    ):
        values, errors = [one.value for one in estimates], [one.error for one in estimates]
        axes.errorbar(severities, values, errors, capsize=2, **style)  # type: ignore[arg-type]
