"""The findings of a monitor in a sentence, in tables and on a page with figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from hydractl.drawing import COLORS, GREY, Key, explained, inline, line, panels, styled
from hydractl.monitoring.estimates import ASSUMPTIONS, ShareEstimate
from hydractl.monitoring.findings import ClassShare, Findings
from hydractl.reports.columns import Cell, percent_cell, share_cell
from hydractl.reports.page import write_page
from hydractl.reports.table import Table
from hydractl.text import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES = 12  # in a table or figure


def verdict(findings: Findings) -> str:
    """Returns the one line that an owner reads."""
    if not findings.inputs or findings.flagged is None:
        return "no inputs yet"
    inputs = f"{findings.inputs:,} input{'s' * (findings.inputs != 1)}"
    odd = f"{100 * findings.flagged.value:.1f} % look OOD, {100 * findings.promised:g} % of ID data do"
    rest = "; ".join([odd, *_accuracy(findings)])
    if findings.since is None:
        evidence = f"evidence {findings.evidence:.2g}; alarm at {1 / findings.alpha:g}"
        return f"{inputs}: no change ({evidence}); {rest}"
    stream = " of its stream" * (findings.streams > 1)
    when = "" if findings.alarm_at is None else f" at input {findings.alarm_at:,}{stream}"
    return (
        f"{inputs}: ALARM{when}: inputs have changed since about input {findings.since:,}{stream} (evidence "
        f"{findings.highest:.3g}, alarm at {1 / findings.alpha:g}); {rest}"
    )


def _accuracy(findings: Findings) -> Iterator[str]:
    """Yields the accuracy by the method that errs least, or why there is none."""
    if findings.estimable:
        yield from (f"accuracy by {name} {share}" for name, share in list(findings.accuracy.items())[-1:])
    elif findings.classes:
        others = f", only on the {_accepted(findings):,} others"
        accepted = [f"{others}, by {name} {share}" for name, share in list(findings.accepted_accuracy.items())[-1:]]
        yield f"accuracy cannot be estimated with so many odd inputs{''.join(accepted)}"


def _accepted(findings: Findings) -> int:
    return findings.inputs - (0 if findings.flagged is None else round(findings.flagged.value * findings.inputs))


def tables(findings: Findings) -> list[Table]:
    """Returns the tables: the numbers, layers after an alarm, and class shares."""
    return [*_numbers(findings), *_layers(findings), *_classes(findings)]


def _numbers(findings: Findings) -> Iterator[Table]:
    rows: list[tuple[str, ShareEstimate | None, float | None]] = [("look OOD", findings.flagged, findings.promised)]
    rows += [(f"accuracy by {name}", share, None) for name, share in findings.accuracy.items()]
    rows += [(f"accepted: accuracy by {name}", share, None) for name, share in findings.accepted_accuracy.items()]
    if findings.right is not None:
        rows.append((f"accuracy of {findings.labelled} labelled", findings.right, None))
    notes = [
        f"Accuracy by {name}: right {ASSUMPTIONS[name]}." for name in findings.accuracy or findings.accepted_accuracy
    ]
    if findings.classes and not findings.estimable:
        notes.append(
            "More inputs look OOD than chance explains. They may show no class, so the estimate covers only the "
            f"{_accepted(findings):,} accepted inputs, and is valid if these show classes of the model."
        )
    if findings.right is not None:
        notes.append("Accuracy of labelled inputs: it holds for all inputs if they were drawn at random.")
    columns = (
        ("now", [percent_cell(rate) for _, rate, _ in rows]),
        ("promised", [share_cell(rate) for *_, rate in rows]),
    )
    yield Table(tuple(name for name, *_ in rows), (("%", columns),), (), tuple(notes), head="share")


def _layers(findings: Findings) -> Iterator[Table]:
    if not findings.layers:
        return
    odd = [percent_cell(layer.odd) for layer in findings.layers]
    typical = [
        Cell(f"{(at := layer.typicality).value:.2f} ({at.low:.2f} to {at.high:.2f})", at.value)
        for layer in findings.layers
    ]
    moved = [Cell("yes" if layer.moved else "", None) for layer in findings.layers]
    names = tuple(f"layer {layer.layer}" for layer in findings.layers)
    note = "Since the change. Odd, in %: inputs that a layer finds odder than 95 % of the calibration samples."
    columns = (("mean typicality", typical), ("odd", odd), ("beyond chance", moved))
    yield Table(names, (("typicality by one layer", columns),), (), (note,), head="layer")


def _classes(findings: Findings) -> Iterator[Table]:
    shown = findings.classes[:CLASSES]
    if not shown:
        return
    columns = [("predicted", [percent_cell(share.predicted) for share in shown])]
    notes = []
    if any(share.estimated for share in shown):
        columns += [("by EM, recent inputs", [percent_cell(share.estimated) for share in shown])]
        notes.append("By EM: valid if only the shares of classes have changed and confidence is calibrated.")
    if any(share.calibrated is not None for share in shown):
        columns += [("calibration", [share_cell(share.calibrated) for share in shown])]
    if len(findings.classes) > len(shown):
        notes.append(f"The {CLASSES} most frequent of {len(findings.classes)} classes.")
    yield Table(tuple(share.name for share in shown), (("%", tuple(columns)),), (), tuple(notes), head="class")


def write_monitored(folder: Path, findings: Findings, force: bool) -> Path:
    """Writes index.html and monitor.json; returns the page.

    Raises:
        OutputError: the folder holds a report and `force` is not set, or anything else, or the disk refuses it.
    """
    from markupsafe import Markup

    drawn = {name: Markup(inline(figure, name)) for name, figure in figures(findings).items()}
    return write_page(
        folder,
        "monitor",
        findings.to_json(),
        force,
        verdict=verdict(findings),
        alarm=findings.since is not None,
        tables=tables(findings),
        pictures=drawn,
        sure=findings.confidence is not None,
    )


@styled
def figures(findings: Findings) -> dict[str, Figure]:
    """Returns the pictures by their titles."""
    drawn = {"Evidence": _evidence(findings), "Typicality": _histogram(findings)}
    if findings.classes:
        drawn["Classes"] = _shares(findings.classes[:CLASSES])
    return drawn


def _evidence(findings: Findings) -> Figure:
    figure, (axes,) = panels([""])
    for place, history in enumerate(findings.history):
        ends = [0, *accumulate(span.inputs for span in history)]
        axes.plot(ends, [1.0, *(span.evidence for span in history)], **line(place))
    axes.axhline(findings.streams / findings.alpha, color=GREY, linestyle="--")
    axes.set(yscale="log", xlabel="inputs", ylabel="evidence")
    axes.set_ylim(bottom=1)
    return explained(figure, [Key("evidence", COLORS[0]), Key("alarm", GREY, "--")])


def _histogram(findings: Findings) -> Figure:
    figure, (axes,) = panels([""])
    width = 1 / len(findings.histogram)
    shares = [100 * count / max(findings.inputs, 1) for count in findings.histogram]
    axes.bar([width * (at + 0.5) for at in range(len(shares))], shares, 0.9 * width, color=COLORS[0])
    axes.axhline(100 * width, color=GREY, linestyle="--")
    axes.set(xlabel="typicality", ylabel="inputs (%)")
    return explained(figure, [Key("inputs", COLORS[0]), Key("ID data", GREY, "--")])


def _shares(classes: Sequence[ClassShare]) -> Figure:
    figure, (axes,) = panels([""])
    kinds = [("predicted", COLORS[0], -0.15), ("estimated", COLORS[1], 0.15)]
    shown = [kind for kind in kinds if any(getattr(share, kind[0]) for share in classes)]
    for name, color, aside in shown:
        _marks(axes, [getattr(share, name) for share in classes], color, aside)
    calibrated = [(at, 100 * share.calibrated) for at, share in enumerate(classes) if share.calibrated is not None]
    axes.plot([share for _, share in calibrated], [at for at, _ in calibrated], "|", color=GREY, markersize=14)
    axes.set_yticks(range(len(classes)), [shortened(share.name, 20).replace("$", r"\$") for share in classes])
    axes.set(xlabel="share (%)")
    axes.invert_yaxis()
    keys = [Key(name, color) for name, color, _ in shown]
    return explained(figure, [*keys, *([Key("calibration", GREY)] if calibrated else [])])


def _marks(axes: Axes, shares: Sequence[ShareEstimate | None], color: str, aside: float) -> None:
    for at, share in enumerate(shares):
        if share is not None:
            axes.plot([100 * share.low, 100 * share.high], [at + aside] * 2, color=color, linewidth=2)
            axes.plot(100 * share.value, at + aside, "o", color=color, markersize=4)
